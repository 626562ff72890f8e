//! The names of settings, and what they take.

/// All settings, with the values that they take.
pub const KNOWN: &[(&str, &str)] = &[
    (
        "allowed_lateness",
        "how long behind its end a window takes rows that change it, such as '10 min', or 'none' (the \
         default)",
    ),
    (
        "balancer",
        "'auto' (to unions by demand where nothing sees the order of rows), or 'demand' or \
         'round_robin' (which need 'order' = 'none')",
    ),
    (
        "broadcast",
        "how rows get to all instances that want them all: 'auto' (what is the cheapest on this \
         host), 'serial', 'flat_tree', 'binary_tree' or 'ring'",
    ),
    (
        "checkpoint_interval",
        "how often a query that is run with --state is saved, such as '10 s' (the default): at least \
         '1 ms'",
    ),
    (
        "chunk_rows",
        "rows per chunk at most, 1 to 1048576; default 8192",
    ),
    (
        "emit",
        "'changes' (a running aggregate merges changes of a key within a chunk), 'every_row', such as \
         'every 1 s' (windows that have changed are emitted before they close, too), or 'final' (the result \
         once, when the inputs have ended)",
    ),
    (
        "late_rows",
        "the table that takes rows that are late for windows of the statements that follow, or 'none' \
         (the default)",
    ),
    (
        "latency_target",
        "'none' (the default) or a duration such as '20 ms' that 99 of 100 rows are to keep; \
         'latency_target.NAME' for one sink's table, or for all that reads a view",
    ),
    (
        "linger",
        "how long a source may collect rows, such as '10 ms' (the default) or '0 ms'",
    ),
    (
        "link",
        "'auto' (shared memory between processes of one host), 'shm' or 'tcp'",
    ),
    (
        "memory_limit",
        "what all operators may hold between them, such as '512 MiB' or '2 GB', or 'none' (the \
         default)",
    ),
    (
        "order",
        "'keep' (rows of one key stay in the order of their partition) or 'none'",
    ),
    (
        "parallelism",
        "instances of each parallelisable subquery of the statements that follow, 1 to 1024, or \
         'auto' (as many as their work needs)",
    ),
    (
        "placement",
        "'numa' (rows travel little between NUMA nodes: the default where there are several), \
         'spread' (over all nodes in turn) or 'os' (no thread is pinned)",
    ),
    (
        "processes",
        "processes that the workers are dealt out to, 1 to 64, or 'nodes' (one for each NUMA node); \
         default 1",
    ),
    (
        "rebalance",
        "'auto' (keys move to instances that have less to do), 'off', or 'shuffle' (at random, for tests)",
    ),
    (
        "restarts",
        "how often within ten minutes a query that is run with --state is started again when something \
         has died, 0 to 1000; default 10",
    ),
    (
        "state",
        "where checkpoints are kept, a directory or s3://bucket/folder; as --state",
    ),
    (
        "state_ttl",
        "'none' (the default), or for how much event time running aggregates, joins and top-N keep what \
         nothing touches, such as '1 h'",
    ),
    (
        "two_phase",
        "'auto' (rows of a key that has too many are aggregated before they are sent), 'on' or 'off'",
    ),
    (
        "wait",
        "how workers wait: 'auto', 'poll', 'interrupt', 'sleep:200us', 'spin:50us' (times up to 10 s) \
         or 'backoff'",
    ),
    (
        "wait_delay",
        "how long 'wait' = 'auto' may let a message lie, above zero and up to '10 s'; \
         default '1 ms'",
    ),
    ("workers", "threads that run them, 1 to 1024"),
];
