//! The number of instances of each statement.
//!
//! `SET 'parallelism'` counts for the statements that follow it; what several of them read is run by
//! as many instances as the one that wants most. `'auto'` takes the work of a statement, in cores,
//! and spreads it over as many instances as leave each a margin:
//!
//! ```text
//! rows/s of a source   what it says itself, at most what its partitions can be read at
//! work                 sum over its operators of rows/s × CPU time per row   (costs.rs)
//! instances            work / 0.7, rounded up; at least 1, at most the cores
//! ```
//!
//! A file that is read as fast as it can be has no rate: there is always work for all cores. Its parsing
//! is done by as many threads as there are cores, whatever the number of instances
//! ([`slackwater_engine::source::SourceDescription::parsers`]), and rows that are sent from instance to
//! instance cost more than those that are not. So `'auto'` uses several instances only if one can't keep up
//! with all cores:
//!
//! ```text
//! instances            cores × (work − parsing) / work / 1.2, rounded up
//! ```
//!
//! Without a setting, there is one instance of each subquery, and as many parsing threads as cores for such
//! files.

use slackwater_control::demand::rows_into;
use slackwater_control::latency::model::UTILISATION_MAX;
use slackwater_sql::program::{Output, Program};
use slackwater_sql::settings::Parallelism;

use crate::costs::{QueryCosts, source_rates};
use crate::report::count;

/// The number of instances of each subquery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The instances of the subquery that starts at each node.
    pub of_node: Vec<usize>,
    /// The number of threads that parse the input of each source, by node.
    pub parsers: Vec<usize>,
    /// The number of instances of the statement that gets the most.
    pub most: usize,
    /// How `'auto'` was decided, for each statement with it.
    pub notes: Vec<String>,
}

/// Chooses the numbers for all statements of a program on `cores` cores.
pub fn choose(program: &Program, costs: &QueryCosts, cores: usize) -> Chosen {
    let mut chosen = Chosen {
        of_node: vec![1; program.nodes.len()],
        parsers: vec![1; program.nodes.len()],
        most: 1,
        notes: Vec::new(),
    };
    for output in &program.outputs {
        let wanted = match output.parallelism {
            None => 1,
            Some(Parallelism::Fixed(number)) => number,
            Some(Parallelism::Auto) => {
                let (number, note) = automatic(program, output, costs, cores);
                chosen.notes.push(note);
                number
            }
        };
        for node in program.graph.upstream(output.sink) {
            chosen.of_node[node] = chosen.of_node[node].max(wanted);
            let parsers = match output.parallelism {
                Some(Parallelism::Fixed(_)) => wanted,
                Some(Parallelism::Auto) | None if is_endless_work(program, node) => cores,
                Some(Parallelism::Auto) | None => wanted,
            };
            chosen.parsers[node] = chosen.parsers[node].max(parsers);
        }
        chosen.most = chosen.most.max(wanted);
    }
    chosen
}

/// Whether a node is a source that several threads can parse, and that is read as fast as it can be.
fn is_endless_work(program: &Program, node: usize) -> bool {
    program.nodes[node].as_source().is_some_and(|source| {
        let described = source.connector.describe();
        described.parsers && described.bounded && described.rows_per_s.is_none()
    })
}

/// How much more a row costs that goes from one instance to another: medians of 1.06 to 1.25 were measured.
const COST_OF_SENDING: f64 = 1.2;

/// The number for one statement with `'auto'`, and a note that explains it.
fn automatic(
    program: &Program,
    output: &Output,
    costs: &QueryCosts,
    cores: usize,
) -> (usize, String) {
    let partitions = |node: usize| program.graph.nodes[node].instances_max.min(cores);
    let mut rates = source_rates(program, costs, partitions);
    // A source without a declared rate fills its instances completely, including the margin.
    for (node, rate) in rates.iter_mut().enumerate() {
        let fastest = partitions(node) as f64 * 1e9 / costs.of_node[node].per_row_ns.max(1.0);
        *rate = rate.min(fastest * UTILISATION_MAX);
    }
    let rows = rows_into(&program.graph, &costs.of_node, &rates);
    let nodes = program.graph.upstream(output.sink);
    let work = nodes
        .iter()
        .map(|&node| rows[node] * costs.of_node[node].per_row_ns / 1e9)
        .sum::<f64>();
    let sources = nodes
        .iter()
        .filter(|&&node| program.nodes[node].as_source().is_some());
    let sources = sources.copied().collect::<Vec<usize>>();
    let is_endless = sources.iter().all(|&node| is_endless_work(program, node));
    let wanted = match is_endless {
        true => {
            let cost = |node: usize| rows[node] * costs.of_node[node].per_row_ns / 1e9;
            let parsing = sources.iter().map(|&node| cost(node)).sum::<f64>();
            let others = (work - parsing) / work.max(f64::MIN_POSITIVE);
            cores as f64 * others / COST_OF_SENDING
        }
        false => work / UTILISATION_MAX,
    };
    let wanted = (wanted - 1e-9).ceil().max(1.0) as usize;
    let number = wanted.min(cores);
    let measured = nodes.iter().filter(|&&node| costs.measured[node]).count();
    let rows_per_s = nodes.iter().map(|&node| rates[node]).sum::<f64>();
    let bounded = match wanted > cores {
        true => format!(", but the host has {cores}"),
        false => String::new(),
    };
    let why = match is_endless {
        true => format!(
            "input is parsed by {cores} threads as fast as it can be, and keeps {number} instance{} busy",
            if number == 1 { "" } else { "s" }
        ),
        false => format!(
            "{work:.2} cores of work at {} rows/s fill {wanted} to at most {:.0} %{bounded}",
            count(rows_per_s as u64),
            UTILISATION_MAX * 100.0,
        ),
    };
    let note = format!(
        "parallelism {number} for {}: {why}; the costs of {measured} of {} operators were measured by an \
         earlier run, the others are assumed",
        name(program, output.sink),
        nodes.len()
    );
    (number, note)
}

