//! The module tree of every crate, and which module imports which.
//!
//! An import is a path that starts with `crate` or `super`, in a `use` or anywhere else, including
//! macros. Re-exports are followed to their source, so that `use crate::Thing` doesn't hide a direction.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Delimiter;

use crate::names::{Use, include, items, path_attribute, paths};
use crate::tokens::{Token, tokens, without_tests};
use crate::tree::{Tree, folder, join, kind};

/// How many re-exports a path may go through: names can't be re-exported in a circle, but their sources can
/// be wrong.
const RE_EXPORTS_MAX: usize = 16;

/// A folder with a manifest.
pub struct Package {
    /// Where its manifest is.
    pub folder: String,
    /// The library, or the program where there is no library, without tests: what the rules are about.
    pub product: Option<Crate>,
    /// Its other targets that are not tests: programs and examples.
    pub others: Vec<Crate>,
    /// Every file that a target reaches, tests included.
    pub reached: BTreeSet<String>,
}

impl Package {
    /// All packages of the tree.
    pub fn all(tree: &Tree) -> Result<Vec<Self>, String> {
        let manifests = tree.files().filter(|(path, text)| {
            path.rsplit('/').next() == Some("Cargo.toml") && text.contains("[package]")
        });
        manifests
            .map(|(path, manifest)| Self::read(tree, folder(path), manifest))
            .collect()
    }

    fn read(tree: &Tree, folder: &str, manifest: &str) -> Result<Self, String> {
        let (mut products, mut tests) = (Vec::new(), Vec::new());
        for (path, _) in tree.files() {
            let Some(inner) = path
                .strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'))
            else {
                continue;
            };
            let named = manifest
                .lines()
                .any(|line| line.trim() == format!("path = \"{inner}\""));
            match inner.split('/').collect::<Vec<_>>()[..] {
                ["src", "lib.rs" | "main.rs"] | ["examples", _, "main.rs"] => products.push(path),
                ["src", "bin", name] | ["examples", name] if name.ends_with(".rs") => {
                    products.push(path)
                }
                ["tests", name]
                    if named
                        || name.ends_with(".rs") && !manifest.contains("autotests = false") =>
                {
                    tests.push(path);
                }
                ["tests" | "benches", _, "main.rs"] | ["build.rs"] => tests.push(path),
                _ if named && kind(path) == "rs" => products.push(path),
                _ => {}
            }
        }
        let mut reached = BTreeSet::new();
        for root in products.iter().chain(&tests) {
            Crate::read(tree, root, true)?.files_into(&mut reached);
        }
        let mut crates = products
            .into_iter()
            .map(|root| Crate::read(tree, root, false))
            .collect::<Result<Vec<_>, _>>()?;
        let main = crates
            .iter()
            .position(|found| found.root == join(folder, "src/lib.rs"));
        let main = main.or_else(|| {
            crates
                .iter()
                .position(|found| found.root == join(folder, "src/main.rs"))
        });
        let product = main.map(|at| crates.remove(at));
        Ok(Self {
            folder: folder.to_owned(),
            product,
            others: crates,
            reached,
        })
    }

    /// All crates of the package that are not tests.
    pub fn crates(&self) -> impl Iterator<Item = &Crate> {
        self.product.iter().chain(&self.others)
    }
}

/// A crate: its modules, of which the first is the root.
pub struct Crate {
    /// The root's file.
    pub root: String,
    /// Parents come before their children.
    pub modules: Vec<Module>,
    included: Vec<String>,
}

/// A module of a crate.
pub struct Module {
    /// Its path from the crate's root, such as `error::planner`; empty for the root.
    pub name: String,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// The file, and whether the module is all of it.
    pub file: String,
    pub whole_file: bool,
    /// The tokens, without those of modules written inline.
    pub tokens: Vec<Token>,
    uses: Vec<Use>,
    items: BTreeSet<String>,
}

/// An import of one sibling module by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub file: String,
    pub line: usize,
    /// The path as it is written.
    pub path: String,
}

impl Crate {
    fn read(tree: &Tree, root: &str, with_tests: bool) -> Result<Self, String> {
        let mut read = Self {
            root: root.to_owned(),
            modules: Vec::new(),
            included: Vec::new(),
        };
        read.file(tree, root, None, folder(root), with_tests)?;
        for module in &mut read.modules {
            let mut uses = Vec::new();
            paths(&module.tokens, &mut uses);
            module.uses = uses;
            module.items = items(&module.tokens);
        }
        Ok(read)
    }

