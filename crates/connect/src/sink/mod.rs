//! Sinks: where rows go.

pub(crate) mod blackhole;
pub(crate) mod file;
pub(crate) mod print;
pub(crate) mod tcp;

#[cfg(test)]
mod tests;
