//! `SET 'key' = 'value'`: the settings of a query. `table.rs` has an entry for each.

mod choices;
mod copies;
mod elsewhere;
mod hosts;
mod python;
mod setting;
mod standby;
mod table;
mod topic;
pub(crate) mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slackwater_control::broadcast::Algorithm;
use slackwater_control::place::{Places, Strategy};
use slackwater_engine::runtime::WaitMode;

use crate::error::{Result, SqlError, nearest};
use elsewhere::Meant;
use values::latency_target;

pub use choices::{
    Balancer, LinkKind, MessageBytes, Parallelism, Processes, Rebalance, Rescale, TwoPhase,
};
pub use elsewhere::is_parallelism;
pub use hosts::Hosts;
pub use setting::Setting;
pub use table::{SETTINGS, setting};
pub use topic::Topic;

/// The settings of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The number of instances of each subquery that can be parallel, for the statements that follow; `None`
    /// for one.
    pub parallelism: Option<Parallelism>,
    /// The number of threads; `None` for one per instance, at most the number of cores.
    pub workers: Option<usize>,
    /// The number of threads that parse the input of each source; `None` for as many as its statement's
    /// parallelism, at most the workers.
    pub parsers: Option<usize>,
    /// The processes among which the workers are divided.
    pub processes: Processes,
    /// How instances are placed; `None` lets the machine decide.
    pub placement: Option<Strategy>,
    /// What has a copy of the query each; `None` for one query.
    pub copies: Option<Places>,
    /// What connects the processes.
    pub link: LinkKind,
    /// The size of messages between processes.
    pub message_bytes: MessageBytes,
    /// The maximum number of rows per chunk.
    pub chunk_rows: usize,
    /// How long a source may collect rows for a chunk, in nanoseconds.
    pub linger_ns: u64,
    /// Whether `linger` was set; if not, a latency target decides.
    pub linger_set: bool,
    /// Whether `chunk_rows` was set.
    pub chunk_rows_set: bool,
    /// Whether a running aggregation emits one row for each input row.
    pub emit_every_row: bool,
    /// Whether every query emits its result once, when its inputs have ended.
    pub emit_final: bool,
    /// How long after a change windows are emitted, in nanoseconds.
    pub emit_every_ns: Option<u64>,
    /// How long after its end a window accepts rows, in microseconds.
    pub allowed_lateness_us: i64,
    /// The table for late rows of the statements that follow.
    pub late_rows: Option<String>,
    /// Whether the order of rows of one key is kept where it can be observed.
    pub keep_order: bool,
    /// How chunks of a source are distributed among the operators after it.
    pub balancer: Balancer,
    /// Whether buckets of keys move between instances while the query runs.
    pub rebalance: Rebalance,
    /// Whether rows are aggregated before they are sent by key.
    pub two_phase: TwoPhase,
    /// How rows are sent to all instances that need all of them; `None` for the cheapest way.
    pub broadcast: Option<Algorithm>,
    /// The latency target, in nanoseconds.
    pub latency_target_ns: Option<u64>,
    /// The latency targets of single sinks' tables, and of all queries that read a view, by name; `None` for
    /// no target.
    pub latency_targets: BTreeMap<String, Option<u64>>,
    /// How workers wait; [`Settings::wait_mode`] adds the delay of `auto`.
    pub wait: WaitMode,
    /// The maximum delay of a message with `auto`, in nanoseconds.
    pub wait_delay_ns: u64,
    /// Whether `wait_delay` was set.
    pub wait_delay_set: bool,
    /// The interval between checkpoints, in nanoseconds.
    pub checkpoint_interval_ns: u64,
    /// How far what a standby holds may be behind, in nanoseconds.
    pub standby_lag_ns: u64,
    /// How long the host of a run may be silent before its standby on another host continues, in
    /// nanoseconds.
    pub standby_timeout_ns: u64,
    /// Where checkpoints are stored; `None` for a query without checkpoints.
    pub state: Option<String>,
    /// Where materialized views are read over Redis' protocol, as `HOST:PORT`; `None` for nowhere.
    pub serve: Option<String>,
    /// The cores of the threads that look up and that encode what is read there; `None` for any.
    pub serve_cores: Option<[usize; 2]>,
    /// The maximum number of restarts in ten minutes.
    pub restarts: usize,
    /// On how many hosts a job of a server runs; `None` for the server's alone.
    pub hosts: Option<Hosts>,
    /// When a query on several hosts begins to use a host that has joined.
    pub rescale: Rescale,
    /// How long a query on several hosts waits for them, in nanoseconds.
    pub host_patience_ns: u64,
    /// After how long without a sign of life a host is lost, in nanoseconds.
    pub host_timeout_ns: u64,
    /// How long a query has to want more hosts before it says so, in nanoseconds.
    pub hosts_more_after_ns: u64,
    /// How long a query has to want fewer hosts before it says so, in nanoseconds.
    pub hosts_fewer_after_ns: u64,
    /// The memory limit of all operators, in bytes.
    pub memory_limit: Option<u64>,
    /// The interpreter of functions in Python; `None` for that of the environment.
    pub python: Option<String>,
    /// The event time after which unused state is discarded, in microseconds; `None` for never.
    pub state_ttl_us: Option<i64>,
    /// Notes about settings that have no effect.
    pub notes: Vec<String>,
}

