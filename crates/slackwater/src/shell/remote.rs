//! The shell of a server: statements go to it as they are, and its answers are shown as they come.
//!
//! A request is a session of its own for the server. So the shell keeps what SET has set, and sends it with
//! each statement.

use std::time::Instant;

use slackwater_serve::client::{Client, Failed, Refused};
use slackwater_sql::SqlError;
use slackwater_sql::error::Place;
use slackwater_sql::statement::server::JOB_NAME;
use slackwater_sql::statement::{Statement, parse};

use super::words::Words;
use super::{Shell, Stop, Went, with_signal_pipe};
use crate::script::Script;
use crate::split::Piece;
use crate::terminal::{FAILED, aligned, print, say};

/// A server that runs what is typed.
pub(crate) struct Remote {
    client: Client,
    /// What SET has set.
    settings: Vec<(String, String)>,
}

impl Remote {
    /// The server at an address. `settings` are set before each statement.
    pub(crate) fn new(
        address: &str,
        token: Option<String>,
        settings: Vec<(String, String)>,
    ) -> Result<Remote, String> {
        let client = with_signal_pipe(|interrupted| Client::new(address, token, interrupted));
        Ok(Remote {
            client: client.map_err(|error| format!("signals: {error}"))?,
            settings,
        })
    }

    /// The server's address.
    pub(super) fn address(&self) -> &str {
        self.client.address()
    }

    /// What SET has set.
    pub(super) fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// The tables and views: name, kind, and the names of the columns.
    fn objects(&self) -> Result<Vec<(String, String, Vec<String>)>, Failed> {
        let mut found = Vec::new();
        for path in ["/v1/tables", "/v1/views"] {
            let objects = self.client.json(path)?;
            for object in objects.as_array().into_iter().flatten() {
                let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_string();
                let columns = object["columns"].as_array().into_iter().flatten();
                let columns = columns.map(|column| text(&column["name"])).collect();
                found.push((text(&object["name"]), text(&object["kind"]), columns));
            }
        }
        found.sort();
        Ok(found)
    }

    /// What a table or view is.
    pub(super) fn kind(&self, name: &str) -> Result<Option<String>, Failed> {
        let objects = self.objects()?.into_iter();
        let mut named = objects.filter(|(own, ..)| own == name);
        Ok(named.next().map(|(_, kind, _)| kind))
    }

    /// The names that can be completed.
    pub(super) fn words(&self, known: Words) -> Result<Words, Failed> {
        let objects = self.objects()?.into_iter();
        Ok(known.with_tables(objects.map(|(name, _, columns)| (name, columns))))
    }

    /// The tables and views in columns of text.
    pub(super) fn list(&self) -> Result<String, Failed> {
        let rows = self.objects()?.into_iter();
        let rows = rows.map(|(name, kind, _)| vec![name, kind]);
        let rows = rows.collect::<Vec<_>>();
        Ok(match rows.is_empty() {
            true => "  there are no tables and views: CREATE TABLE declares one\n".to_string(),
            false => aligned(&["name", "kind"], &rows),
        })
    }

    /// Why nothing comes out of a job; without a name, of the only job.
    pub(super) fn why(&self, job: &str) -> Result<String, Failed> {
        let only;
        let job = match job {
            "" => {
                only = self.only_job()?;
                &only
            }
            job => job,
        };
        let answer = self.client.json(&why_path(job))?;
        Ok(answer["why"].as_str().unwrap_or_default().to_string())
    }

    fn only_job(&self) -> Result<String, Failed> {
        let jobs = self.client.json("/v1/jobs")?;
        let jobs = jobs.as_array().map(Vec::as_slice).unwrap_or_default();
        match jobs {
            [job] => Ok(job["name"].as_str().unwrap_or_default().to_string()),
            jobs => Err(Failed::Refused(Refused {
                message: format!("there are {} jobs: name one", jobs.len()),
                hint: "SHOW JOBS lists them".to_string(),
                position: None,
            })),
        }
    }
}

/// Why nothing comes out of a job of the server at an address; there is no file of this name.
pub(crate) fn why(address: &str, token: Option<String>, job: &str) -> Result<String, String> {
    let said = Remote::new(address, token, Vec::new())?.why(job);
    said.map_err(|failed| match failed {
        Failed::Unreachable(error) => format!("there is no file {job}, and {error}"),
        failed => format!("{address}: {failed}"),
    })
}

/// Where a server says why nothing comes out of a job.
fn why_path(job: &str) -> String {
    let mut path = "/v1/jobs/".to_string();
    for byte in job.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => path.push(byte as char),
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path + "/why"
}

