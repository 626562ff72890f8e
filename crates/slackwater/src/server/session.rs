//! A conversation in SQL with one client.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_serve::backend::{
    Answer, Cancelled, Description, Kind as Wrong, Parameter, Refusal, Rows, Session, Statement,
};
use slackwater_sql::settings::Settings;
use slackwater_sql::statement::server::{JOB_NAME, Listing, Named, ServerStatement};
use slackwater_sql::statement::{self, Placed, Statement as Sql, server};

use super::Server;
use super::catalog::Kind;
use super::declared::{New, refusal};
use super::listings;
use super::statements::{Done, check};
use super::subscription;
use super::views_rows::{Ends, Reading, ServerRows, refused_read};
use crate::reads::Limits;
use crate::script::Script;
use crate::split::split;

/// A conversation. Its settings are its own.
pub struct Conversation {
    server: Arc<Server>,
    /// What SET has set, in that order.
    settings: Vec<(String, String)>,
    /// The name of the next job of an INSERT.
    job_name: Option<String>,
    reading: Mutex<Reading>,
}

impl Conversation {
    /// A conversation with the settings of new ones.
    pub fn new(server: &Arc<Server>) -> Conversation {
        // Without them, each statement says what is wrong with the catalog.
        let settings = server.declared().catalog.settings().unwrap_or_default();
        Conversation {
            server: Arc::clone(server),
            settings,
            job_name: None,
            reading: Mutex::default(),
        }
    }
}

impl Session for Conversation {
    fn parse(&self, text: &str) -> Result<Vec<Statement>, Refusal> {
        if self.is_prepared(text) {
            return Ok(vec![Statement {
                text: text.into(),
                begin: 0,
            }]);
        }
        let pieces = split(text).into_iter().filter(|piece| !piece.is_empty());
        let statements = pieces.map(|piece| {
            // What stands before a piece is blank in it.
            let own = piece.placed.trim_start();
            Statement {
                begin: piece.placed.chars().count() - own.chars().count(),
                text: own.into(),
            }
        });
        let statements = statements.collect::<Vec<_>>();
        for statement in &statements {
            read(&statement.text).map_err(|refusal| refusal.moved(statement.begin))?;
        }
        Ok(statements)
    }

    fn describe(&self, statement: &Statement) -> Result<Description, Refusal> {
        let text = &statement.text;
        let columns = match read(text)? {
            Read::Server(statement) => self.columns(&statement)?,
            Read::Sql(placed) => match &placed[..] {
                [
                    Placed {
                        statement: Sql::Select(_),
                        ..
                    },
                ] => return self.describe_read(text),
                [
                    Placed {
                        statement: Sql::Explain(_),
                        ..
                    },
                ] => Some(listings::strings(&[EXPLAINED])),
                _ => None,
            },
        };
        Ok(Description {
            parameters: Vec::new(),
            columns,
        })
    }

    fn run(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal> {
        let text = &statement.text;
        if self.is_prepared(text) {
            return self.read(text, parameters, cancelled);
        }
        match read(text)? {
            Read::Server(statement) => self.run_server_statement(statement, text, cancelled),
            Read::Sql(placed) => self.run_sql(placed, text, parameters, cancelled),
        }
    }
}

/// The column of EXPLAIN.
const EXPLAINED: &str = "plan";

/// A statement.
enum Read {
    Server(ServerStatement),
    /// One statement, or those of a statement set.
    Sql(Vec<Placed>),
}

fn read(text: &str) -> Result<Read, Refusal> {
    let refused = |error| refusal(&Script::new("", text), &error, text);
    if let Some(statement) = server::parse(text).map_err(refused)? {
        return Ok(Read::Server(statement));
    }
    Ok(Read::Sql(statement::parse(text).map_err(refused)?))
}

fn done(tag: &str, done: Done) -> Answer {
    Answer::Done {
        tag: tag.to_string(),
        notices: done.notices,
    }
}

fn one(batch: RecordBatch) -> Answer {
    Answer::Rows(Rows {
        schema: batch.schema(),
        batches: Box::new(std::iter::once(Ok(batch))),
        are_changes: false,
    })
}

impl Conversation {
    /// The columns that a statement returns.
    fn columns(&self, statement: &ServerStatement) -> Result<Option<SchemaRef>, Refusal> {
        Ok(Some(match statement {
            ServerStatement::Show(listing) => listings::columns(*listing),
            ServerStatement::ShowCreate(_) => listings::strings(&["statement"]),
            ServerStatement::ShowSetting(key) => listings::strings(&[key]),
            ServerStatement::Describe(_) => listings::described(),
            ServerStatement::Subscribe(name) => {
                subscription::columns(&self.server.view(&name.value)?.schema())
            }
            ServerStatement::Stop(_)
            | ServerStatement::Start(_)
            | ServerStatement::Drop(_)
            | ServerStatement::Alter(_)
            | ServerStatement::AlterSystem(_) => return Ok(None),
        }))
    }