/// The maximum number of processes on one host.
pub const PROCESSES_MAX: usize = 64;

/// The default number of rows per chunk: large enough that the work per chunk (some 5 µs) is negligible per
/// row, and small enough that a chunk of 100-byte rows fits into the second-level cache of a core.
pub const CHUNK_ROWS: usize = 8192;

/// The maximum of `chunk_rows`: 1 M rows of 1 KB are a gigabyte per chunk.
pub const CHUNK_ROWS_MAX: usize = 1 << 20;

/// The maximum of `message_bytes`: larger messages need not be cut.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 20;

/// The default of `linger`, without a latency target: 10 ms.
pub const LINGER_NS: u64 = 10_000_000;

/// The default of `wait_delay`: 1 ms.
pub const WAIT_DELAY_NS: u64 = 1_000_000;

/// The maximum of `wait_delay`: 10 s.
pub const WAIT_DELAY_MAX_NS: u64 = 10_000_000_000;

/// The default of `checkpoint_interval`, as in Flink's examples: rereading 10 s of input takes seconds.
pub const CHECKPOINT_INTERVAL_NS: u64 = 10_000_000_000;

/// The default of `restarts`: enough for hosts and brokers that are unavailable for a while, and few enough
/// that a permanent fault is noticed.
pub const RESTARTS: usize = 10;

/// The default of `host_patience`: agents that a cluster manager starts need some seconds.
pub const HOST_PATIENCE_NS: u64 = 60_000_000_000;

/// The default of `hosts_more_after`: longer than what is read again after a restart takes to catch up.
pub const HOSTS_MORE_AFTER_NS: u64 = 30_000_000_000;

/// The default of `hosts_fewer_after`, as in Kubernetes: a change of hosts interrupts the query.
pub const HOSTS_FEWER_AFTER_NS: u64 = 300_000_000_000;

/// The maximum of `hosts_more_after` and `hosts_fewer_after`: an hour.
pub const HOSTS_AFTER_MAX_NS: u64 = 3_600_000_000_000;

/// The default of `host_timeout`: three lost packets in a row, and far longer than a loaded host is silent.
pub const HOST_TIMEOUT_NS: u64 = 3_000_000_000;

/// The minimum of `host_timeout`: a beat is sent every 150 ms then.
pub const HOST_TIMEOUT_MIN_NS: u64 = 500_000_000;

/// The maximum of `restarts`.
pub const RESTARTS_MAX: usize = 1000;

/// The minimum of `checkpoint_interval`: a local disk takes about as long to confirm a write.
pub const CHECKPOINT_INTERVAL_MIN_NS: u64 = 1_000_000;

