//! Checks of the source tree that neither the compiler nor clippy makes, in the style of TigerBeetle's
//! `tidy.zig`.
//!
//! ```text
//! tree.rs (files) → tokens.rs (Rust without comments and tests) → modules.rs (who imports whom)
//!                 → one file per check → findings → budget.rs (what main may still violate) → report
//! ```
//!
//! A check is a function from the tree to [`Finding`]s. It knows nothing of budgets: those are in
//! `tools/tidy/budget.txt`, may only shrink, and are compared in one place. To add a check, write the
//! function beside the others with a bad example in its tests, and name it in [`findings`].

pub mod budget;
pub mod changed;
pub mod cycles;
pub mod dead;
pub mod layers;
pub mod lengths;
pub mod manifests;
pub mod modules;
pub mod names;
pub mod syntax;
pub mod tokens;
pub mod tree;
pub mod words;

use std::path::Path;

use budget::Budget;
use modules::Package;
use tree::Tree;

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check's name, as in the budget.
    pub check: &'static str,
    /// What the budget counts by: a file, a folder, or an area and a word.
    pub place: String,
    /// `file:line`, or the file alone.
    pub at: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: &'static str,
    /// How much it counts: 1, or a file's lines.
    pub amount: usize,
}

impl Finding {
    /// A finding in a file's line that counts as one, by file.
    pub fn in_line(
        check: &'static str,
        file: &str,
        line: usize,
        what: String,
        fix: &'static str,
    ) -> Self {
        Self {
            check,
            place: file.to_owned(),
            at: format!("{file}:{line}"),
            what,
            fix,
            amount: 1,
        }
    }
}

/// The findings of all checks. Errors are sources that can't be read as Rust.
pub fn findings(tree: &Tree) -> Result<Vec<Finding>, String> {
    let packages = Package::all(tree)?;
    Ok([
        cycles::check(&packages),
        layers::check(&packages, layers::LAYERS),
        manifests::check(tree),
        syntax::check(&packages),
        lengths::check(tree),
        dead::check(tree, &packages),
        words::check(tree),
    ]
    .concat())
}

/// Checks the repository in `root`. The error is what to print: every place that is over its budget, or under
/// it.
pub fn check(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let budget = Budget::parse(tree.get(budget::FILE).unwrap_or_default())?;
    let changed = changed::lines(root);
    let messages = budget.compare(&findings(&tree)?, |at| changed.contains(at));
    if messages.is_empty() {
        Ok(())
    } else {
        Err(messages.join("\n\n"))
    }
}
