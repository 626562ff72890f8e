//! What product code may not use: unbounded channels, atomics outside of two places, traits with too many
//! methods.

use proc_macro2::Delimiter;

use crate::Finding;
use crate::modules::{Crate, Module, Package};
use crate::tokens::{Kind, Token};

const CHANNELS: &str = "unbounded-channels";
const CHANNELS_FIX: &str =
    "take a bounded one (`mpsc::sync_channel`) with a named limit: every queue has one (I3)";

const ATOMICS: &str = "atomics";
const ATOMICS_FIX: &str = "take a link, a channel or a lock; atomics are in `link` (`sync.rs`, for loom), \
                           in the engine's `counters` and in `sockets`";
/// Where atomics may be: `sockets` is memory that programs share, and loaded into programs of others.
const ATOMICS_IN: [&str; 3] = [
    "crates/link/",
    "crates/engine/src/counters",
    "crates/sockets/",
];

const TRAITS: &str = "wide-traits";
const TRAITS_FIX: &str = "split it: a trait that strangers implement has about five methods";
const METHODS_MAX: usize = 8;

const GLOBS: &str = "glob-imports";
const GLOBS_FIX: &str =
    "name what is imported: a glob of a parent hides the direction of the import";

/// The findings in everything that is not a test.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let crates = packages.iter().flat_map(Package::crates);
    let mut found: Vec<Finding> = crates.flat_map(check_crate).collect();
    // A file can be part of several crates.
    found.sort_by(|a, b| {
        (a.check, &a.place, &a.at, &a.what).cmp(&(b.check, &b.place, &b.at, &b.what))
    });
    found.dedup();
    found
}

fn check_crate(checked: &Crate) -> Vec<Finding> {
    let mut found = Vec::new();
    for module in &checked.modules {
        check_tokens(module, &module.tokens, &mut found);
    }
    found
}

fn check_tokens(module: &Module, tokens: &[Token], found: &mut Vec<Finding>) {
    let file = &module.file;
    let mut at = 0;
    while at < tokens.len() {
        let (token, rest) = (&tokens[at], &tokens[at..]);
        if let Some(call) = unbounded(rest) {
            let what = format!("{call} makes a queue without a limit");
            found.push(Finding::in_line(
                CHANNELS,
                file,
                token.line,
                what,
                CHANNELS_FIX,
            ));
        }
        let atomic = token.word().filter(|word| {
            word.strip_prefix("Atomic").is_some_and(|kind| {
                matches!(kind, "Bool" | "Ptr" | "Usize" | "Isize") || kind.starts_with(['U', 'I'])
            })
        });
        if let Some(atomic) =
            atomic.filter(|_| !ATOMICS_IN.iter().any(|place| file.starts_with(place)))
        {
            let what = format!("{atomic} outside of link and the engine's counters");
            found.push(Finding::in_line(
                ATOMICS,
                file,
                token.line,
                what,
                ATOMICS_FIX,
            ));
        }
        if let Some((name, methods)) = wide_trait(rest) {
            let what = format!("trait {name} has {methods} methods, {METHODS_MAX} are the most");
            found.push(Finding::in_line(TRAITS, file, token.line, what, TRAITS_FIX));
        }
        if parent_glob(rest) {
            let what = "use super::* outside of tests".to_owned();
            found.push(Finding::in_line(GLOBS, file, token.line, what, GLOBS_FIX));
        }
        if let Kind::Group(_, inner) = &token.kind {
            check_tokens(module, inner, found);
        }
        at += 1;
    }
}

/// The call that makes an unbounded channel, if the tokens start with one: of the standard library, tokio,
/// crossbeam or flume.
fn unbounded(tokens: &[Token]) -> Option<String> {
    let name = tokens.first()?.word()?;
    match name {
        "unbounded_channel" | "unbounded" => {
            let call = tokens.get(1)?.group(Delimiter::Parenthesis)?;
            call.is_empty().then(|| format!("{name}()"))
        }
        "mpsc" => {
            let [_, first, second, channel, ..] = tokens else {
                return None;
            };
            let channel = first.is(':') && second.is(':') && channel.word() == Some("channel");
            channel.then(|| "mpsc::channel()".to_owned())
        }
        _ => None,
    }
}

/// The name and number of methods of a trait with too many, if the tokens start with one.
fn wide_trait(tokens: &[Token]) -> Option<(&str, usize)> {
    let [keyword, name, rest @ ..] = tokens else {
        return None;
    };
    let name = name.word().filter(|_| keyword.word() == Some("trait"))?;
    let body = rest
        .iter()
        .find_map(|token| token.group(Delimiter::Brace))?;
    let methods = body
        .windows(2)
        .filter(|pair| pair[0].word() == Some("fn") && pair[1].word().is_some())
        .count();
    (methods > METHODS_MAX).then_some((name, methods))
}

/// Whether the tokens start with `super::*` or `crate::*`.
fn parent_glob(tokens: &[Token]) -> bool {
    let [parent, first, second, glob, ..] = tokens else {
        return false;
    };
    let above = matches!(parent.word(), Some("super" | "crate"));
    above && first.is(':') && second.is(':') && glob.is('*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn found(file: &str, text: &str) -> Vec<(&'static str, String)> {
        let root = format!("{}/Cargo.toml", file.split("/src").next().unwrap());
        let tree = Tree::of([(&root, "[package]"), (file, text)]);
        let found = check(&Package::all(&tree).unwrap());
        found
            .into_iter()
            .map(|finding| (finding.check, finding.at))
            .collect()
    }

    #[test]
    fn unbounded_channels_are_found() {
        let text = "fn f() {\n mpsc::channel::<u8>();\n mpsc::sync_channel(1);\n \
                    unbounded();\n unbounded(x) }";
        let at = |line| (CHANNELS, format!("x/src/lib.rs:{line}"));
        assert_eq!(found("x/src/lib.rs", text), [at(2), at(4)]);
        assert_eq!(
            found(
                "x/src/lib.rs",
                "#[cfg(test)] mod tests { fn f() { mpsc::channel() } }"
            ),
            []
        );
    }

    #[test]
    fn atomics_are_found_outside_of_their_places() {
        let text = "use std::sync::atomic::{AtomicU64, Ordering}; struct AtomicWeight;";
        assert_eq!(
            found("crates/sql/src/lib.rs", text),
            [(ATOMICS, "crates/sql/src/lib.rs:1".to_owned())]
        );
        assert_eq!(found("crates/link/src/lib.rs", text), []);
    }

    #[test]
    fn wide_traits_are_found() {
        let methods = |count: usize| "fn a(f: fn());".repeat(count);
        let text = format!(
            "trait Narrow {{ {} }}\npub trait Wide: Send {{ {} }}",
            methods(8),
            methods(9)
        );
        assert_eq!(
            found("x/src/lib.rs", &text),
            [(TRAITS, "x/src/lib.rs:2".to_owned())]
        );
    }

    #[test]
    fn globs_of_parents_are_found() {
        let text = "mod a { use super::*; }\nmod b { use super::c::*; }";
        assert_eq!(
            found("x/src/lib.rs", text),
            [(GLOBS, "x/src/lib.rs:1".to_owned())]
        );
    }
}
