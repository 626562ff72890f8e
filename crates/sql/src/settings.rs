//! `SET 'key' = 'value'`: what belongs to the query. `table.rs` has an entry for each setting.

mod choices;
mod elsewhere;
mod table;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slackwater_control::broadcast::Algorithm;
use slackwater_control::place::Strategy;
use slackwater_engine::runtime::WaitMode;

use crate::error::{Result, SqlError, nearest};
use elsewhere::Meant;
use values::latency_target;

pub use choices::{Balancer, LinkKind, Parallelism, Processes, Rebalance, TwoPhase};
pub use elsewhere::is_parallelism;
pub use table::{SETTINGS, Setting, Topic, setting};

/// The settings of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Instances of each parallelisable subquery of the statements that follow; `None` for one.
    pub parallelism: Option<Parallelism>,
    /// Threads that run them; `None` for as many as instances, at most the cores allowed.
    pub workers: Option<usize>,
    /// Processes that the workers are dealt out to.
    pub processes: Processes,
    /// How instances are placed; `None` leaves it to the machine.
    pub placement: Option<Strategy>,
    /// What connects processes.
    pub link: LinkKind,
    /// Rows per chunk at most.
    pub chunk_rows: usize,
    /// How long a source may collect rows, in nanoseconds.
    pub linger_ns: u64,
    /// That was asked for; without it a latency target decides.
    pub linger_set: bool,
    /// So was the size of chunks.
    pub chunk_rows_set: bool,
    /// A running aggregation emits one row per input row.
    pub emit_every_row: bool,
    /// Every query emits its result once, when its inputs have ended.
    pub emit_final: bool,
    /// Windows that have changed are emitted so long after, in nanoseconds.
    pub emit_every_ns: Option<u64>,
    /// How long behind its end a window takes rows, in microseconds.
    pub allowed_lateness_us: i64,
    /// The table for late rows of the statements that follow.
    pub late_rows: Option<String>,
    /// The order of rows of one key is kept where it can be seen.
    pub keep_order: bool,
    /// How chunks of a source are dealt out to what follows it.
    pub balancer: Balancer,
    /// Whether buckets of keys move between instances while the query runs.
    pub rebalance: Rebalance,
    /// Whether rows are aggregated before they are sent by key.
    pub two_phase: TwoPhase,
    /// How rows get to all instances that want them all; `None` for what is the cheapest.
    pub broadcast: Option<Algorithm>,
    /// The latency that is wanted, in nanoseconds.
    pub latency_target_ns: Option<u64>,
    /// The same for a sink's table, or for all that reads a view, by its name; `None` for no
    /// target.
    pub latency_targets: BTreeMap<String, Option<u64>>,
    /// How workers wait; [`Settings::wait_mode`] adds the delay of `auto`.
    pub wait: WaitMode,
    /// How long `auto` may let a message lie, in nanoseconds.
    pub wait_delay_ns: u64,
    /// That was asked for.
    pub wait_delay_set: bool,
    /// How often a query that takes checkpoints takes one, in nanoseconds.
    pub checkpoint_interval_ns: u64,
    /// Where checkpoints are kept; `None` for a query whose state dies with it.
    pub state: Option<String>,
    /// Restarts within ten minutes.
    pub restarts: usize,
    /// What all operators may hold, in bytes.
    pub memory_limit: Option<u64>,
    /// State that nothing touches for so many microseconds of event time is forgotten; `None`: never.
    pub state_ttl_us: Option<i64>,
    /// What was set, and changes nothing here.
    pub notes: Vec<String>,
}

/// Processes that can be asked for on one host.
pub const PROCESSES_MAX: usize = 64;

/// Rows per chunk: large enough that the work per chunk (some 5 µs) is nothing per row, small
/// enough that a chunk of 100-byte rows fits a core's second-level cache.
pub const CHUNK_ROWS: usize = 8192;

/// The most that can be asked for: 1 M rows of 1 KB are a gigabyte per chunk.
pub const CHUNK_ROWS_MAX: usize = 1 << 20;

/// Without a latency target rows are collected for at most 10 ms.
pub const LINGER_NS: u64 = 10_000_000;

/// The delay that `'wait' = 'auto'` permits unless told otherwise: 1 ms.
pub const WAIT_DELAY_NS: u64 = 1_000_000;

/// The most that can be asked for: 10 s.
pub const WAIT_DELAY_MAX_NS: u64 = 10_000_000_000;

/// A query is saved every 10 s: Flink's examples do, and what is read again after a death takes seconds.
pub const CHECKPOINT_INTERVAL_NS: u64 = 10_000_000_000;

/// Ten restarts in ten minutes are enough for hosts and brokers that go away, and few enough for a fault
/// that stays to be noticed.
pub const RESTARTS: usize = 10;

/// The most that can be asked for.
pub const RESTARTS_MAX: usize = 1000;

/// The least that can be asked for: a local disk takes about as long to say that it has something.
pub const CHECKPOINT_INTERVAL_MIN_NS: u64 = 1_000_000;

