//! What rows cost at each node of a query: measured by an earlier run, else assumed.
//!
//! A run with parallelism `'auto'`, the default, saves what its operators cost in `costs.json`, next to the
//! host's calibration; a build without optimization only in `$SLACKWATER_CACHE`. A damaged file counts as
//! missing and never makes a query fail.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_schema::{DataType, SchemaRef};
use serde::{Deserialize, Serialize};
use slackwater_control::demand::NodeCost;
use slackwater_sql::program::Program;

use crate::report::OperatorReport;

/// With fewer rows, most of the measured cost is that of starting.
const ROWS_MIN: u64 = 10_000;

/// The number of operators whose costs are kept; with more, all earlier ones are dropped. Every run reads
/// them: less than a millisecond.
const KEPT_MAX: usize = 512;

/// The most bytes that are read from the file; each operator has a few hundred.
const BYTES_MAX: u64 = 1 << 20;

/// Bytes of a string or another value without a fixed width: a view of 16 bytes and 8 bytes of data.
const BYTES_VARIABLE: f64 = 24.0;

/// The costs that earlier runs measured, by the operator's name and description.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    operators: BTreeMap<String, Measured>,
}

/// An operator's costs. They are whole numbers, because worker processes plan with what they are sent, and
/// fractions could lose their last digit on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Measured {
    per_row_ps: u64,
    /// Output rows per million input rows, if known.
    rows_out_per_million: Option<u64>,
}

impl Learned {
    /// The costs known on this host; empty without a readable file.
    pub fn load() -> Learned {
        let text = path().and_then(|path| {
            use std::io::Read;
            let mut text = String::new();
            let file = std::fs::File::open(path).ok()?;
            file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
            Some(text)
        });
        let learned = text.and_then(|text| serde_json::from_str(&text).ok());
        learned.unwrap_or_default()
    }

    /// Adds what a run measured; returns whether it measured anything.
    pub fn add(&mut self, program: &Program, operators: &[OperatorReport]) -> bool {
        let mut measured = BTreeMap::new();
        for operator in operators
            .iter()
            .filter(|operator| operator.rows >= ROWS_MIN)
        {
            let rows = operator.rows as f64;
            // The consumer of several inputs is measured for all of them together.
            let consumers = program.graph.consumers(operator.node);
            let mut alone = consumers
                .iter()
                .filter(|(consumer, _)| program.graph.nodes[*consumer].inputs.len() == 1);
            let rows_out = alone
                .next()
                .map(|&(consumer, _)| operators[consumer].rows as f64 / rows);
            let cost = Measured {
                per_row_ps: (operator.busy_s * 1e12 / rows).round() as u64,
                rows_out_per_million: rows_out.map(|rows_out| (rows_out * 1e6).round() as u64),
            };
            measured.insert(key(program, operator.node), cost);
        }
        if self.operators.len() + measured.len() > KEPT_MAX {
            self.operators.clear();
        }
        let found = !measured.is_empty();
        self.operators.extend(measured);
        found
    }

    /// Saves the costs for later runs.
    ///
    /// # Errors
    ///
    /// The operating system's error, with the file.
    pub fn store(&self) -> Result<(), String> {
        if !is_kept() {
            return Ok(());
        }
        let path = path()
            .ok_or("there is no home folder to save costs in: set SLACKWATER_CACHE to a folder")?;
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        // Written under a temporary name, so a reader finds either the old costs or the new ones.
        let temporary = path.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&temporary, text + "\n").map_err(failed)?;
        std::fs::rename(&temporary, &path).map_err(failed)
    }
}

/// Whether costs are kept. Those of a build without optimization are those of another program: they are kept
/// only in a folder that was named for it.
fn is_kept() -> bool {
    !cfg!(debug_assertions) || crate::calibrate::is_folder_named()
}

fn path() -> Option<PathBuf> {
    if !is_kept() {
        return None;
    }
    Some(crate::calibrate::path()?.with_file_name("costs.json"))
}

