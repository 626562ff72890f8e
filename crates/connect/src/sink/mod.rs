//! Sinks: where rows go.

mod backlog;
pub(crate) mod blackhole;
pub(crate) mod file;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod mqtt;
pub(crate) mod print;
pub(crate) mod tcp;

#[cfg(test)]
mod tests;
