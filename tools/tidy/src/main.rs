//! `tidy`: what `cargo test -p tidy` checks, and `tidy cycles`, `tidy lower`, `tidy accept CHECK`.

use std::process::ExitCode;

use tidy::budget::{self, Budget};
use tidy::modules::Package;
use tidy::tree::{Tree, root};

const USAGE: &str = "\
usage: cargo run -q -p tidy -- COMMAND
  check         what `cargo test -p tidy` checks
  cycles        the import cycles of each crate, with the imports that make them
  lower         lowers tools/tidy/budget.txt to what is there; sums may not grow
  accept CHECK  the same, and the sum of CHECK may grow: say why in the commit
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["check"] => tidy::check(&root()),
        ["cycles"] => cycles(),
        ["lower"] => lower(None),
        ["accept", check] => lower(Some(check)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn cycles() -> Result<(), String> {
    let packages = Package::all(&Tree::read(&root())?)?;
    print!("{}", tidy::cycles::print(&packages));
    Ok(())
}

fn lower(accepted: Option<&str>) -> Result<(), String> {
    let tree = Tree::read(&root())?;
    let budget = Budget::parse(tree.get(budget::FILE).unwrap_or_default())?;
    let (lowered, grown) = budget.lowered(&tidy::findings(&tree)?, accepted);
    std::fs::write(root().join(budget::FILE), lowered.text()).map_err(|error| error.to_string())?;
    if grown.is_empty() {
        Ok(())
    } else {
        Err(grown.join("\n"))
    }
}
