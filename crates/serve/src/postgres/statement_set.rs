//! A STATEMENT SET whose statements come one by one: psql and drivers send what stands between semicolons.
//!
//! The door keeps what comes, and the session gets the whole set at its END.

use super::command::Command;
use super::conversation::{Asked, Conversation, Fault, Opened};
use super::message::Report;
use super::statements::opens;
use super::wire::Wire;
use super::words::words;

/// The most bytes of a set, as of a message.
const BYTES_MAX: usize = 1 << 20;

impl Conversation {
    /// Takes a statement that is a part of a set; `None` if it is none.
    pub async fn part_of_set(
        &mut self,
        wire: &mut Wire,
        command: &Command,
        asked: &Asked<'_>,
    ) -> Result<Option<Opened>, Fault> {
        let done = |tag: &str| {
            Ok(Some(Opened::Done {
                tag: tag.to_owned(),
                notices: vec![],
            }))
        };
        let statement = asked.text.trim_end().trim_end_matches(';');
        let Some(set) = &mut self.set.0 else {
            if *command == Command::Other && opens(asked.text) {
                self.set.0 = Some(format!("{statement};\n"));
                return done("BEGIN");
            }
            return Ok(None);
        };
        let first = words(asked.text)
            .first()
            .map(|word| word.text.to_lowercase());
        match (command, first.as_deref()) {
            (Command::Empty, _) => Ok(None),
            (Command::Commit, Some("end")) => {
                let text = self.set.0.take().unwrap_or_default() + "END";
                let whole = Asked {
                    text: &text,
                    before: 0,
                    parameters: vec![],
                };
                // Its place is in a text that the client has not sent.
                let opened = self.ask_session(wire, whole).await;
                let opened = opened.map_err(|fault| match fault {
                    Fault::Report(report) => Fault::Report(Report {
                        position: None,
                        ..report
                    }),
                    Fault::Gone => Fault::Gone,
                });
                opened.map(Some)
            }
            (Command::Rollback, _) => {
                self.set.0 = None;
                done("ROLLBACK")
            }
            (Command::Other, Some("insert")) if set.len() + statement.len() <= BYTES_MAX => {
                set.push_str(statement);
                set.push_str(";\n");
                done("INSERT 0 0")
            }
            (Command::Other, Some("insert")) => {
                Err(Report::error("54000", "the STATEMENT SET is too long").into())
            }
            _ => Err(Fault::Report(Report {
                hint: Some("END runs it, and ROLLBACK forgets it".to_owned()),
                ..Report::error("25001", "a STATEMENT SET is open, which takes INSERT only")
            })),
        }
    }
}
