//! Declarations and settings, and the queries that are made of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use slackwater_connect::custom::{self, Custom};
use slackwater_connect::feed::{self, Feed};
use slackwater_sql::program::{Compiled, compile, declared};
use slackwater_sql::settings::Processes;
use slackwater_sql::statement::{Statement, parse};

use super::error::Error;
use super::results::Results;
use crate::catalog::BuiltIn;
use crate::costs::Learned;
use crate::machine::Machine;
use crate::planner::plan_on;
use crate::run::StateOptions;
use crate::script::Script;
use crate::split::{Piece, split};

/// The name of what a session is given, for messages.
const PART: &str = "sql";

/// The sessions of this process so far: the names of their feeds differ.
static SESSIONS: Mutex<u64> = Mutex::new(0);

/// Declarations and settings.
#[derive(Debug)]
pub struct Session {
    number: u64,
    settings: Vec<(String, String)>,
    state: Option<StateOptions>,
    declared: Vec<Declared>,
}

/// A declaration.
#[derive(Debug)]
struct Declared {
    /// The table or view; `None` for a setting.
    name: Option<String>,
    text: String,
    /// What the process has for it.
    offer: Option<Offered>,
}

/// What the process has for a table: it is offered as long as this is kept.
#[derive(Debug, Clone)]
pub(super) enum Offered {
    /// Rows.
    Rows(Arc<feed::Offer>),
    /// A source or a sink.
    Custom(Arc<custom::Offer>),
}

/// What a session has made of a text.
#[derive(Debug)]
pub enum Took {
    /// There were only declarations and settings.
    Declared,
    /// The text of EXPLAIN statements.
    Explained(String),
    /// A query to run.
    Query(Box<Prepared>),
}

/// A query that can run, any number of times.
#[derive(Debug, Clone)]
pub struct Prepared {
    script: Script,
    settings: Vec<(String, String)>,
    state: Option<StateOptions>,
    name: String,
    result: Option<Shape>,
    /// What the process has for its tables.
    offers: Vec<Offered>,
}

/// The result of a SELECT.
#[derive(Debug, Clone)]
struct Shape {
    schema: SchemaRef,
    changes: slackwater_sql::node::Changes,
    order: slackwater_engine::operator::changelog::rows::RowOrder,
}

