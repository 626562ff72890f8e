//! Extended queries: statements are prepared, get values, and are run, in messages of their own.

use std::sync::Arc;

use crate::backend::{Cancelled, Description, Parameter, Session};

use super::command::Command;
use super::conversation::{Asked, Conversation, Fault, Opened, moved};
use super::local;
use super::message::{self, Frontend, Report, Target, Transaction};
use super::parameters;
use super::qualified::unqualified;
use super::rows::{Columns, Form, columns};
use super::statements::{Portal, Prepared, State};
use super::types::PgType;
use super::wire::Wire;
use super::words;

impl Conversation {
    /// Answers a message; false if the connection ends.
    pub async fn answer(&mut self, wire: &mut Wire, frontend: Frontend<'_>) -> Result<bool, Fault> {
        let is_sync = matches!(
            frontend,
            Frontend::Sync | Frontend::Query(_) | Frontend::Terminate
        );
        if self.skips && !is_sync {
            return Ok(true);
        }
        self.skips = false;
        self.begin();
        let done = match frontend {
            Frontend::Query(text) => self.simple(wire, text).await,
            Frontend::Terminate => return Ok(false),
            Frontend::Sync => {
                if self.transaction == Transaction::None {
                    self.portals.end_transaction();
                }
                message::ready(&mut wire.out, self.transaction);
                wire.send().await.map_err(Fault::from)
            }
            Frontend::Flush => wire.send().await.map_err(Fault::from),
            Frontend::Copy => Ok(()),
            Frontend::Password(_) => {
                Err(Report::fatal("08P01", "a password was not asked for").into())
            }
            Frontend::Parse { name, text, types } => self.parse(wire, name, text, types).await,
            Frontend::Bind {
                portal,
                statement,
                formats,
                values,
                results,
            } => self.bind(wire, portal, statement, (&formats, &values), results),
            Frontend::Describe(target) => self.describe(wire, target),
            Frontend::Close(target) => {
                match target {
                    Target::Statement(name) => self.statements.remove(name),
                    Target::Portal(name) => self.portals.close(name),
                }
                message::signal(&mut wire.out, message::CLOSED);
                Ok(())
            }
            Frontend::Execute { portal, rows_max } => {
                let rows_max = usize::try_from(rows_max).ok().filter(|max| *max > 0);
                match self.portals.take(portal) {
                    Ok(taken) => self.execute(wire, portal, taken, rows_max).await,
                    Err(report) => Err(report.into()),
                }
            }
        };
        self.end();
        match done {
            Ok(()) => wire.send_if_full().await?,
            Err(Fault::Report(report)) => {
                self.fail(wire, &report);
                wire.send().await?;
                self.skips = true;
                return Ok(!report.is_fatal());
            }
            Err(Fault::Gone) => return Err(Fault::Gone),
        }
        Ok(true)
    }

