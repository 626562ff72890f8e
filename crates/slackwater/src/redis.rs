//! The materialized views of a run over Redis' protocol, for `SET 'serve'`.
//!
//! Each view has a thread that subscribes to it, and hands its changes to the door. It sleeps while nothing
//! changes, and ends with the run. A run that stands by has no such threads: it hands over what checkpoints
//! have added, of all views at once, so what is read there is one cut.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slackwater_engine::chunk::RowKind;
use slackwater_engine::operator::changelog::view::View as ViewRows;
use slackwater_serve::redis::{Change, Door, Feed, Options, RoleAnswer, SplitCores, TableSchema};

use crate::address::resolve;
use crate::standby::{Added, Readers, Serving};
use crate::views::{Changes, Described, Ending, Next, NotRead, Views};

/// The environment variable of the password, which is the token of the other doors.
const TOKEN: &str = "SLACKWATER_TOKEN";

/// What an address is to look like.
const ADDRESS: &str = "host:port, such as redis://127.0.0.1:6380";

/// How long a view may take to be read for the first time, before it is tried again: longer than a restart.
const BEGIN_PATIENCE: Duration = Duration::from_secs(60);

/// How long nothing may change before the thread looks again: it is woken by everything that counts.
const SILENCE: Duration = Duration::from_secs(365 * 86_400);

/// How many rows are written at once, of those that are there at first.
const ROWS: usize = 8192;

/// Views that are served. Dropping it closes the door.
pub struct Served {
    door: Option<Door>,
    feed: Feed,
    views: Vec<Described>,
    over: Arc<Over>,
    threads: Vec<JoinHandle<()>>,
}

/// Whether it is over, and what threads wait for.
#[derive(Default)]
struct Over {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_over: bool,
    waits_for: Vec<Arc<Changes>>,
}

impl Over {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a thread is about to wait for. Returns false if it is over.
    fn waits(&self, changes: &Arc<Changes>) -> bool {
        let mut state = self.state();
        state.waits_for.push(Arc::clone(changes));
        !state.is_over
    }

    fn has_waited(&self, changes: &Arc<Changes>) {
        let mut state = self.state();
        state.waits_for.retain(|other| !Arc::ptr_eq(other, changes));
    }
}

/// Why views are not served.
pub struct NotServed {
    /// The reason, and what to do.
    pub reason: String,
    /// Whether another program has the address.
    pub is_taken: bool,
}

impl From<String> for NotServed {
    fn from(reason: String) -> NotServed {
        NotServed {
            reason,
            is_taken: false,
        }
    }
}

impl Served {
    /// Opens the door at `place`, for the views that have a key; `serving` is what clients are told of the
    /// run. The rows are those of [`Readers::add`] until [`Served::lead`].
    ///
    /// # Errors
    ///
    /// When the address can't be used, others can reach it and there is no password, or no view has a key.
    pub fn open(
        place: &str,
        views: &Arc<Views>,
        serving: &Arc<Serving>,
        cores: SplitCores,
    ) -> Result<Served, NotServed> {
        let option = "'serve'";
        let address = resolve(option, place, ADDRESS)?;
        let password = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        if password.is_none() && !address.ip().to_canonical().is_loopback() {
            let reason = format!(
                "{option} {place}: other machines could read the views\n  = set {TOKEN}, which is then the \
                 password, or use 127.0.0.1"
            );
            return Err(reason.into());
        }
        if let Some(reason) = views.refused() {
            return Err(format!("{option}: {reason}").into());
        }
        let views = served(views)?;
        let schemas = views.iter().map(schema_of).collect();
        let told = Arc::clone(serving);
        let options = Options {
            address,
            password,
            role: Box::new(move |applied| role(&told, applied)),
            cores,
        };
        let (door, feed) = Door::open(options, schemas).map_err(|error| NotServed {
            reason: not_opened(option, place, &error),
            is_taken: error.kind() == ErrorKind::AddrInUse,
        })?;
        say(place, address, door.address());
        serving.note(|known| known.own = Some(door.address()));
        Ok(Served {
            door: Some(door),
            feed,
            views,
            over: Arc::default(),
            threads: Vec::new(),
        })
    }

    /// From now on the rows are those of the query, which this run runs.
    ///
    /// # Errors
    ///
    /// If no thread is left.
    pub fn lead(&mut self, views: &Arc<Views>) -> Result<(), String> {
        for (table, described) in self.views.iter().enumerate() {
            let (views, over) = (Arc::clone(views), Arc::clone(&self.over));
            let view = View {
                name: described.name.clone(),
                schema: schema_of(described),
                table,
                feed: self.feed.clone(),
            };
            let spawned = std::thread::Builder::new()
                .name("redis-view".to_string())
                .spawn(move || view.follow(&views, &over));
            let spawned = spawned.map_err(|error| format!("'serve': no thread: {error}"))?;
            self.threads.push(spawned);
        }
        Ok(())
    }

    /// The changes of a view by what a checkpoint has added.
    fn changes(described: &Described, added: &Added) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        if added.is_whole {
            changes.push(Change::Clear);
        }
        let schema = schema_of(described);
        for snapshot in &added.snapshots {
            let restored = ViewRows::restored(&described.schema, snapshot);
            let (counts, rows) = restored.map_err(|error| error.to_string())?;
            let rows = schema.changes(&rows, |row| counts.value(row) == 0);
            changes.extend(rows.map_err(|error| error.to_string())?);
        }
        Ok(changes)
    }
}

impl Readers for Served {
    fn nodes(&self) -> Vec<usize> {
        self.views.iter().map(|view| view.node).collect()
    }