impl Session {
    /// A session with these settings, which take precedence over SET. `state` is where its queries store
    /// checkpoints, and resume from.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(
        settings: Vec<(String, String)>,
        state: Option<StateOptions>,
    ) -> Result<Session, Error> {
        let number = {
            let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            *sessions += 1;
            *sessions
        };
        let session = Session {
            number,
            settings,
            state,
            declared: Vec::new(),
        };
        let script = Script::new(PART, "");
        let checked = declared(script.text(), &session.settings, &BuiltIn);
        checked.map_err(|error| Error::of(&script, &error))?;
        Ok(session)
    }

    /// Takes statements: declarations and settings stay, and queries are prepared. If one of the statements
    /// is wrong, the declarations before it stay nevertheless.
    ///
    /// # Errors
    ///
    /// What is wrong, and where.
    pub fn take(&mut self, text: &str) -> Result<Took, Error> {
        let mut queries = Vec::new();
        let (mut explained, mut selects) = (String::new(), 0);
        for piece in split(text).into_iter().filter(|piece| !piece.is_empty()) {
            let placed = parse(&piece.placed);
            let placed =
                placed.map_err(|error| Error::of(&Script::new(PART, &piece.placed), &error))?;
            let Some(placed) = placed.into_iter().next() else {
                continue;
            };
            let name = match placed.statement {
                Statement::Select(_) => {
                    selects += 1;
                    queries.push(piece);
                    continue;
                }
                Statement::Insert { .. } => {
                    queries.push(piece);
                    continue;
                }
                Statement::CreateTable(create) if create.query.is_some() => {
                    return Err(Error::sql(
                        "a session does not run CREATE TABLE … AS",
                        "declare the table with CREATE TABLE, and fill it with INSERT INTO … SELECT",
                    ));
                }
                Statement::CreateMaterializedView(_) => {
                    return Err(Error::sql(
                        "a session does not keep materialized views",
                        "use CREATE VIEW; a server keeps materialized views: slackwater serve",
                    ));
                }
                Statement::Explain(_) => {
                    explained.push_str(&self.explained(&piece)?);
                    continue;
                }
                Statement::Drop {
                    name, if_exists, ..
                } => {
                    self.forget(&name.value, if_exists)?;
                    continue;
                }
                Statement::CreateTable(create) => Some(create.name.value),
                Statement::CreateView { name, .. } => Some(name.value),
                Statement::CreateFunction(create) => Some(create.name.value),
                Statement::Set { .. } | Statement::Reset(_) => None,
            };
            self.declare(name, &piece.placed, None)?;
        }
        if selects > 1 {
            return Err(Error::sql(
                format!("the text has {selects} SELECT statements, and a result has one"),
                "run one after the other",
            ));
        }
        match (queries.is_empty(), explained.is_empty()) {
            (true, true) => Ok(Took::Declared),
            (true, false) => Ok(Took::Explained(explained)),
            (false, _) => Ok(Took::Query(Box::new(self.prepare(&queries)?))),
        }
    }

    /// Declares a table whose rows are pushed; `columns` is what CREATE TABLE has in its parentheses.
    ///
    /// # Errors
    ///
    /// If the name or the columns are wrong.
    pub fn pushed(&mut self, name: &str, columns: &str) -> Result<Arc<Feed>, Error> {
        self.give(name, columns, |schema| Ok(Feed::pushed(schema)))
    }

    /// Declares a table with these rows.
    ///
    /// # Errors
    ///
    /// If the name or the columns are wrong, or the rows don't fit.
    pub fn kept(
        &mut self,
        name: &str,
        columns: &str,
        rows: &[RecordBatch],
    ) -> Result<Arc<Feed>, Error> {
        self.give(name, columns, |schema| Feed::kept(schema, rows))
    }

    /// Declares a table that is a source or a sink of the process; `options` are further ones of its WITH.
    ///
    /// # Errors
    ///
    /// If the name, the columns or the options are wrong.
    pub fn custom(
        &mut self,
        name: &str,
        columns: &str,
        options: &[(String, String)],
        custom: Custom,
    ) -> Result<(), Error> {
        let of_offer = self.offered_name(name);
        let own = [("connector", "custom"), ("name", of_offer.as_str())];
        let options = options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let text = create_table(name, columns, own.into_iter().chain(options));
        let offer = custom::Offer::new(&of_offer, custom);
        self.declare(
            Some(name.to_string()),
            &text,
            Some(Offered::Custom(Arc::new(offer))),
        )
    }

    fn give(
        &mut self,
        name: &str,
        columns: &str,
        feed: impl FnOnce(SchemaRef) -> Result<Feed, String>,
    ) -> Result<Arc<Feed>, Error> {
        let of_feed = self.offered_name(name);
        let own = [("connector", "memory"), ("feed", of_feed.as_str())];
        let text = create_table(name, columns, own.into_iter());
        let script = self.script_with(&[&text]);
        let session = declared(script.text(), &self.settings, &BuiltIn);
        let session = session.map_err(|error| Error::of(&script, &error))?;
        let schema = session.table(name).map(|table| Arc::clone(&table.physical));
        let schema = schema
            .ok_or_else(|| Error::sql(format!("there is no table '{name}'"), "use another name"))?;
        let feed = feed(schema)
            .map_err(|reason| Error::sql(format!("table '{name}': {reason}"), "see the columns"))?;
        let offer = feed::Offer::new(&of_feed, Arc::new(feed));
        let feed = Arc::clone(offer.feed());
        self.declare(
            Some(name.to_string()),
            &text,
            Some(Offered::Rows(Arc::new(offer))),
        )?;
        Ok(feed)
    }

    /// The name under which something is offered for a table: those of sessions differ.
    fn offered_name(&self, table: &str) -> String {
        format!("{}.{table}", self.number)
    }

    /// The names of the tables and views.
    pub fn names(&self) -> Vec<&str> {
        let declared = self.declared.iter();
        declared
            .filter_map(|declared| declared.name.as_deref())
            .collect()
    }

    /// Forgets a table or view.
    ///
    /// # Errors
    ///
    /// If there is none, unless `if_exists`, or something else needs it.
    pub fn forget(&mut self, name: &str, if_exists: bool) -> Result<(), Error> {
        let mut declared = self.declared.iter();
        let place = declared.rposition(|declared| declared.name.as_deref() == Some(name));
        let Some(place) = place else {
            return match if_exists {
                true => Ok(()),
                false => Err(Error::sql(
                    format!("there is no table or view '{name}'"),
                    "DROP TABLE IF EXISTS …",
                )),
            };
        };
        let forgotten = self.declared.remove(place);
        let checked = self.check(&self.script_with(&[]));
        if checked.is_err() {
            self.declared.insert(place, forgotten);
            return Err(Error::sql(
                format!("'{name}' is used by another declaration"),
                "drop the views that use it first",
            ));
        }
        Ok(())
    }

    fn declare(
        &mut self,
        name: Option<String>,
        text: &str,
        offer: Option<Offered>,
    ) -> Result<(), Error> {
        self.check(&self.script_with(&[text]))?;
        self.declared.push(Declared {
            name,
            text: text.to_string(),
            offer,
        });
        Ok(())
    }

    fn check(&self, script: &Script) -> Result<(), Error> {
        let checked = declared(script.text(), &self.settings, &BuiltIn);
        checked.map(drop).map_err(|error| Error::of(script, &error))
    }

    /// The declarations, with further pieces.
    fn script_with(&self, pieces: &[&str]) -> Script {
        let mut script = Script::default();
        let declared = self.declared.iter().map(|declared| declared.text.as_str());
        declared
            .chain(pieces.iter().copied())
            .for_each(|text| script.add(PART, text));
        script
    }

    fn compiled(&self, script: &Script) -> Result<Compiled, Error> {
        let compiled = compile(script.text(), &self.settings, &BuiltIn);
        compiled.map_err(|error| Error::of(script, &error))
    }

    fn explained(&self, piece: &Piece) -> Result<String, Error> {
        let script = self.script_with(&[&piece.placed]);
        let compiled = self.compiled(&script)?;
        let plan = plan_on(&compiled.explain, &Machine::this(), &Learned::load());
        let plan = plan.map_err(|error| Error::of(&script, &error))?;
        Ok(crate::explain::explain(&compiled.explain, &plan))
    }

    fn prepare(&self, queries: &[Piece]) -> Result<Prepared, Error> {
        let pieces = queries.iter().map(|piece| piece.placed.as_str());
        let script = self.script_with(&pieces.collect::<Vec<_>>());
        let compiled = self.compiled(&script)?;
        if compiled.run.settings.processes != Processes::Count(1) {
            return Err(Error::sql(
                "the queries of a session run in its process, and 'processes' is set",
                "leave 'processes' out; 'parallelism' sets the number of threads",
            ));
        }
        let mut sinks = compiled.run.sinks().map(|(_, sink)| sink);
        let select = sinks.find(|sink| sink.table.is_none());
        let read = compiled.run.sources().map(|(_, source)| &source.table.name);
        let written = compiled.run.sinks();
        let written = written.filter_map(|(_, sink)| Some(&sink.table.as_ref()?.name));
        let used = read.chain(written).collect::<BTreeSet<&String>>();
        let offers = self.declared.iter().filter(|declared| {
            let name = declared.name.as_ref();
            name.is_some_and(|name| used.contains(name))
        });
        Ok(Prepared {
            offers: offers
                .filter_map(|declared| declared.offer.clone())
                .collect(),
            settings: self.settings.clone(),
            state: self.state.clone(),
            name: format!("session-{}", self.number),
            result: select.map(|select| Shape {
                schema: Arc::clone(&select.schema),
                changes: select.changes.clone(),
                order: select.order.clone(),
            }),
            script,
        })
    }
}