impl Shell {
    /// Runs a statement on the server.
    pub(super) fn send(&mut self, part: &str, piece: &Piece) -> Result<Went, Stop> {
        let Some(remote) = &self.remote else {
            return Ok(Went::On);
        };
        let begun = Instant::now();
        let mut last = Vec::new();
        let mut take = |text: bytes::Bytes| {
            print(&String::from_utf8_lossy(&text));
            keep_last_line(&mut last, &text);
        };
        let ran = remote
            .client
            .run(&piece.placed, &remote.settings, &mut take);
        if let Err(failed) = ran {
            return self.not_done(failed, part, piece);
        }
        if last.starts_with(b"ERROR: ") {
            // It failed after its first rows.
            return match self.is_interactive {
                true => Ok(Went::Stopped),
                false => Err(Stop::Failed(FAILED)),
            };
        }
        if self.timing {
            print(&format!("({:.3} s)\n", begun.elapsed().as_secs_f64()));
        }
        self.note_settings(piece);
        self.refresh()?;
        Ok(Went::On)
    }

    fn not_done(&mut self, failed: Failed, part: &str, piece: &Piece) -> Result<Went, Stop> {
        match failed {
            Failed::Interrupted => {}
            Failed::Refused(refused) => {
                let mut error = SqlError::new(refused.message).hint(refused.hint);
                error.place = refused
                    .position
                    .map(|position| place(&piece.placed, position));
                let alone = Script::new(part, &piece.placed);
                self.wrong(&alone.render(&error))?;
            }
            Failed::Unreachable(_) => return self.failed(&failed.to_string()),
        }
        Ok(Went::Stopped)
    }

    /// Keeps what a statement has set.
    fn note_settings(&mut self, piece: &Piece) {
        let Some(remote) = &mut self.remote else {
            return;
        };
        let set = &mut remote.settings;
        // Statements that only servers know are not valid here.
        let parsed = parse(&piece.placed).unwrap_or_default();
        match parsed.into_iter().next().map(|placed| placed.statement) {
            Some(Statement::Set { key, value }) => {
                set.retain(|(other, _)| *other != key);
                set.push((key, value));
            }
            Some(Statement::Reset(Some(key))) => set.retain(|(other, _)| *other != key),
            Some(Statement::Reset(None)) => set.clear(),
            // The name was for this one.
            Some(Statement::Insert { .. }) => set.retain(|(key, _)| key != JOB_NAME),
            _ => {}
        }
    }

    /// What a command of the shell says about the server.
    pub(super) fn say_of_server(&mut self, said: Result<String, Failed>) -> Result<(), Stop> {
        match said {
            Ok(text) => {
                print(&text);
                Ok(())
            }
            Err(Failed::Unreachable(error)) => self.failed(&error).map(drop),
            Err(failed) => self.wrong(&failed.to_string()),
        }
    }

    /// Says that no server answers, before anything is run.
    pub(super) fn unreachable(failed: &Failed) -> Stop {
        let hint = match failed {
            Failed::Unreachable(_) => "\n  = slackwater serve starts a server",
            _ => "",
        };
        say(&format!("error: {failed}{hint}\n"));
        Stop::Failed(FAILED)
    }
}

/// The last line of a text that comes in pieces, as far as it says whether it is an error.
fn keep_last_line(last: &mut Vec<u8>, text: &[u8]) {
    let end = text.strip_suffix(b"\n").unwrap_or(text);
    if last.ends_with(b"\n") {
        last.clear();
    }
    match end.iter().rposition(|&byte| byte == b'\n') {
        Some(at) => *last = text[at + 1..].to_vec(),
        None => last.extend_from_slice(text),
    }
}

/// The place of a character, counted from 0.
fn place(text: &str, position: usize) -> Place {
    let before = text.chars().take(position).collect::<String>();
    let line = before.rsplit('\n').next().unwrap_or_default();
    Place {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
        length: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_kept_over_pieces() {
        let mut last = Vec::new();
        for piece in ["a\nb", "c\n", "ERR", "OR: x\n"] {
            keep_last_line(&mut last, piece.as_bytes());
        }
        assert_eq!(last, b"ERROR: x\n");
        keep_last_line(&mut last, b"(1 row)\n");
        assert_eq!(last, b"(1 row)\n");
    }

    #[test]
    fn places_are_lines_and_columns() {
        let found = place("SELECT\n  é m", 11);
        assert_eq!((found.line, found.column), (2, 5));
    }

    #[test]
    fn names_of_jobs_are_parts_of_a_path() {
        assert_eq!(why_path("a b/é"), "/v1/jobs/a%20b%2F%C3%A9/why");
    }
}