/// Instances that can be asked for: more than the cores of the largest machine we know.
pub const PARALLELISM_MAX: usize = 1024;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            parallelism: None,
            workers: None,
            processes: Processes::Count(1),
            placement: None,
            link: LinkKind::Auto,
            chunk_rows: CHUNK_ROWS,
            linger_ns: LINGER_NS,
            linger_set: false,
            chunk_rows_set: false,
            emit_every_row: false,
            emit_final: false,
            emit_every_ns: None,
            allowed_lateness_us: 0,
            late_rows: None,
            keep_order: true,
            balancer: Balancer::Auto,
            rebalance: Rebalance::Auto,
            two_phase: TwoPhase::Auto,
            broadcast: None,
            latency_target_ns: None,
            latency_targets: BTreeMap::new(),
            wait: WaitMode::default(),
            wait_delay_ns: WAIT_DELAY_NS,
            wait_delay_set: false,
            checkpoint_interval_ns: CHECKPOINT_INTERVAL_NS,
            state: None,
            restarts: RESTARTS,
            memory_limit: None,
            state_ttl_us: None,
            notes: Vec::new(),
        }
    }
}

impl Settings {
    /// Sets one; `table_options` are names that belong into a table's WITH instead.
    pub fn set(&mut self, key: &str, value: &str, table_options: &[String]) -> Result<()> {
        if let Some(name) = key.strip_prefix(LATENCY_TARGET_OF) {
            let of_query = setting("latency_target").expect("the table has it");
            let target = latency_target(value).ok_or_else(|| wrong(of_query, value))?;
            self.latency_targets.insert(name.to_string(), target);
            return Ok(());
        }
        if let Some(known) = setting(key) {
            return (known.set)(self, value).ok_or_else(|| wrong(known, value));
        }
        if let Some(meant) = elsewhere::meant(key, value) {
            return self.set_meant(key, meant?, table_options);
        }
        let names = SETTINGS.iter().map(|known| known.name.to_string());
        let names = names.collect::<Vec<_>>();
        let error = SqlError::new(format!("there is no setting '{key}'"));
        Err(if table_options.iter().any(|option| option == key) {
            error.hint(format!(
                "'{key}' belongs to a table: CREATE TABLE … WITH ('{key}' = '{value}')"
            ))
        } else if let Some(near) = nearest(key, &names) {
            error.hint(format!("did you mean '{near}'?"))
        } else {
            error.hint(format!("the settings are: {}", names.join(", ")))
        })
    }

    /// Sets what a setting of another engine means.
    fn set_meant(&mut self, key: &str, meant: Meant, table_options: &[String]) -> Result<()> {
        match meant {
            Meant::Ours(ours, value) => {
                let set = self.set(ours, &value, table_options);
                set.map_err(|error| {
                    SqlError::new(format!("'{key}' is '{ours}' here: {}", error.message))
                        .hint(error.hint)
                })
            }
            Meant::AsItIs => Ok(()),
            Meant::Nothing(instead) => {
                let note = format!("SET '{key}' changes nothing here: {instead}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                Ok(())
            }
        }
    }

    /// How workers wait. `wait_delay` belongs to `auto`, whichever of the two was set first, and is
    /// nothing to the other modes.
    pub fn wait_mode(&self) -> WaitMode {
        match self.wait {
            WaitMode::Auto { .. } => WaitMode::Auto {
                delay: Duration::from_nanos(self.wait_delay_ns),
            },
            mode => mode,
        }
    }

    /// The target of a sink: that of its own name, of its table's option, or else of the views that
    /// it reads (the tightest) or of the query.
    pub fn target_of_sink(
        &self,
        table: Option<(&str, Option<u64>)>,
        views: &BTreeSet<String>,
    ) -> Option<u64> {
        if let Some((name, option)) = table {
            if let Some(target) = self.latency_targets.get(name) {
                return *target;
            }
            if option.is_some() {
                return option;
            }
        }
        let views = views
            .iter()
            .filter_map(|view| self.latency_targets.get(view));
        let views = views.collect::<Vec<_>>();
        if views.is_empty() {
            return self.latency_target_ns;
        }
        views.into_iter().flatten().min().copied()
    }

    /// Checks settings against each other.
    pub fn check(&self) -> Result<()> {
        if self.two_phase == TwoPhase::On && self.emit_every_row {
            return Err(SqlError::new(
                "'two_phase' = 'on' merges rows, and 'emit' = 'every_row' answers each",
            )
            .hint("SET 'two_phase' = 'auto', or 'emit' = 'changes'"));
        }
        if self.balancer != Balancer::Auto && self.keep_order {
            let name = self.balancer.name();
            return Err(
                SqlError::new(format!("'balancer' = '{name}' gives up the order of rows"))
                    .hint("say so: SET 'order' = 'none'"),
            );
        }
        Ok(())
    }
}

/// A target of one table or view.
const LATENCY_TARGET_OF: &str = "latency_target.";

fn wrong(of: &Setting, value: &str) -> SqlError {
    SqlError::new(format!("'{value}' is no value of '{}'", of.name)).hint(of.hint())
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;