/// The text that declares a table.
fn create_table<'a>(
    name: &str,
    columns: &str,
    options: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let quoted = |text: &str| text.replace('\'', "''");
    let options = options.map(|(name, value)| format!("'{}' = '{}'", quoted(name), quoted(value)));
    let options = options.collect::<Vec<_>>().join(", ");
    let name = name.replace('"', "\"\"");
    format!("CREATE TABLE \"{name}\" ({columns})\nWITH ({options})")
}

impl Prepared {
    /// The columns of its SELECT; `None` if it has none.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.result.as_ref().map(|result| &result.schema)
    }

    /// Whether rows of its SELECT change earlier ones.
    pub fn changes(&self) -> bool {
        let result = self.result.as_ref();
        result.is_some_and(|result| result.changes != slackwater_sql::node::Changes::None)
    }

    /// A queue for the rows of its SELECT.
    pub(super) fn results(&self) -> Option<Arc<Results>> {
        let Shape {
            schema,
            changes,
            order,
        } = self.result.clone()?;
        Some(Arc::new(Results::new(schema, changes, order)))
    }

    /// What the process has for its tables.
    pub(super) fn offers(&self) -> &[Offered] {
        &self.offers
    }

    pub(super) fn script(&self) -> &Script {
        &self.script
    }

    pub(super) fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    pub(super) fn state(&self) -> Option<&StateOptions> {
        self.state.as_ref()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}