    fn file(
        &mut self,
        tree: &Tree,
        file: &str,
        place: Option<(usize, &str)>,
        inner: &str,
        with_tests: bool,
    ) -> Result<(), String> {
        let text = tree
            .get(file)
            .ok_or_else(|| format!("{file}: there is no such file"))?;
        let mut all = tokens(file, text)?;
        if !with_tests {
            all = without_tests(&all);
        }
        self.module(tree, file, place, inner, all, with_tests)
    }

    fn module(
        &mut self,
        tree: &Tree,
        file: &str,
        place: Option<(usize, &str)>,
        inner: &str,
        all: Vec<Token>,
        with_tests: bool,
    ) -> Result<(), String> {
        let this = self.modules.len();
        let name = match place {
            None => String::new(),
            Some((parent, name)) if self.modules[parent].name.is_empty() => name.to_owned(),
            Some((parent, name)) => format!("{}::{name}", self.modules[parent].name),
        };
        if let Some((parent, name)) = place {
            self.modules[parent].children.insert(name.to_owned(), this);
        }
        self.modules.push(Module {
            name,
            parent: place.map(|(parent, _)| parent),
            children: BTreeMap::new(),
            file: file.to_owned(),
            whole_file: place.is_none_or(|(parent, _)| self.modules[parent].file != file),
            tokens: Vec::new(),
            uses: Vec::new(),
            items: BTreeSet::new(),
        });
        let mut own = Vec::new();
        let mut path = None;
        let mut at = 0;
        while at < all.len() {
            if let Some(included) = include(&all[at..]) {
                self.included.push(join(folder(file), included));
            }
            path = path_attribute(&all[at..]).or(path);
            let child = (all[at].word() == Some("mod"))
                .then(|| all.get(at + 1).and_then(Token::word))
                .flatten();
            let (Some(child), Some(body)) = (child, all.get(at + 2)) else {
                own.push(all[at].clone());
                at += 1;
                continue;
            };
            let place = Some((this, child));
            if let Some(body) = body.group(Delimiter::Brace) {
                let inner = path
                    .take()
                    .map_or_else(|| join(inner, child), |path| join(folder(file), &path));
                self.module(tree, file, place, &inner, body.to_vec(), with_tests)?;
            } else {
                let path = path.take().map(|path| join(folder(file), &path));
                let candidates = match path {
                    Some(path) => vec![path],
                    None => vec![
                        join(inner, &format!("{child}.rs")),
                        join(inner, &format!("{child}/mod.rs")),
                    ],
                };
                let found = candidates.iter().find(|path| tree.get(path).is_some());
                let found = found
                    .ok_or_else(|| format!("{file}:{}: no file for mod {child}", all[at].line))?;
                let inner = if found.ends_with("/mod.rs") {
                    folder(found)
                } else {
                    &found[..found.len() - 3]
                };
                self.file(tree, found, place, inner, with_tests)?;
            }
            at += 3;
        }
        self.modules[this].tokens = own;
        Ok(())
    }

    fn files_into(&self, reached: &mut BTreeSet<String>) {
        reached.extend(self.modules.iter().map(|module| module.file.clone()));
        reached.extend(self.included.iter().cloned());
    }

    /// The folder in which the modules beside the root lie.
    pub fn folder(&self) -> &str {
        folder(&self.root)
    }

    /// The imports among the children of a module, by who imports whom.
    pub fn imports(&self, parent: usize) -> BTreeMap<(&str, &str), Vec<Import>> {
        let mut imports: BTreeMap<_, Vec<Import>> = BTreeMap::new();
        for (from, module) in self.modules.iter().enumerate() {
            let Some(importer) = self.child_towards(parent, from) else {
                continue;
            };
            for used in &module.uses {
                let Some(target) = self.resolve(from, &used.path, RE_EXPORTS_MAX) else {
                    continue;
                };
                if let Some(imported) = self
                    .child_towards(parent, target)
                    .filter(|it| *it != importer)
                {
                    let path = used.path.join("::");
                    imports
                        .entry((importer, imported))
                        .or_default()
                        .push(Import {
                            file: module.file.clone(),
                            line: used.line,
                            path,
                        });
                }
            }
        }
        imports
    }

    /// The child of `parent` that is, or holds, a module.
    fn child_towards(&self, parent: usize, mut module: usize) -> Option<&str> {
        loop {
            let above = self.modules[module].parent?;
            if above == parent {
                return self.modules[module].name.rsplit("::").next();
            }
            module = above;
        }
    }

    fn is_above(&self, above: usize, mut module: usize) -> bool {
        loop {
            if above == module {
                return true;
            }
            match self.modules[module].parent {
                Some(parent) => module = parent,
                None => return false,
            }
        }
    }