/// The default of `standby_lag`: what a standby would have to read again takes less time than to notice that
/// it has to.
pub const STANDBY_LAG_NS: u64 = 1_000_000_000;

/// The minimum of `standby_lag`: twice what a local disk takes to confirm a checkpoint.
pub const STANDBY_LAG_MIN_NS: u64 = 20_000_000;

/// The minimum and default of `standby_timeout`: the kernel asks a silent host twice, a second apart.
pub const STANDBY_TIMEOUT_MIN_NS: u64 = 3_000_000_000;

/// The maximum of `parallelism`: more than the cores of the largest machine we know.
pub const PARALLELISM_MAX: usize = 1024;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            parallelism: None,
            workers: None,
            parsers: None,
            processes: Processes::Count(1),
            placement: None,
            copies: None,
            link: LinkKind::Auto,
            message_bytes: MessageBytes::Auto,
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
            standby_lag_ns: STANDBY_LAG_NS,
            standby_timeout_ns: STANDBY_TIMEOUT_MIN_NS,
            state: None,
            serve: None,
            serve_cores: None,
            restarts: RESTARTS,
            hosts: None,
            rescale: Rescale::Off,
            host_patience_ns: HOST_PATIENCE_NS,
            hosts_more_after_ns: HOSTS_MORE_AFTER_NS,
            hosts_fewer_after_ns: HOSTS_FEWER_AFTER_NS,
            host_timeout_ns: HOST_TIMEOUT_NS,
            memory_limit: None,
            python: None,
            state_ttl_us: None,
            notes: Vec::new(),
        }
    }
}

impl Settings {
    /// Sets a setting; `table_options` are names that belong to a table's WITH instead.
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
                "'{key}' is an option of tables: CREATE TABLE … WITH ('{key}' = '{value}')"
            ))
        } else if let Some(near) = nearest(key, &names) {
            error.hint(format!("did you mean '{near}'?"))
        } else {
            error.hint(format!("the settings are: {}", names.join(", ")))
        })
    }

    /// Applies a setting of another engine.
    fn set_meant(&mut self, key: &str, meant: Meant, table_options: &[String]) -> Result<()> {
        match meant {
            Meant::Ours(ours, value) => {
                let set = self.set(ours, &value, table_options);
                set.map_err(|error| {
                    SqlError::new(format!("'{key}' sets '{ours}': {}", error.message))
                        .hint(error.hint)
                })
            }
            Meant::NoChange => Ok(()),
            Meant::Nothing(instead) => {
                let note = format!("SET '{key}' has no effect: {instead}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                Ok(())
            }
        }
    }

    /// How workers wait. `wait_delay` applies to `auto`, in whichever order the two are set, and not to other
    /// modes.
    pub fn wait_mode(&self) -> WaitMode {
        match self.wait {
            WaitMode::Auto { .. } => WaitMode::Auto {
                delay: Duration::from_nanos(self.wait_delay_ns),
            },
            mode => mode,
        }
    }

    /// The latency target of a sink: that of its own name, else of its table's option, else the tightest of
    /// the views that it reads, else that of the query.
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
                "'two_phase' = 'on' merges rows, but 'emit' = 'every_row' needs a result for each",
            )
            .hint("use SET 'two_phase' = 'auto', or 'emit' = 'changes'"));
        }
        if self.balancer != Balancer::Auto && self.keep_order {
            let name = self.balancer.name();
            return Err(SqlError::new(format!(
                "'balancer' = '{name}' does not keep the order of rows"
            ))
            .hint("add SET 'order' = 'none'"));
        }
        Ok(())
    }
}

/// The prefix of the target of one table or view.
const LATENCY_TARGET_OF: &str = "latency_target.";

fn wrong(setting: &Setting, value: &str) -> SqlError {
    SqlError::new(format!(
        "'{value}' is not a valid value of '{}'",
        setting.name
    ))
    .hint(setting.hint())
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;
