//! The parts of the page of settings.

/// The parts of the page of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Latency and CPU time.
    Latency,
    /// What queries emit.
    Results,
    /// Instances, threads, processes, and how rows get from one to another.
    Parallelism,
    /// Checkpoints, state and memory.
    State,
}

impl Topic {
    /// All topics, in the order of the page.
    pub const ALL: [Topic; 4] = [
        Topic::Latency,
        Topic::Results,
        Topic::Parallelism,
        Topic::State,
    ];

    /// The heading on the page.
    pub fn heading(self) -> &'static str {
        match self {
            Topic::Latency => "Latency and CPU time",
            Topic::Results => "Results",
            Topic::Parallelism => "Parallelism",
            Topic::State => "State",
        }
    }
}