    /// The module that a path leads to: the first that isn't above the one that names it, or the one above it
    /// that has the item itself.
    fn resolve(&self, from: usize, path: &[String], re_exports_left: usize) -> Option<usize> {
        let mut rest = path.iter().map(String::as_str).peekable();
        let mut at = match *rest.peek()? {
            "crate" => 0,
            "self" => from,
            "super" => self.modules[from].parent?,
            _ => return None,
        };
        rest.next();
        while rest.next_if_eq(&"super").is_some() {
            at = self.modules[at].parent?;
        }
        for segment in rest {
            if !self.is_above(at, from) {
                break;
            }
            let found = self.modules[at].children.get(segment).copied();
            match found.or_else(|| self.re_exported(at, segment, re_exports_left)) {
                Some(next) => at = next,
                None => break,
            }
        }
        Some(at)
    }

    /// Where a name comes from that a module has only by a `use`.
    fn re_exported(&self, module: usize, name: &str, left: usize) -> Option<usize> {
        let left = left.checked_sub(1)?;
        let Module {
            uses,
            children,
            items,
            ..
        } = &self.modules[module];
        if items.contains(name) {
            return None;
        }
        let follow = |used: &Use| {
            let first = used.path.first()?;
            match children.get(first) {
                Some(child) => Some(*child),
                None => self.resolve(module, &used.path, left),
            }
        };
        if let Some(named) = uses.iter().find(|used| used.name.as_deref() == Some(name)) {
            return follow(named);
        }
        let globs = uses.iter().filter(|used| used.glob);
        globs.filter_map(follow).find(|glob| {
            self.modules[*glob].items.contains(name)
                || self.modules[*glob].children.contains_key(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"a\"\n";

    fn product<const N: usize>(files: [(&str, &str); N]) -> Crate {
        let mut all = Tree::of([("a/Cargo.toml", MANIFEST)]);
        all.extend(files);
        let mut packages = Package::all(&all).unwrap();
        packages.remove(0).product.unwrap()
    }

    fn edges(read: &Crate, parent: usize) -> Vec<String> {
        let imports = read.imports(parent);
        let one = |((from, to), places): (&(&str, &str), &Vec<Import>)| {
            let lines: Vec<_> = places.iter().map(|place| place.line.to_string()).collect();
            format!("{from}→{to} {}", lines.join(" "))
        };
        imports.iter().map(one).collect()
    }

    #[test]
    fn imports_are_found_in_uses_bodies_and_macros() {
        let read = product([
            ("a/src/lib.rs", "mod b; mod c; mod d;"),
            (
                "a/src/b.rs",
                "use crate::c::{X, y::{self, Z}};\nfn f() { format!(\"{}\", crate::d::g()) }",
            ),
            ("a/src/c.rs", "fn f(x: super::d::X) {}\nuse self::y::Z;"),
            (
                "a/src/d.rs",
                "// crate::b\nconst X: &str = \"crate::b\"; fn f() -> impl Y + use<'_, X> {}",
            ),
        ]);
        assert_eq!(edges(&read, 0), ["b→c 1 1 1", "b→d 2", "c→d 1"]);
    }

    #[test]
    fn what_the_root_re_exports_is_followed() {
        let read = product([
            (
                "a/src/lib.rs",
                "mod b; mod c; mod d; pub use b::Thing as Other; pub use d::*; struct Own;",
            ),
            ("a/src/b.rs", "use crate::{Own, Globbed};"),
            ("a/src/c.rs", "use crate::Other;"),
            ("a/src/d.rs", "pub fn Globbed() {}"),
        ]);
        assert_eq!(edges(&read, 0), ["b→d 1", "c→b 1"]);
    }

    #[test]
    fn nested_folders_have_edges_of_their_own() {
        let read = product([
            ("a/src/lib.rs", "mod b;"),
            (
                "a/src/b.rs",
                "mod c; mod d; use c::Thing; mod inline { use super::d::X; }",
            ),
            ("a/src/b/c.rs", "use crate::b::d::X;"),
            ("a/src/b/d.rs", "use super::Thing;"),
        ]);
        assert_eq!(edges(&read, 0), [""; 0]);
        assert_eq!(edges(&read, 1), ["c→d 1", "d→c 1", "inline→d 1"]);
    }

    #[test]
    fn tests_import_what_they_like() {
        let read = product([
            ("a/src/lib.rs", "mod b; mod c;"),
            ("a/src/b.rs", "#[cfg(test)] mod tests;"),
            ("a/src/b/tests.rs", "use crate::c;"),
            ("a/src/c.rs", ""),
        ]);
        assert_eq!(edges(&read, 0), [""; 0]);
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let tree = Tree::of([("a/Cargo.toml", MANIFEST), ("a/src/lib.rs", "\nmod b;")]);
        assert_eq!(
            Package::all(&tree).err().unwrap(),
            "a/src/lib.rs:2: no file for mod b"
        );
    }
}