    fn run_server_statement(
        &mut self,
        statement: ServerStatement,
        text: &str,
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal> {
        let server = &self.server;
        Ok(match statement {
            ServerStatement::Show(Listing::Settings) => one(listings::settings(&self.settings)),
            ServerStatement::Show(Listing::Functions) => {
                one(listings::functions(server.declared().known.values()))
            }
            ServerStatement::Show(listing) => {
                let known = server.declared().known.clone();
                let state = |name: &str| server.job(name).ok().map(|job| job.state());
                one(listings::declared(listing, known.values(), state))
            }
            ServerStatement::ShowCreate(name) => {
                let text = server.known(&name.value)?.object.text;
                let schema = listings::strings(&["statement"]);
                one(listings::rows(&schema, &[vec![Some(text)]]))
            }
            ServerStatement::ShowSetting(key) => {
                let settings = listings::settings(&self.settings);
                let found = listings::find(&settings, &key).ok_or_else(|| {
                    let message = format!("there is no setting '{key}'");
                    Refusal::new(Wrong::Undefined, message).hint("SHOW SETTINGS lists them")
                })?;
                one(listings::rows(
                    &listings::strings(&[&key]),
                    &[vec![Some(found)]],
                ))
            }
            ServerStatement::Describe(name) => {
                one(listings::describe(&server.known(&name.value)?.columns))
            }
            ServerStatement::Stop(name) => done("STOP JOB", server.stop_job(&name.value)?),
            ServerStatement::Start(name) => done("START JOB", server.start_job(&name.value)?),
            ServerStatement::Drop(mut drop) => {
                if drop.kind == Named::Function {
                    // Calls are not sensitive to the case, and functions are kept in lower case.
                    let names = drop.names.iter_mut();
                    names.for_each(|name| name.value = name.value.to_lowercase());
                }
                let tag = format!("DROP {}", drop.kind.words().to_uppercase());
                done(&tag, server.drop_all(&drop)?)
            }
            ServerStatement::Alter(alter) => {
                let tag = format!("ALTER {}", alter.kind.words().to_uppercase());
                done(&tag, server.alter(&alter, text)?)
            }
            ServerStatement::AlterSystem(change) => {
                done("ALTER SYSTEM", server.alter_system(&change)?)
            }
            ServerStatement::Subscribe(name) => server.subscribe(&name.value, cancelled)?,
        })
    }

    fn run_sql(
        &mut self,
        mut placed: Vec<Placed>,
        text: &str,
        parameters: &[Parameter],
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal> {
        if placed.len() > 1 {
            return self.statement_set(&placed, text);
        }
        let Some(Placed {
            statement, tokens, ..
        }) = placed.pop()
        else {
            return Ok(done("", Done::default()));
        };
        if !parameters.is_empty() && !matches!(statement, Sql::Select(_)) {
            let message = "parameters are only possible in SELECT";
            return Err(Refusal::new(Wrong::Syntax, message));
        }
        let settings = self.settings.clone();
        let create = |name: &str, kind, if_not_exists| {
            let new = New {
                name,
                kind,
                text: text.trim_end().trim_end_matches(';').trim_end(),
                settings: &settings,
            };
            self.server.create(&new, if_not_exists)
        };
        let is_sink = statement::is_sink(&tokens);
        Ok(match statement {
            Sql::CreateTable(table) if is_sink => {
                let made = create(&table.name.value, Kind::Sink, table.if_not_exists)?;
                done("CREATE SINK", made)
            }
            Sql::CreateTable(table) if table.query.is_some() => {
                self.create_from_query(&table.name.value, table.if_not_exists, text)?
            }
            Sql::CreateTable(table) => {
                let made = create(&table.name.value, Kind::Table, table.if_not_exists)?;
                done("CREATE TABLE", made)
            }
            Sql::CreateView {
                name,
                if_not_exists,
                ..
            } => done(
                "CREATE VIEW",
                create(&name.value, Kind::View, if_not_exists)?,
            ),
            Sql::CreateMaterializedView(view) => {
                let made = create(&view.name.value, Kind::MaterializedView, view.if_not_exists)?;
                done("CREATE MATERIALIZED VIEW", made)
            }
            Sql::Insert { table, .. } => {
                let name = self.name_of_insert(&table.value);
                let mut made = create(&name, Kind::Insert, false)?;
                self.job_name = None;
                made.notices
                    .push(format!("job '{name}' runs; STOP JOB {name} stops it"));
                done("INSERT 0 0", made)
            }
            Sql::Select(_) => return self.read(text, parameters, cancelled),
            Sql::Explain(inner) => {
                let read = match *inner {
                    Sql::Select(_) => self.read(text, parameters, cancelled),
                    _ => return self.server.explain(&inner, text, &settings),
                };
                return match read {
                    // A query over tables, which a job would run.
                    Err(refusal) if refusal.kind == Wrong::Undefined => {
                        self.server.explain(&inner, text, &settings)
                    }
                    read => read,
                };
            }
            Sql::CreateFunction(function) => {
                let name = function.name.value.to_lowercase();
                self.server
                    .check_function(&name, &function, text, &settings)?;
                let made = create(&name, Kind::Function, function.if_not_exists)?;
                done("CREATE FUNCTION", made)
            }
            Sql::Set { key, value } => {
                self.set(key, value)?;
                done("SET", Done::default())
            }
            Sql::Reset(key) => {
                match key {
                    Some(key) => self.settings.retain(|(set, _)| *set != key),
                    None => self.settings.clear(),
                }
                done("RESET", Done::default())
            }
            // Read before, as a statement of a server.
            Sql::Drop { .. } => {
                return Err(Refusal::new(Wrong::Internal, "DROP was not recognized"));
            }
        })
    }

    /// Whether a statement is a SELECT that this session has read before: it is not parsed again.
    fn is_prepared(&self, text: &str) -> bool {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.has(&self.server, text)
    }

    /// The columns and parameters of a SELECT.
    fn describe_read(&self, text: &str) -> Result<Description, Refusal> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = reading.renewed(&self.server)?;
        let prepared = reading.prepared(&self.server, text)?;
        Ok(Description {
            parameters: prepared.parameters().to_vec(),
            columns: Some(reading.reads.columns(&prepared)),
        })
    }

    /// The rows of a SELECT.
    fn read(
        &self,
        text: &str,
        parameters: &[Parameter],
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = reading.renewed(&self.server)?;
        let prepared = reading.prepared(&self.server, text)?;
        let watched = cancelled.clone();
        let limits = Limits::default().with_cancel(move || watched.is_set());
        let rows = ServerRows {
            server: Arc::clone(&self.server),
            ends: Ends::when(cancelled),
        };
        let read = reading.reads.run(&prepared, parameters, &rows, &limits);
        let read = read.map_err(|failed| refused_read(&failed, text))?;
        let text = text.to_string();
        Ok(Answer::Rows(Rows {
            schema: read.schema().clone(),
            batches: Box::new(
                read.map(move |batch| batch.map_err(|failed| refused_read(&failed, &text))),
            ),
            are_changes: false,
        }))
    }

    /// `CREATE TABLE … AS query`: a table with the query's columns, and the job that writes it.
    fn create_from_query(
        &mut self,
        name: &str,
        if_not_exists: bool,
        text: &str,
    ) -> Result<Answer, Refusal> {
        if if_not_exists && self.server.known(name).is_ok() {
            let notices = vec![format!("there is already '{name}'")];
            return Ok(done("CREATE TABLE", Done { notices }));
        }
        let (declared, query) = self.server.table_of_query(name, text, &self.settings)?;
        let new = |name, kind, text| New {
            name,
            kind,
            text,
            settings: &self.settings,
        };
        let mut made = self
            .server
            .create(&new(name, Kind::Table, &declared), false)?;
        let job = self.name_of_insert(name);
        match self.server.create(&new(&job, Kind::Insert, &query), false) {
            Ok(started) => made.notices.extend(started.notices),
            Err(refusal) => {
                self.server.forget_one(name)?;
                return Err(Refusal {
                    position: None,
                    ..refusal
                });
            }
        }
        self.job_name = None;
        made.notices
            .push(format!("job '{job}' runs; STOP JOB {job} stops it"));
        Ok(done("CREATE TABLE", made))
    }

    /// Several INSERTs that are one job, so that they share what they have in common.
    fn statement_set(&mut self, placed: &[Placed], text: &str) -> Result<Answer, Refusal> {
        let tables = placed.iter().map(|placed| match &placed.statement {
            Sql::Insert { table, .. } => Ok(table.value.as_str()),
            _ => {
                let message =
                    "several statements at once are only possible in a statement set of INSERTs";
                Err(Refusal::new(Wrong::Syntax, message).hint("send one statement at a time"))
            }
        });
        let tables = tables.collect::<Result<Vec<&str>, Refusal>>()?;
        let name = self.name_of_insert(tables[0]);
        let new = New {
            name: &name,
            kind: Kind::Insert,
            text,
            settings: &self.settings,
        };
        let mut made = self.server.create(&new, false)?;
        self.job_name = None;
        made.notices
            .push(format!("job '{name}' runs; STOP JOB {name} stops it"));
        Ok(done("INSERT 0 0", made))
    }

    fn name_of_insert(&self, table: &str) -> String {
        match &self.job_name {
            Some(name) => name.clone(),
            None => self.server.free_name(&format!("insert_into_{table}")),
        }
    }

    fn set(&mut self, key: String, value: String) -> Result<(), Refusal> {
        if key == JOB_NAME {
            self.job_name = Some(value);
            return Ok(());
        }
        check(&mut Settings::default(), &key, &value)?;
        self.settings.retain(|(set, _)| *set != key);
        self.settings.push((key, value));
        Ok(())
    }
}
