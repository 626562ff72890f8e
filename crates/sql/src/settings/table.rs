//! The table of settings. SET, `--set`, completion, messages and `docs/settings.md` are generated from it.

use slackwater_control::broadcast::Algorithm;
use slackwater_control::place::Strategy;
use slackwater_engine::time::parse_duration_ns;

use super::copies::COPIES;
use super::hosts::{
    HOST_PATIENCE, HOST_TIMEOUT, HOSTS, HOSTS_FEWER_AFTER, HOSTS_MORE_AFTER, RESCALE,
};
use super::python::PYTHON;
use super::setting::Setting;
use super::standby::{STANDBY_LAG, STANDBY_TIMEOUT};
use super::topic::Topic;
use super::values::{
    bytes, chosen, latency_target, number, positive_ns, state_ttl_us, unless_none,
};
use super::{
    Balancer, CHECKPOINT_INTERVAL_MIN_NS, CHUNK_ROWS_MAX, LinkKind, MESSAGE_BYTES_MAX,
    MessageBytes, PARALLELISM_MAX, PROCESSES_MAX, Parallelism, Processes, RESTARTS_MAX, Rebalance,
    TwoPhase, WAIT_DELAY_MAX_NS,
};

/// The setting with a name.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// All settings, by name.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "allowed_lateness",
        values: "a duration such as '10 min', or 'none'",
        default: "'none'",
        since: "0.1.0",
        topic: Topic::Results,
        meaning: "how long after its end a window accepts late rows, which update it",
        more: "See [before the end, and after it](sql.md#before-the-end-and-after-it).",
        set: |settings, value| {
            // In microseconds, like watermarks.
            let lateness_ns = unless_none(value, parse_duration_ns)?.unwrap_or(0);
            settings.allowed_lateness_us = lateness_ns.div_ceil(1000) as i64;
            Some(())
        },
    },
    Setting {
        name: "balancer",
        values: "'auto', 'demand' or 'round_robin'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "how the chunks of a source are distributed among the operators after it",
        more: "`'demand'`: to the instance with the fewest waiting rows; `'round_robin'`: in turn. \
        Both need `'order' = 'none'`. `'auto'`: to a union of tables by demand, if the order of rows \
        can't be observed, else not at all ([more](internals/balancing.md)).",
        set: |settings, value| {
            let choices = Balancer::ALL.map(|choice| (choice.name(), choice));
            settings.balancer = chosen(value, &choices)?;
            Some(())
        },
    },
    Setting {
        name: "broadcast",
        values: "'auto', 'serial', 'flat_tree', 'binary_tree' or 'ring'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "how rows are sent to all instances that need all of them",
        more: "`'auto'` chooses the cheapest way for the number of receivers and the size of \
        messages, by this host's calibration ([more](internals/broadcast.md)).",
        set: |settings, value| {
            settings.broadcast = match value.trim() {
                "auto" => None,
                name => Some(Algorithm::named(name)?),
            };
            Some(())
        },
    },
    Setting {
        name: "checkpoint_interval",
        values: "a duration of at least '1 ms'",
        default: "'10 s'",
        since: "0.1.0",
        topic: Topic::State,
        meaning: "the time between checkpoints of a query that is run with --state",
        more: "The time starts with the first row that is not yet in a checkpoint. Transactional \
        sinks publish their rows with a checkpoint, up to that much later \
        ([guarantees](guarantees.md)).",
        set: |settings, value| {
            let interval_ns = parse_duration_ns(value);
            settings.checkpoint_interval_ns =
                interval_ns.filter(|ns| *ns >= CHECKPOINT_INTERVAL_MIN_NS)?;
            Some(())
        },
    },
    Setting {
        name: "chunk_rows",
        values: "1 to 1048576",
        default: "8192; with a latency target, the engine chooses it",
        since: "0.1.0",
        topic: Topic::Latency,
        meaning: "the maximum number of rows in a chunk, which is sent as a whole",
        more: "",
        set: |settings, value| {
            settings.chunk_rows = number(value, CHUNK_ROWS_MAX)?;
            settings.chunk_rows_set = true;
            Some(())
        },
    },
    COPIES,
    Setting {
        name: "emit",
        values: "'changes', 'every_row', a time such as 'every 1 s', or 'final'",
        default: "'changes'",
        since: "0.1.0",
        topic: Topic::Results,
        meaning: "what running aggregates and windows emit, and when",
        more: "`'changes'`: a running aggregate emits the changes of a chunk, with those of a key \
        merged. `'every_row'`: one update for each input row. A time: windows that have \
        changed are [emitted before they close](sql.md#before-the-end-and-after-it), too; \
        running aggregates emit their changes as before. `'final'`: every query emits [its \
        result once](sql.md#final-results-order-by-limit-emit--final), when its inputs have \
        ended.",
        set: |settings, value| {
            // Whether each row is emitted, and whether only final results are.
            let choices = [
                ("changes", (false, false)),
                ("every_row", (true, false)),
                ("final", (false, true)),
            ];
            let every_ns = match value.trim().strip_prefix("every ") {
                Some(interval) => Some(positive_ns(interval)?),
                None => None,
            };
            (settings.emit_every_row, settings.emit_final) = match every_ns {
                Some(_) => (false, false),
                None => chosen(value, &choices)?,
            };
            settings.emit_every_ns = every_ns;
            Some(())
        },
    },
    HOST_PATIENCE,
    HOST_TIMEOUT,
    HOSTS,
    HOSTS_FEWER_AFTER,
    HOSTS_MORE_AFTER,
    Setting {
        name: "late_rows",
        values: "the name of a table, or 'none'",
        default: "'none'",
        since: "0.1.0",
        topic: Topic::Results,
        meaning: "the table that keeps rows that are late for windows of the statements that follow",
        more: "See [late rows to a table](sql.md#late-rows-to-a-table).",
        set: |settings, value| {
            settings.late_rows = match value.trim() {
                "" => return None,
                "none" => None,
                name => Some(name.to_string()),
            };
            Some(())
        },
    },
    Setting {
        name: "latency_target",
        values: "a duration such as '20 ms', or 'none'",
        default: "'none'",
        since: "0.1.0",
        topic: Topic::Latency,
        meaning: "the time within which 99 of 100 rows must reach their sink",
        more: "The engine meets the target with as little CPU time as possible: it chooses how long \
        workers sleep, the size of chunks and the number of workers, and adapts them to the \
        load ([more](internals/latency.md)). Without a target rows are collected for at most \
        10 ms.\n\n\
               `latency_target.NAME` sets it for the table of one sink (the table's option \
               `'latency_target'` does the same), or for everything that reads a view. A sink's own \
               target takes precedence over those of views (the tightest of several), and these over \
               that of the query; SET takes precedence over the table's option. If paths share a \
               source, the tightest target applies.",
        set: |settings, value| {
            settings.latency_target_ns = latency_target(value)?;
            Some(())
        },
    },
    Setting {
        name: "linger",
        values: "a duration such as '10 ms' or '0 ms'",
        default: "'10 ms'; with a latency target, the engine chooses it",
        since: "0.1.0",
        topic: Topic::Latency,
        meaning: "how long a source may collect rows for a chunk",
        more: "A warning says so if it is too long for a latency target; likewise for `'wait' = \
        'sleep:…'`.",
        set: |settings, value| {
            settings.linger_ns = parse_duration_ns(value)?;
            settings.linger_set = true;
            Some(())
        },
    },
    Setting {
        name: "link",
        values: "'auto', 'shm', 'tcp' or 'xdp'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "what connects the processes",
        more: "Shared memory (the choice of `'auto'` on one host), or TCP over the loopback address. Between \
        hosts it is TCP, or AF_XDP sockets with `'xdp'` ([how](internals/user-level.md)), which needs root \
        and a build with the feature `xdp`.",
        set: |settings, value| {
            let choices = LinkKind::ALL.map(|choice| (choice.name(), choice));
            settings.link = chosen(value, &choices)?;
            Some(())
        },
    },
    Setting {
        name: "memory_limit",
        values: "a size such as '512 MiB' or '2 GB', or 'none'",
        default: "'none'",
        since: "0.1.0",
        topic: Topic::State,
        meaning: "the maximum memory of all operators together",
        more: "Several processes share it evenly. At three quarters of it, sources that are ahead of \
        others wait for them; above it, the query ends, and saves its state if it is run with \
        `--state`. Queues, blocks of sources and the program itself are not counted: they have \
        limits of their own.",
        set: |settings, value| {
            settings.memory_limit = unless_none(value, bytes)?;
            Some(())
        },
    },
    Setting {
        name: "message_bytes",
        values: "'auto', 'none', or a size up to '16 MiB' such as '64 KiB'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Latency,
        meaning: "the maximum size of a message between processes: larger chunks are sent in parts",
        more: "`'auto'`: by the calibrated cost of the link, the width of rows and the latency target \
        ([more](internals/latency.md#messages-between-processes)); `explain` shows the size and why. \
        `'none'`: chunks are sent whole.",
        set: |settings, value| {
            settings.message_bytes = match value.trim() {
                "auto" => MessageBytes::Auto,
                "none" => MessageBytes::Whole,
                size => MessageBytes::AtMost(
                    bytes(size).filter(|bytes| *bytes <= MESSAGE_BYTES_MAX)? as usize,
                ),
            };
            Some(())
        },
    },
    Setting {
        name: "order",
        values: "'keep' or 'none'",
        default: "'keep'",
        since: "0.1.0",
        topic: Topic::Results,
        meaning: "whether rows of one key stay in the order of their partition where it can be observed",
        more: "",
        set: |settings, value| {
            settings.keep_order = chosen(value, &[("keep", true), ("none", false)])?;
            Some(())
        },
    },
    Setting {
        name: "parallelism",
        values: "1 to 1024, or 'auto'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "the number of instances of each subquery of the statements that follow, if it can \
        be parallel",
        more: "`'auto'`: as many as the load needs, and for input that is read as fast as it can be, as many \
        as bring something. See [parallelism](sql.md#parallelism).",
        set: |settings, value| {
            settings.parallelism = Some(match value.trim() {
                "auto" => Parallelism::Auto,
                _ => Parallelism::Fixed(number(value, PARALLELISM_MAX)?),
            });
            Some(())
        },
    },
    Setting {
        name: "parsers",
        values: "1 to 1024",
        default: "as many as a number set for `parallelism`; otherwise as many as cores, except for sources \
        that set the pace themselves",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "the maximum number of threads that parse the input of each source, if its instances are \
        fewer",
        more: "They take part while there is something for them. See [parallelism](sql.md#parallelism).",
        set: |settings, value| {
            settings.parsers = Some(number(value, PARALLELISM_MAX)?);
            Some(())
        },
    },
    Setting {
        name: "placement",
        values: "'numa', 'spread' or 'os'",
        default: "'numa' on several NUMA nodes or hosts, 'spread' on one",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "where instances and threads run",
        more: "`'numa'`: so that few rows are sent between NUMA nodes; `'spread'`: spread over all \
        nodes; `'os'`: spread, and threads are not pinned ([more](internals/placement.md)).",
        set: |settings, value| {
            let strategies = [Strategy::Numa, Strategy::Spread, Strategy::Os];
            let choices = strategies.map(|strategy| (strategy.name(), strategy));
            settings.placement = Some(chosen(value, &choices)?);
            Some(())
        },
    },
    Setting {
        name: "processes",
        values: "1 to 64, or 'nodes'",
        default: "'1'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "the number of processes among which the workers are divided",
        more: "At most as many as `workers`. `'nodes'`: one for each NUMA node that has a worker. \
               With one, the program runs the threads itself.",
        set: |settings, value| {
            settings.processes = match value.trim() {
                "nodes" => Processes::Nodes,
                _ => Processes::Count(number(value, PROCESSES_MAX)?),
            };
            Some(())
        },
    },
    PYTHON,
    Setting {
        name: "rebalance",
        values: "'auto', 'off' or 'shuffle'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "whether keys move, with their state, to instances with less load",
        more: "`'auto'`: if their instance is overloaded or slow. `'shuffle'` moves some at random \
        all the time, for tests.",
        set: |settings, value| {
            let choices = [
                ("auto", Rebalance::Auto),
                ("off", Rebalance::Off),
                ("shuffle", Rebalance::Shuffle),
            ];
            settings.rebalance = chosen(value, &choices)?;
            Some(())
        },
    },
    RESCALE,
    Setting {
        name: "restarts",
        values: "0 to 1000",
        default: "'10'",
        since: "0.1.0",
        topic: Topic::State,
        meaning: "how often within ten minutes a query that is run with --state is restarted after a \
        failure",
        more: "",
        set: |settings, value| {
            let restarts = value.trim().parse().ok();
            settings.restarts = restarts.filter(|restarts| *restarts <= RESTARTS_MAX)?;
            Some(())
        },
    },
    Setting {
        name: "serve",
        values: "an address such as 'redis://127.0.0.1:6380', or 'none'",
        default: "'none'",
        since: "0.1.0",
        topic: Topic::Results,
        meaning: "where clients of Redis read the materialized views while the query runs",
        more: "See [reads over Redis' protocol](views.md#reads-over-redis-protocol).",
        set: |settings, value| {
            settings.serve = unless_none(value, |value| {
                let place = value.strip_prefix("redis://")?;
                let port = place.rsplit_once(':')?.1;
                port.parse::<u16>().ok().map(|_| place.to_string())
            })?;
            Some(())
        },
    },
    Setting {
        name: "serve_cores",
        values: "two numbers of cores such as '1,0', or 'none'",
        default: "'none': the kernel decides",
        since: "0.1.0",
        topic: Topic::Results,
        meaning: "the cores of the threads that serve reads: of the one that reads commands and looks up \
        rows, and of the one that encodes and writes replies",
        more: "The first may be slow, the second is better fast ([why](views.md#reads-over-redis-protocol)).",
        set: |settings, value| {
            settings.serve_cores = unless_none(value, |value| {
                let (main, handler) = value.split_once(',')?;
                let core = |core: &str| core.trim().parse().ok();
                Some([core(main)?, core(handler)?])
            })?;
            Some(())
        },
    },
    STANDBY_LAG,
    STANDBY_TIMEOUT,
    Setting {
        name: "state",
        values: "a directory, or 's3://bucket/folder' in a build with the feature s3",
        default: "none: state is lost when the query ends",
        since: "0.1.0",
        topic: Topic::State,
        meaning: "where checkpoints are stored",
        more: "Like `--state` on the command line: checkpoints are stored there, and the query resumes from \
        them.",
        set: |settings, value| {
            let place = Some(value.trim()).filter(|place| !place.is_empty())?;
            settings.state = Some(place.to_string());
            Some(())
        },
    },
    Setting {
        name: "state_ttl",
        values: "a duration such as '1 h', at least '1 ms', or 'none'",
        default: "'none'",
        since: "0.1.0",
        topic: Topic::State,
        meaning: "the event time for which running aggregates, joins and top-N keep unused state",
        more: "See [state that grows](sql.md#state-that-grows).",
        set: |settings, value| {
            settings.state_ttl_us = unless_none(value, state_ttl_us)?;
            Some(())
        },
    },
    Setting {
        name: "two_phase",
        values: "'auto', 'on' or 'off'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "whether the rows of a chunk are aggregated before they are sent by key",
        more: "`'auto'`: once a key has more rows than an instance can process.",
        set: |settings, value| {
            let choices = [
                ("auto", TwoPhase::Auto),
                ("on", TwoPhase::On),
                ("off", TwoPhase::Off),
            ];
            settings.two_phase = chosen(value, &choices)?;
            Some(())
        },
    },
    Setting {
        name: "wait",
        values: "'auto', 'poll', 'interrupt', 'sleep:200us', 'spin:50us' (times up to 10 s) or 'backoff'",
        default: "'auto'",
        since: "0.1.0",
        topic: Topic::Latency,
        meaning: "how idle workers wait",
        more: "`'auto'`: the cheapest way that stays within `wait_delay`. `'interrupt'`: wait to be woken. \
        `'sleep:…'`: sleep, then check for messages. `'poll'`: check all the time, which uses a \
        whole core per worker. `'spin:…'`: check for that long, then wait. `'backoff'`: sleep \
        for 1 µs, then twice as long each time, up to 1 ms. Only `'poll'` uses the CPU while \
        there are no messages. With more workers than cores, `'poll'` and `'spin:…'` become \
        `'interrupt'` ([more](internals/waiting.md#what-an-idle-worker-does)).",
        set: |settings, value| {
            settings.wait = value.parse().ok()?;
            Some(())
        },
    },
    Setting {
        name: "wait_delay",
        values: "a duration above zero and up to '10 s'",
        default: "'1 ms'",
        since: "0.1.0",
        topic: Topic::Latency,
        meaning: "the maximum time for which 'wait' = 'auto' may delay a message at each link",
        more: "Other ways to wait ignore it.",
        set: |settings, value| {
            let delay_ns = positive_ns(value);
            settings.wait_delay_ns = delay_ns.filter(|delay_ns| *delay_ns <= WAIT_DELAY_MAX_NS)?;
            settings.wait_delay_set = true;
            Some(())
        },
    },
    Setting {
        name: "workers",
        values: "1 to 1024",
        default: "as many as parallelism, but at most the cores; with a latency target, as many as cores",
        since: "0.1.0",
        topic: Topic::Parallelism,
        meaning: "the number of threads that run the instances",
        more: "With a latency target, most of them sleep.",
        set: |settings, value| {
            settings.workers = Some(number(value, PARALLELISM_MAX)?);
            Some(())
        },
    },
];