fn name(program: &Program, sink: usize) -> String {
    let Some(spec) = program.nodes[sink].as_sink() else {
        return format!("#{sink}");
    };
    match &spec.table {
        Some(table) => format!("'{}'", table.name),
        None => "the terminal".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::BuiltIn;
    use crate::costs::{Learned, query_costs};
    use slackwater_sql::program::compile;

    fn chosen(text: &str, overrides: &[(&str, &str)], cores: usize) -> Chosen {
        let overrides = overrides.iter();
        let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
        let table = |name: &str, rate: &str| {
            format!(
                "CREATE TABLE {name} (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen',
                 'generator' = 'uservisits' {rate});"
            )
        };
        let sinks = ["a", "b"].map(|name| {
            format!("CREATE TABLE {name} (ip STRING, n BIGINT) WITH ('connector' = 'blackhole');")
        });
        let text = format!(
            "{}{}{}{text}",
            table("slow", ", 'rate' = '1000/s'"),
            table("fast", ""),
            sinks.concat()
        );
        let program = compile(&text, &overrides.collect::<Vec<_>>(), &BuiltIn);
        let program = program.unwrap_or_else(|error| panic!("{error}")).run;
        choose(&program, &query_costs(&program, &Learned::default()), cores)
    }

    const COUNT_SLOW: &str = "INSERT INTO a SELECT ip, COUNT(*) FROM slow GROUP BY ip;";
    const COUNT_SLOW_AGAIN: &str = "INSERT INTO b SELECT ip, SUM(ts_ms) FROM slow GROUP BY ip;";

    #[test]
    fn a_setting_counts_for_the_statements_behind_it() {
        let text = format!(
            "{COUNT_SLOW} SET 'parallelism' = '3'; {COUNT_SLOW_AGAIN} SET 'parallelism' = '2';
             SELECT ip FROM slow;"
        );
        let found = chosen(&text, &[], 8);
        assert_eq!(found.most, 3);
        // The source is shared, and what stands before the first SET has one instance.
        assert_eq!(found.of_node[0], 3);
        let mut sorted = found.of_node.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted, [1, 2, 3]);
        let all = chosen(&text, &[("parallelism", "5")], 8);
        assert!(
            all.of_node
                .iter()
                .all(|&instances| instances == 5 || instances == 1)
        );
        assert_eq!((all.most, all.of_node[0]), (5, 5));
    }

    #[test]
    fn automatic_parallelism_follows_the_work_up_to_the_cores() {
        let auto = |query: &str, cores| {
            let text = format!("SET 'parallelism' = 'auto'; {query}");
            chosen(&text, &[], cores)
        };
        let slow = auto(COUNT_SLOW, 8);
        assert_eq!(slow.most, 1);
        let note = &slow.notes[0];
        for part in [
            "parallelism 1 for 'a'",
            "1,000 rows/s",
            "the costs of 0 of ",
        ] {
            assert!(note.contains(part), "'{part}' is not in: {note}");
        }
        let fast = "INSERT INTO a SELECT ip, COUNT(*) FROM fast GROUP BY ip;";
        let busy = auto(fast, 8);
        assert!(busy.most > 1 && busy.most <= 8, "{busy:?}");
        let bounded = auto(fast, 2);
        assert_eq!(bounded.most, 2);
    }

    #[test]
    fn a_file_is_parsed_by_all_cores_unless_a_number_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.csv");
        std::fs::write(&path, "1,a\n").unwrap();
        let parsers = |before: &str, options: &str, after: &str| {
            let text = format!(
                "CREATE TABLE f (ts_ms BIGINT, ip STRING) WITH ('connector' = 'file', 'path' = '{}'
                 {options}); {before} INSERT INTO a SELECT ip, COUNT(*) FROM f GROUP BY ip; {after}",
                path.display()
            );
            let found = chosen(&text, &[], 8);
            (found.most, *found.parsers.iter().max().unwrap())
        };
        assert_eq!(parsers("", "", ""), (1, 8));
        for number in [1, 3] {
            let set = format!("SET 'parallelism' = '{number}';");
            assert_eq!(parsers(&set, "", ""), (number, number));
        }
        let (instances, threads) = parsers("SET 'parallelism' = 'auto';", "", "");
        assert!((1..8).contains(&instances) && threads == 8, "{instances}");
        // Two statements share the source.
        let again =
            "SET 'parallelism' = '2'; INSERT INTO b SELECT ip, SUM(ts_ms) FROM f GROUP BY ip;";
        assert_eq!(parsers("", "", again), (2, 8));
        // A pace is kept by one thread.
        assert_eq!(parsers("", ", 'replay_rate' = '100/s'", ""), (1, 1));
        assert_eq!(
            parsers(
                "SET 'parallelism' = 'auto';",
                ", 'replay_rate' = '100/s'",
                ""
            ),
            (1, 1)
        );
    }
}