    async fn parse(
        &mut self,
        wire: &mut Wire,
        name: &str,
        text: &str,
        given: Vec<u32>,
    ) -> Result<(), Fault> {
        if words::statements(text).len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Report::error("42601", message).into());
        }
        let command = self.recognize(text);
        let ends = matches!(
            command,
            Command::Commit | Command::Rollback | Command::RollbackToSavepoint
        );
        if self.transaction == Transaction::Failed && !ends {
            let message =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Report::error("25P02", message).into());
        }
        let (types, found) = match &command {
            Command::Other if self.set.takes(text) => (vec![], None),
            Command::Other => self.described(wire, text, 0).await?,
            Command::Catalog => self.described_by_catalog(wire, text).await?,
            Command::Declare { query, .. } => {
                let (inner, before) = (&text[query.clone()], text[..query.start].chars().count());
                let (types, _) = match self.recognize(inner) {
                    Command::Catalog => self.described_by_catalog(wire, inner).await?,
                    _ => self.described(wire, inner, before).await?,
                };
                (types, None)
            }
            Command::Show(name) => (vec![], Some(local::show_columns(name))),
            _ => (vec![], None),
        };
        // What the client says of its values counts more.
        let both = (0..types.len().max(given.len())).map(|at| {
            let said = given.get(at).copied().filter(|oid| *oid != 0);
            said.or_else(|| types.get(at).copied()).unwrap_or_default()
        });
        let prepared = Prepared {
            types: both.collect(),
            columns: found,
            text: text.to_owned(),
            command,
        };
        self.statements.add(name, prepared)?;
        message::signal(&mut wire.out, message::PARSED);
        Ok(())
    }

    /// What the session knows of a statement: the types of its parameters, and its columns.
    async fn described(
        &mut self,
        wire: &mut Wire,
        text: &str,
        before: usize,
    ) -> Result<(Vec<u32>, Option<Columns>), Fault> {
        let text = unqualified(text).into_owned();
        let describe = move |session: &mut dyn Session| {
            let nothing = Description {
                parameters: vec![],
                columns: None,
            };
            session
                .parse(&text)?
                .first()
                .map_or(Ok(nothing), |statement| {
                    let described = session.describe(statement);
                    described.map_err(|refusal| moved(refusal, statement.begin))
                })
        };
        let described = self.ask(wire, &Cancelled::default(), describe).await?;
        let described = described.map_err(|refusal| Report::of(refusal, before))?;
        let types = described.parameters.iter().map(|kind| PgType::of(kind).oid);
        Ok((
            types.collect(),
            described.columns.map(|schema| columns(&schema)),
        ))
    }

    async fn described_by_catalog(
        &mut self,
        wire: &mut Wire,
        text: &str,
    ) -> Result<(Vec<u32>, Option<Columns>), Fault> {
        let (shared, text) = (Arc::clone(&self.shared), text.to_owned());
        let facts = self.facts.with(&self.settings);
        let describe = move || shared.catalog.describe(&text, facts);
        let (parameters, schema) = self
            .blocking(wire, &Cancelled::default(), describe)
            .await??;
        Ok((parameters, Some(columns(&schema))))
    }

    fn bind(
        &mut self,
        wire: &mut Wire,
        portal: &str,
        statement: &str,
        (formats, values): (&[i16], &[Option<&[u8]>]),
        results: Vec<i16>,
    ) -> Result<(), Fault> {
        let prepared = self.statements.get(statement)?;
        if values.len() != prepared.types.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                prepared.types.len()
            );
            return Err(Report::error("08P01", message).into());
        }
        if formats.len() > 1 && formats.len() != values.len() {
            let message = "bind message has another number of formats than of parameters";
            return Err(Report::error("08P01", message).into());
        }
        let format = |at: usize| match formats {
            [] => 0,
            [all] => *all,
            each => each[at],
        };
        let read = |(at, value): (usize, &Option<&[u8]>)| {
            parameters::read(*value, format(at), prepared.types[at])
        };
        let parameters: Result<Vec<_>, Report> = values.iter().enumerate().map(read).collect();
        let parameters = parameters?;
        let size = |value: &Parameter| size_of_val(value) + value.as_ref().map_or(0, String::len);
        let bound = Portal {
            prepared,
            bytes: portal.len() + parameters.iter().map(size).sum::<usize>(),
            results,
            state: State::New(parameters),
        };
        self.portals.bind(portal, bound)?;
        message::signal(&mut wire.out, message::BOUND);
        Ok(())
    }

    fn describe(&mut self, wire: &mut Wire, target: Target<'_>) -> Result<(), Fault> {
        let (prepared, portal) = match target {
            Target::Statement(name) => {
                let prepared = self.statements.get(name)?;
                message::parameters(&mut wire.out, &prepared.types);
                (prepared, None)
            }
            // A cursor of DECLARE is described like a portal.
            Target::Portal(name) => match self.portals.get(name) {
                Ok(portal) => (Arc::clone(&portal.prepared), Some(portal)),
                Err(report) => {
                    let columns = self.portals.cursor(name).map_err(|_| report)?;
                    message::columns(&mut wire.out, &columns, |_| 0);
                    return Ok(());
                }
            },
        };
        let columns = match &prepared.command {
            Command::Fetch(fetch) if !fetch.moves => Some(self.portals.cursor(&fetch.cursor)?),
            _ => prepared.columns.clone(),
        };
        match columns {
            Some(columns) => {
                let formats = match portal {
                    Some(portal) => portal.formats(columns.len())?,
                    None => vec![0; columns.len()],
                };
                message::columns(&mut wire.out, &columns, |at| formats[at]);
            }
            None => message::signal(&mut wire.out, message::NO_DATA),
        }
        Ok(())
    }

    /// Sends rows of a portal, and says whether there are more.
    pub async fn execute(
        &mut self,
        wire: &mut Wire,
        name: &str,
        mut portal: Portal,
        rows_max: Option<usize>,
    ) -> Result<(), Fault> {
        if let State::New(parameters) = &mut portal.state {
            let asked = Asked {
                text: &portal.prepared.text,
                before: 0,
                parameters: std::mem::take(parameters),
            };
            match self.open(wire, &portal.prepared.command, asked).await? {
                Opened::Rows(running) => portal.state = State::Open(running),
                Opened::Fetch(fetch) => {
                    let count = self.portals.cursor(&fetch.cursor)?.len();
                    let form = Form::Rows(portal.formats(count)?);
                    return self.fetch(wire, &fetch, form).await;
                }
                other => return self.finish(wire, other).await,
            }
        }
        let State::Open(running) = std::mem::replace(&mut portal.state, State::Done) else {
            message::complete(&mut wire.out, "SELECT 0");
            return Ok(());
        };
        let form = Form::Rows(portal.formats(running.columns.len())?);
        let (running, rows, ended) = self.pump(wire, running, form, rows_max).await?;
        if ended {
            message::complete(&mut wire.out, &format!("SELECT {rows}"));
        } else {
            message::signal(&mut wire.out, message::SUSPENDED);
            portal.state = State::Open(running);
        }
        self.portals.put(name, portal)?;
        Ok(())
    }
}