/// The key of a node's costs: nodes with the same name and description cost the same.
fn key(program: &Program, node: usize) -> String {
    let node = &program.graph.nodes[node];
    format!("{} {}", node.name, node.detail)
}

/// The costs of a query's nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryCosts {
    /// The cost of each node.
    pub of_node: Vec<NodeCost>,
    /// Whether each node's cost was measured.
    pub measured: Vec<bool>,
}

/// The costs of a query's nodes: learned where they are known.
pub fn query_costs(program: &Program, learned: &Learned) -> QueryCosts {
    let nodes = 0..program.nodes.len();
    let known = nodes.clone().map(|node| {
        let measured = learned.operators.get(&key(program, node)).copied();
        let spec = &program.nodes[node];
        let assumed = spec.facts().cost;
        let assumed_ns = assumed.work.per_row_ns;
        let cost = NodeCost {
            per_row_ns: measured.map_or(assumed_ns, |measured| measured.per_row_ps as f64 / 1e3),
            rows_out: measured
                .and_then(|measured| measured.rows_out_per_million)
                .map_or(assumed.rows_out, |rows_out| rows_out as f64 / 1e6),
            row_bytes: row_bytes(spec.schema()),
        };
        (cost, measured.is_some())
    });
    let (of_node, measured) = known.unzip();
    QueryCosts { of_node, measured }
}

fn row_bytes(schema: &SchemaRef) -> f64 {
    let columns = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Boolean => 0.125,
        other => other
            .primitive_width()
            .map_or(BYTES_VARIABLE, |bytes| bytes as f64),
    });
    columns.sum()
}

/// The rows per second of each source, by node: its declared rate, else as fast as its `instances` can read.
pub fn source_rates(
    program: &Program,
    costs: &QueryCosts,
    instances: impl Fn(usize) -> usize,
) -> Vec<f64> {
    let mut rates = vec![0.0; program.nodes.len()];
    for (node, source) in program.sources() {
        let said = source.connector.describe().rows_per_s;
        let per_row_ns = costs.of_node[node].per_row_ns.max(1.0);
        let possible = instances(node) as f64 * 1e9 / per_row_ns;
        rates[node] = said.map_or(possible, |said| said.min(possible));
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::BuiltIn;
    use slackwater_sql::program::compile;

    fn program() -> Program {
        let text = "CREATE TABLE v (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen',
              'generator' = 'uservisits');
            CREATE TABLE o (ip STRING, n BIGINT) WITH ('connector' = 'blackhole');
            INSERT INTO o SELECT ip, COUNT(*) FROM v WHERE ts_ms > 5 GROUP BY ip;";
        compile(text, &[], &BuiltIn).unwrap().run
    }

    fn operators(program: &Program, rows: u64) -> Vec<OperatorReport> {
        let nodes = program.graph.nodes.iter().enumerate();
        let reports = nodes.map(|(node, spec)| OperatorReport {
            node,
            name: spec.name.clone(),
            busy_s: 0.01,
            chunks: 1,
            rows: rows >> node,
            state_bytes_max: 0,
        });
        reports.collect()
    }

    #[test]
    fn costs_are_assumed_until_a_run_has_measured_them() {
        let program = program();
        let mut learned = Learned::default();
        let assumed = query_costs(&program, &learned);
        assert!(assumed.measured.iter().all(|measured| !measured));
        assert_eq!(assumed.of_node[0].per_row_ns, 60.0);
        // The timestamp and a text.
        assert_eq!(assumed.of_node[0].row_bytes, 32.0);
        assert!(!learned.add(&program, &operators(&program, ROWS_MIN - 1)));
        assert!(learned.add(&program, &operators(&program, 100_000)));
        let known = query_costs(&program, &learned);
        assert!(known.measured[0]);
        // 10 ms for 100,000 rows, of which the next node takes half.
        assert_eq!(known.of_node[0].per_row_ns, 100.0);
        assert_eq!(known.of_node[0].rows_out, 0.5);
    }
}
