//! No import cycles among sibling modules: a folder can be read from one end to the other.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::modules::{Import, Package};

const CHECK: &str = "cycles";
const FIX: &str = "move what both sides need below both, or hand it over as an argument; \
                   `cargo run -q -p tidy -- cycles` lists the imports";

/// The modules of one folder that can't be put in an order.
pub struct Cycle<'a> {
    /// The folder: the crate's root, or the module that holds them.
    pub folder: String,
    /// Whether the folder is the crate's root.
    pub top: bool,
    pub members: BTreeSet<&'a str>,
    /// The imports among the members.
    pub imports: BTreeMap<(&'a str, &'a str), Vec<Import>>,
}

/// All cycles of a package's library or program.
pub fn cycles(package: &Package) -> Vec<Cycle<'_>> {
    let mut found = Vec::new();
    let Some(product) = &package.product else {
        return found;
    };
    for (at, module) in product.modules.iter().enumerate() {
        if module.children.len() < 2 {
            continue;
        }
        let imports = product.imports(at);
        let edges: BTreeSet<(&str, &str)> = imports.keys().copied().collect();
        for members in components(&edges)
            .into_iter()
            .filter(|members| members.len() > 1)
        {
            let inside = |(from, to): &(&str, &str)| members.contains(from) && members.contains(to);
            let imports = imports.iter().filter(|(edge, _)| inside(edge));
            found.push(Cycle {
                folder: match module.name.as_str() {
                    "" => product.folder().to_owned(),
                    name => format!("{}/{}", product.folder(), name.replace("::", "/")),
                },
                top: module.name.is_empty(),
                imports: imports
                    .map(|(edge, places)| (*edge, places.clone()))
                    .collect(),
                members,
            });
        }
    }
    found
}

/// The strongly connected components of a graph: those from which every member reaches every other. The
/// graphs are folders of some thirty modules, so that reaching everything from everywhere costs nothing.
fn components<'a>(edges: &BTreeSet<(&'a str, &'a str)>) -> Vec<BTreeSet<&'a str>> {
    let nodes: BTreeSet<&str> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let reached_from = |start: &'a str| {
        let mut reached = BTreeSet::new();
        let mut left = vec![start];
        while let Some(node) = left.pop() {
            let next = edges
                .iter()
                .filter(|(from, _)| *from == node)
                .map(|(_, to)| *to);
            left.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = nodes
        .iter()
        .map(|node| (*node, reached_from(node)))
        .collect();
    let component = |node: &&'a str| -> BTreeSet<&'a str> {
        let back = |other: &&&str| reached[**other].contains(node);
        reached[node]
            .iter()
            .filter(back)
            .copied()
            .chain([*node])
            .collect()
    };
    nodes
        .iter()
        .map(component)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// A finding for each cycle, which counts as its members.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let cycles = packages.iter().flat_map(cycles);
    let finding = |cycle: Cycle<'_>| {
        let members: Vec<&str> = cycle.members.iter().copied().collect();
        Finding {
            check: CHECK,
            at: cycle.folder.clone(),
            place: cycle.folder,
            what: format!(
                "{} modules import each other in a circle: {}",
                members.len(),
                members.join(", ")
            ),
            fix: FIX,
            amount: members.len(),
        }
    };
    cycles.map(finding).collect()
}

/// What `tidy cycles` prints: a line per package, and for each cycle the imports that make it.
pub fn print(packages: &[Package]) -> String {
    let mut text = String::new();
    for package in packages {
        let cycles = cycles(package);
        let top = cycles.iter().filter(|cycle| cycle.top).count();
        text += &format!(
            "{}: {top} at the top, {} in folders\n",
            package.folder,
            cycles.len() - top
        );
        for cycle in cycles {
            let members: Vec<&str> = cycle.members.iter().copied().collect();
            text += &format!(
                "  {}: {} modules: {}\n",
                cycle.folder,
                members.len(),
                members.join(" ")
            );
            for ((from, to), imports) in &cycle.imports {
                text += &format!("    {from} → {to}\n");
                for Import { file, line, path } in imports {
                    text += &format!("      {file}:{line} {path}\n");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_component_is_what_reaches_itself() {
        let edges = BTreeSet::from([
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "d"),
            ("e", "a"),
            ("d", "f"),
        ]);
        let mut found = components(&edges);
        found.retain(|members| members.len() > 1);
        assert_eq!(found, [BTreeSet::from(["a", "b", "c"])]);
    }

    #[test]
    fn a_cycle_is_found_with_its_imports() {
        let tree = Tree::of([
            ("x/Cargo.toml", "[package]"),
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "\nuse crate::b::B;"),
            ("x/src/b.rs", "use crate::a::A; use crate::c::C;"),
            ("x/src/c.rs", ""),
        ]);
        let packages = Package::all(&tree).unwrap();
        let found = check(&packages);
        assert_eq!(
            (found.len(), found[0].amount, found[0].place.as_str()),
            (1, 2, "x/src")
        );
        assert_eq!(
            print(&packages),
            "x: 1 at the top, 0 in folders\n  x/src: 2 modules: a b\n    \
             a → b\n      x/src/a.rs:2 crate::b::B\n    b → a\n      x/src/b.rs:1 crate::a::A\n"
        );
    }

    #[test]
    fn a_folder_without_cycles_has_no_findings() {
        let tree = Tree::of([
            ("x/Cargo.toml", "[package]"),
            ("x/src/main.rs", "mod a; mod b;"),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", ""),
        ]);
        let packages = Package::all(&tree).unwrap();
        assert_eq!(check(&packages), []);
        assert_eq!(print(&packages), "x: 0 at the top, 0 in folders\n");
    }
}
