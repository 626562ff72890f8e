//! The choices of some settings.

/// How chunks of a source are distributed among the operators after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balancer {
    /// Only before unions, by demand, where the order of rows can't be observed.
    Auto,
    /// To each instance in turn.
    RoundRobin,
    /// By demand: to the instance with the fewest waiting rows.
    Demand,
}

impl Balancer {
    /// All choices.
    pub const ALL: [Balancer; 3] = [Balancer::Auto, Balancer::Demand, Balancer::RoundRobin];

    /// The choice in a setting.
    pub fn name(self) -> &'static str {
        match self {
            Balancer::Auto => "auto",
            Balancer::RoundRobin => "round_robin",
            Balancer::Demand => "demand",
        }
    }
}

/// When a query on several hosts begins to use a host that has joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescale {
    /// A little later.
    Auto,
    /// At its next restart.
    Off,
}

/// Whether buckets of keys move between instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebalance {
    /// Buckets move away from an overloaded instance.
    Auto,
    /// Buckets do not move.
    Off,
    /// Some buckets move at random all the time: for tests.
    Shuffle,
}

/// Whether rows are aggregated before they are sent by key, and the rest after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoPhase {
    /// Once a key has more rows than an instance can process.
    Auto,
    /// From the beginning.
    On,
    /// Never.
    Off,
}

/// The number of instances of each subquery of a statement that can be parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parallelism {
    /// A fixed number.
    Fixed(usize),
    /// As many as the work needs, by its known cost.
    Auto,
}

/// The processes among which the workers of a query are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// A fixed number of processes.
    Count(usize),
    /// One process for each NUMA node that has a worker.
    Nodes,
}

/// What connects the processes of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// Shared memory between processes of one host, TCP otherwise.
    Auto,
    /// Shared memory.
    SharedMemory,
    /// TCP.
    Tcp,
    /// Shared memory between processes of one host, AF_XDP sockets otherwise.
    Xdp,
}

/// The size of messages between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageBytes {
    /// By the calibrated cost of the link.
    Auto,
    /// Chunks are sent whole.
    Whole,
    /// At most so many bytes.
    AtMost(usize),
}

impl LinkKind {
    /// All choices.
    pub const ALL: [LinkKind; 4] = [
        LinkKind::Auto,
        LinkKind::SharedMemory,
        LinkKind::Tcp,
        LinkKind::Xdp,
    ];

    /// The link between processes of one host.
    pub fn used(self) -> &'static str {
        match self {
            LinkKind::Auto | LinkKind::SharedMemory | LinkKind::Xdp => "shm",
            LinkKind::Tcp => "tcp",
        }
    }

    /// The link between processes of different hosts.
    pub fn between_hosts(self) -> &'static str {
        match self {
            LinkKind::Auto | LinkKind::SharedMemory | LinkKind::Tcp => "tcp",
            LinkKind::Xdp => "xdp",
        }
    }

    /// The choice in a setting.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Auto => "auto",
            LinkKind::SharedMemory => "shm",
            LinkKind::Tcp => "tcp",
            LinkKind::Xdp => "xdp",
        }
    }
}
