//! `slackwater check`.

use std::process::ExitCode;

use clap::Args;

use super::arguments::QueryArguments;
use super::complain;
use crate::check::check;
use crate::terminal::{FAILED, USAGE, print};

/// The text after the list of options.
pub(super) const HELP: &str = "\
Nothing is changed, and the old version may still run. The answer is that of run --state: it asks the same
questions. Not checked: whether the state itself can be read, and whether a new table that is written is
empty.

  slackwater check new.sql --state state && slackwater run new.sql --state state

Exit code: 0 when a run resumes, 1 when it refuses to, 2 when the command line or the SQL is wrong, or
there is no checkpoint.";

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    query: QueryArguments,
    /// Where the checkpoints of the old version are: a directory, or s3://bucket/folder
    #[arg(long, value_name = "DIR")]
    state: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Prints the answer.
    pub(super) fn run(self) -> ExitCode {
        let script = self.query.script();
        let checked = script.and_then(|script| check(&script, &self.query.settings(), &self.state));
        let survival = match checked {
            Ok(survival) => survival,
            Err(error) => return complain(&error, USAGE),
        };
        print(&match self.json {
            true => survival.json(),
            false => survival.to_string(),
        });
        match survival.resumes {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(FAILED),
        }
    }
}