    fn add(&self, added: Vec<Added>) {
        let mut changes = Vec::new();
        for added in &added {
            let mut views = self.views.iter();
            let Some(table) = views.position(|view| view.node == added.node) else {
                continue;
            };
            match Served::changes(&self.views[table], added) {
                Ok(of_view) => changes.push((table, of_view)),
                Err(reason) => return failed(&self.views[table].name, &reason),
            }
        }
        // The door is open as long as this is there.
        let _ = self.feed.apply_all(changes);
    }
}

/// What `ROLE` says. Runs that may follow each other count checkpoints, so that they can be compared.
fn role(serving: &Serving, applied: u64) -> RoleAnswer {
    let known = serving.known();
    match known.stands_by {
        true => RoleAnswer::Replica {
            master: known.other,
            is_connected: known.is_connected,
            offset: known.number.unwrap_or_default(),
        },
        false => RoleAnswer::Master {
            offset: known.number.unwrap_or(applied),
            replicas: known
                .other
                .filter(|_| known.is_connected)
                .map(|at| (at, known.other_number.unwrap_or_default()))
                .into_iter()
                .collect(),
        },
    }
}

fn schema_of(view: &Described) -> TableSchema {
    TableSchema::new(
        &view.name,
        &view.schema,
        view.key.clone().unwrap_or_default(),
    )
}

fn failed(view: &str, reason: &str) {
    eprintln!("warning: 'serve': materialized view '{view}': {reason}");
}

/// The port, if any that is free was asked for.
fn say(place: &str, asked: SocketAddr, bound: SocketAddr) {
    if asked.port() == 0 {
        eprintln!("views at redis://{bound} ({place})");
    }
}

fn not_opened(option: &str, place: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "use another port; 0 takes any that is free",
        _ => "use an address of this machine, such as redis://127.0.0.1:6380",
    };
    format!("{option} {place}: {error}\n  = {hint}")
}

/// The views that have a key.
fn served(views: &Views) -> Result<Vec<Described>, String> {
    let described = views.described();
    if described.is_empty() {
        return Err(
            "'serve': there is no materialized view\n  = CREATE MATERIALIZED VIEW name AS SELECT …"
                .to_string(),
        );
    }
    let has_key = |view: &&Described| view.key.as_ref().is_some_and(|key| !key.is_empty());
    let served = described
        .iter()
        .filter(has_key)
        .cloned()
        .collect::<Vec<_>>();
    for view in &described {
        if !served.iter().any(|served| served.name == view.name) {
            eprintln!(
                "warning: 'serve': materialized view '{}' has no key, so that its rows can't be read by one",
                view.name
            );
        }
    }
    match served.is_empty() {
        false => Ok(served),
        true => Err("'serve': no materialized view has a key\n  = declare one: (columns, PRIMARY KEY (…) NOT \
                     ENFORCED)"
            .to_string()),
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        {
            let mut state = self.over.state();
            state.is_over = true;
            for changes in state.waits_for.drain(..) {
                changes.cancel();
            }
        }
        // After this, changes are handed to nobody.
        self.door = None;
        for thread in self.threads.drain(..) {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// A view, and where its changes go.
struct View {
    name: String,
    schema: TableSchema,
    table: usize,
    feed: Feed,
}

impl View {
    /// Follows the view until it is over.
    fn follow(&self, views: &Views, over: &Over) {
        while !over.state().is_over {
            match views.subscribe(&self.name, BEGIN_PATIENCE) {
                Ok((cut, changes)) => {
                    let is_there = over.waits(&changes);
                    let goes_on = is_there && self.begin(&cut).is_some();
                    drop(cut);
                    let goes_on = goes_on && self.pass_on(&changes);
                    over.has_waited(&changes);
                    if !goes_on {
                        return;
                    }
                }
                Err(NotRead::TimedOut(..)) => {}
                Err(NotRead::Over(_)) => return,
                Err(error) => {
                    eprintln!("warning: 'serve': {error}");
                    return;
                }
            }
        }
    }

    /// All rows at once, in the place of those that were there.
    fn begin(&self, cut: &crate::views::Cut) -> Option<()> {
        let mut changes = vec![Change::Clear];
        for batch in cut.batches(ROWS) {
            let batch = batch
                .map_err(|error| self.failed(&error.to_string()))
                .ok()?;
            let rows = self.schema.changes(&batch, |_| false);
            let rows = rows.map_err(|error| self.failed(&error.to_string())).ok()?;
            changes.extend(rows);
        }
        self.feed.apply(self.table, changes).ok()
    }

    /// Hands changes on. Returns whether to subscribe again.
    fn pass_on(&self, changes: &Changes) -> bool {
        loop {
            let chunk = match changes.next(Instant::now() + SILENCE) {
                Next::Changes(chunk) => chunk,
                Next::TimedOut => continue,
                // The rows stay.
                Next::Ended(Ending::Whole | Ending::Over) => return false,
                Next::Ended(Ending::Restarted | Ending::Overrun) => return true,
            };
            let kinds = chunk.kinds.as_ref();
            let is_removed =
                |row: usize| kinds.is_some_and(|kinds| RowKind::is_retraction(kinds.value(row)));
            let applied = match self.schema.changes(&chunk.batch, is_removed) {
                Ok(rows) => self.feed.apply(self.table, rows).is_ok(),
                Err(error) => {
                    self.failed(&error.to_string());
                    false
                }
            };
            if !applied {
                return false;
            }
        }
    }

    fn failed(&self, reason: &str) {
        failed(&self.name, reason);
    }
}
