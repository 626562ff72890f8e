//! Copies of a query in a report.

use serde::Serialize;

/// The copies of a query, in a report.
#[derive(Debug, Clone, Serialize)]
pub struct CopiesReport {
    /// How many there are.
    pub copies: usize,
    /// What has one each: `nodes` or `hosts`.
    pub places: &'static str,
    /// The nodes of the query that are copied.
    pub copied: Vec<usize>,
    /// The aggregations whose first phase the copies do.
    pub first_phases: Vec<usize>,
    /// The bytes for each row of the sources that go from one node or host to another, as predicted.
    pub bytes_between: Option<f64>,
    /// The same without copies.
    pub bytes_between_without: Option<f64>,
}
