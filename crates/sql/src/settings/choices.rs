//! What some settings choose between.

/// How chunks of a source are dealt out to the operators behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balancer {
    /// To unions, to whom has the least waiting, where nothing can see the order of rows; else not at
    /// all.
    Auto,
    /// In turn.
    RoundRobin,
    /// To whom has the least waiting.
    Demand,
}

impl Balancer {
    /// All of them.
    pub const ALL: [Balancer; 3] = [Balancer::Auto, Balancer::Demand, Balancer::RoundRobin];

    /// The name in a setting.
    pub fn name(self) -> &'static str {
        match self {
            Balancer::Auto => "auto",
            Balancer::RoundRobin => "round_robin",
            Balancer::Demand => "demand",
        }
    }
}

/// Whether buckets of keys move between instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebalance {
    /// Where that relieves one that has too much to do.
    Auto,
    /// They stay where they are.
    Off,
    /// Some move all the time, at random: for tests.
    Shuffle,
}

/// Whether rows are aggregated before they are sent by key, and the rest after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoPhase {
    /// Once a key has more rows than an instance can take.
    Auto,
    /// From the beginning.
    On,
    /// Never.
    Off,
}

/// Instances of each parallelisable subquery of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parallelism {
    /// So many.
    Fixed(usize),
    /// As many as its work needs, by what it is known to cost.
    Auto,
}

/// Processes that the workers of a query are dealt out to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// So many.
    Count(usize),
    /// One for each NUMA node that has a worker.
    Nodes,
}

/// What connects the processes of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// Shared memory where both ends are on one host, TCP elsewhere.
    Auto,
    /// Shared memory.
    SharedMemory,
    /// TCP.
    Tcp,
}

impl LinkKind {
    /// All of them.
    pub const ALL: [LinkKind; 3] = [LinkKind::Auto, LinkKind::SharedMemory, LinkKind::Tcp];

    /// What connects processes of one host.
    pub fn used(self) -> &'static str {
        match self {
            LinkKind::Auto | LinkKind::SharedMemory => "shm",
            LinkKind::Tcp => "tcp",
        }
    }

    /// As it is written in a setting.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Auto => "auto",
            LinkKind::SharedMemory => "shm",
            LinkKind::Tcp => "tcp",
        }
    }
}
