//! The program with other libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use slackwater::measure::Cores;

const NAME: &str = "slackwater-peers";

/// The path of the program, and its kinds.
#[derive(Default)]
pub struct Peers {
    program: PathBuf,
    /// The kinds; empty if the program is missing.
    pub kinds: Vec<String>,
}

impl Peers {
    /// The program at this path, or where `make peers` creates it. A missing program is an error only if
    /// its path was given.
    pub fn find(given: Option<&Path>) -> Result<Peers, String> {
        let usual = Peers::usual();
        let program = given.map(Path::to_path_buf).or(usual);
        let program = program.filter(|program| given.is_some() || program.is_file());
        let Some(program) = program else {
            eprintln!(
                "note: {NAME} is missing, so other libraries are left out\n  = make peers builds \
                 it (two minutes); use --peers if it is elsewhere"
            );
            return Ok(Peers::default());
        };
        let failed = |error: String| format!("{}: {error}", program.display());
        let output = Command::new(&program).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(format!("is not {NAME}: {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.split('\t').next());
        Ok(Peers {
            kinds: names.map(str::to_string).collect(),
            program,
        })
    }

    /// The default path, relative to `target/release` of the checkout that this program was built in.
    fn usual() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?;
        let target = program.parent()?.parent()?;
        Some(target.join("peers/release").join(NAME))
    }

    /// The command that starts the leader of a kind.
    pub fn command(&self, kind: &str, cores: Cores) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(kind);
        command.args([cores.leader, cores.follower].map(|core| core.to_string()));
        command
    }
}
