//! The materialized views of a run, for whoever runs it in this process.
//!
//! ```text
//! reader ─ Views::cut, Views::subscribe ─► engine's ViewCuts ─ asks ─► RunEvent::Read ─► Watch
//!    ▲                                            ▲                                        │ a barrier
//!    └──────── rows at a cut, changes ────────────┴──── instances of the view ◄────────────┘
//! ```
//!
//! Readers run on threads of their own. They wait for the query, and the query never waits for them.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use slackwater_engine::operator::changelog::view::{NoCut, SUBSCRIBERS_MAX, ViewCuts};
use slackwater_sql::node::MaterializedView;
use slackwater_sql::program::Program;

pub use slackwater_engine::operator::changelog::view::{Changes, Cut, Ending, Next};

/// The materialized views of a run. Give it to the run
/// ([`RunOptions::views`](crate::run::RunOptions::views)), and read from any thread.
#[derive(Default)]
pub struct Views {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
}

/// Makes the run send a barrier.
type Ask = Arc<dyn Fn() + Send + Sync>;

struct Open {
    views: Vec<MaterializedView>,
    ask: Ask,
    /// Why the views can't be read.
    refused: Option<String>,
}

/// A view, as its readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The name.
    pub name: String,
    /// The node of the query graph that keeps the rows.
    pub node: usize,
    /// The columns.
    pub schema: SchemaRef,
    /// The columns by which a row replaces another; `None` if the view keeps every row.
    pub key: Option<Vec<usize>>,
}

/// Why a view can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRead {
    /// There is no such view.
    Unknown(String),
    /// The query runs in a way in which its views can't be read.
    Refused(String),
    /// The view has no rows to read, because the query has failed or was never started.
    Over(String),
    /// The query did not come to the rows in time.
    TimedOut(String, Duration),
    /// There are too many subscribers.
    TooMany,
}

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRead::Unknown(name) => write!(f, "there is no materialized view '{name}'"),
            NotRead::Refused(reason) => f.write_str(reason),
            NotRead::Over(name) => write!(
                f,
                "materialized view '{name}' can't be read, because its query does not run"
            ),
            NotRead::TimedOut(name, limit) => write!(
                f,
                "materialized view '{name}' was not ready to be read within {} ms: its query is behind, or \
                resumes after a failure",
                limit.as_millis()
            ),
            NotRead::TooMany => write!(
                f,
                "a query has at most {SUBSCRIBERS_MAX} subscribers: end one of them first"
            ),
        }
    }
}

impl std::error::Error for NotRead {}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.described().into_iter().map(|view| view.name);
        f.debug_list().entries(names).finish()
    }
}

impl Views {
    /// The views of a program that is about to run in so many processes; `ask` makes the run send a barrier.
    pub(crate) fn open(
        &self,
        program: &Program,
        processes: usize,
        ask: impl Fn() + Send + Sync + 'static,
    ) {
        let mut sources = program.sources();
        let unit = sources.find_map(|(_, source)| {
            let unit = source.table.options.get("unit_of_work")?;
            Some((source.table.name.clone(), unit.clone()))
        });
        let refused = match unit {
            _ if processes > 1 => Some(format!(
                "materialized views can't be read from a query that runs in {processes} worker processes: \
                use SET 'processes' = '1'"
            )),
            Some((table, unit)) => Some(format!(
                "materialized views can't be read from a query with 'unit_of_work' = '{unit}' of table \
                '{table}': remove the option"
            )),
            None => None,
        };
        self.state().open = Some(Open {
            views: program.views.clone(),
            ask: Arc::new(ask),
            refused,
        });
        self.opened.notify_all();
    }

    /// Waits until the program is compiled, so that its views are known; returns whether it is.
    pub fn wait_until_known(&self, limit: Duration) -> bool {
        let is_unknown = |state: &mut State| state.open.is_none();
        let waited = self
            .opened
            .wait_timeout_while(self.state(), limit, is_unknown);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.open.is_some()
    }

    /// Why the views can't be read, if so.
    pub fn refused(&self) -> Option<String> {
        let state = self.state();
        state.open.as_ref().and_then(|open| open.refused.clone())
    }

    /// The views, in the order of their statements; none before the program is compiled.
    pub fn described(&self) -> Vec<Described> {
        let state = self.state();
        let views = state.open.iter().flat_map(|open| &open.views);
        let views = views.map(|view| Described {
            name: view.name.clone(),
            node: view.node,
            schema: view.schema.clone(),
            key: view.key.clone(),
        });
        views.collect()
    }

    /// The rows of a view at one cut: what a prefix of each partition of the sources has made, and never half
    /// of an update. The cut is at most `max_age` older than this call; readers within that time share it.
    ///
    /// # Errors
    ///
    /// If there is no such view, or no cut within `limit`.
    pub fn cut(&self, name: &str, max_age: Duration, limit: Duration) -> Result<Arc<Cut>, NotRead> {
        let mut cuts = self.cuts(&[name], max_age, limit)?;
        Ok(cuts.remove(0))
    }

    /// The rows of several views at one cut, otherwise as [`Views::cut`].
    ///
    /// # Errors
    ///
    /// If one of the views does not exist, or there is no cut within `limit`.
    pub fn cuts(
        &self,
        names: &[&str],
        max_age: Duration,
        limit: Duration,
    ) -> Result<Vec<Arc<Cut>>, NotRead> {
        let found = names.iter().map(|name| self.find(name));
        let found = found.collect::<Result<Vec<_>, NotRead>>()?;
        let Some((_, ask)) = found.first() else {
            return Ok(Vec::new());
        };
        let views = found.iter().map(|(view, _)| view).collect::<Vec<_>>();
        let until = Instant::now() + limit;
        let cuts = ViewCuts::together(&views, max_age, until, &**ask);
        cuts.map_err(|none| not_read(none, names[0], limit))
    }

    /// The rows of a view at one cut, and then exactly the changes after it. A subscriber that does not take
    /// them in time is cut off ([`Ending::Overrun`]).
    ///
    /// # Errors
    ///
    /// If there is no such view, no cut within `limit`, or there are too many subscribers.
    pub fn subscribe(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<(Arc<Cut>, Arc<Changes>), NotRead> {
        let (cuts, ask) = self.find(name)?;
        let begun = cuts.subscribe(Instant::now() + limit, &*ask);
        begun.map_err(|none| not_read(none, name, limit))
    }

    fn find(&self, name: &str) -> Result<(ViewCuts, Ask), NotRead> {
        let state = self.state();
        let unknown = || NotRead::Unknown(name.to_string());
        let open = state.open.as_ref().ok_or_else(unknown)?;
        let view = open.views.iter().find(|view| view.name == name);
        let view = view.ok_or_else(unknown)?;
        match &open.refused {
            Some(reason) => Err(NotRead::Refused(reason.clone())),
            None => Ok((view.cuts.clone(), Arc::clone(&open.ask))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_read(none: NoCut, name: &str, limit: Duration) -> NotRead {
    match none {
        NoCut::TimedOut => NotRead::TimedOut(name.to_string(), limit),
        NoCut::Over => NotRead::Over(name.to_string()),
        NoCut::TooMany => NotRead::TooMany,
    }
}
