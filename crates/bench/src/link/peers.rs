//! The program with other libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use slackwater::measure::Cores;

const NAME: &str = "slackwater-peers";

/// Where it is, and what it can do.
#[derive(Default)]
pub struct Peers {
    program: PathBuf,
    /// Its kinds; none where it is missing.
    pub kinds: Vec<String>,
}

impl Peers {
    /// The program at this path, or where `make peers` puts it. A missing one is an error only if
    /// it was asked for.
    pub fn find(given: Option<&Path>) -> Result<Peers, String> {
        let usual = Peers::usual();
        let program = given.map(Path::to_path_buf).or(usual);
        let program = program.filter(|program| given.is_some() || program.is_file());
        let Some(program) = program else {
            eprintln!(
                "note: {NAME} is missing, so other libraries are left out\n  = make peers builds \
                 it (two minutes); --peers names it where it lies elsewhere"
            );
            return Ok(Peers::default());
        };
        let failed = |error: String| format!("{}: {error}", program.display());
        let output = Command::new(&program).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(format!("is no {NAME}: {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.split('\t').next());
        Ok(Peers {
            kinds: names.map(str::to_string).collect(),
            program,
        })
    }

    /// From `target/release` of the checkout that this program was built in: its own folder beside.
    fn usual() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?;
        let target = program.parent()?.parent()?;
        Some(target.join("peers/release").join(NAME))
    }

    /// The command that leads one of its kinds.
    pub fn command(&self, kind: &str, cores: Cores) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(kind);
        command.args([cores.leader, cores.follower].map(|core| core.to_string()));
        command
    }
}
