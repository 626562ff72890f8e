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
    /// The number of instances of the statement that gets the most.
    pub most: usize,
    /// How `'auto'` was decided, for each statement with it.
    pub notes: Vec<String>,
}

/// Chooses the numbers for all statements of a program on `cores` cores.
pub fn choose(program: &Program, costs: &QueryCosts, cores: usize) -> Chosen {
    let mut chosen = Chosen {
        of_node: vec![1; program.nodes.len()],
        most: 1,
        notes: Vec::new(),
    };
    for output in &program.outputs {
        let wanted = match output.parallelism {
            Parallelism::Fixed(number) => number,
            Parallelism::Auto => {
                let (number, note) = automatic(program, output, costs, cores);
                chosen.notes.push(note);
                number
            }
        };
        for node in program.graph.upstream(output.sink) {
            chosen.of_node[node] = chosen.of_node[node].max(wanted);
        }
        chosen.most = chosen.most.max(wanted);
    }
    chosen
}

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
    let wanted = (work / UTILISATION_MAX - 1e-9).ceil().max(1.0) as usize;
    let number = wanted.min(cores);
    let measured = nodes.iter().filter(|&&node| costs.measured[node]).count();
    let rows_per_s = nodes.iter().map(|&node| rates[node]).sum::<f64>();
    let bounded = match wanted > cores {
        true => format!(", but the host has {cores}"),
        false => String::new(),
    };
    let note = format!(
        "parallelism {number} for {}: {work:.2} cores of work at {} rows/s fill {wanted} to at most \
         {:.0} %{bounded}; the costs of {measured} of {} operators were measured by an earlier run, the \
         others are assumed",
        name(program, output.sink),
        count(rows_per_s as u64),
        UTILISATION_MAX * 100.0,
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
}
