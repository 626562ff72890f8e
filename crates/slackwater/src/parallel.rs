//! The number of instances of each statement, and of the threads that parse the input of each source.
//!
//! `SET 'parallelism'` counts for the statements that follow it; what several of them read is run by
//! as many instances as the one that wants most. `'auto'`, the default, decides by what is known of the
//! sources of a statement and of the costs of its operators (`costs.rs`):
//!
//! - **Sources with a rate.** Work, in cores, is the sum over the operators of rows/s × CPU time per row, and
//!   is spread over as many instances as leave each a margin: work / 0.7, rounded up, at most the cores.
//! - **Sources that are read as fast as they can be** (files). There is always work for all cores; the
//!   question is how many make it faster ([`cores_for`]), and whether one instance keeps up with them. That
//!   depends on what the operators cost, so there is one instance until a run has measured it.
//! - **Sources that wait for their input** (pipes, sockets, topics). Their load is not known: one instance.
//!   Rows that go from instance to instance cost CPU time and latency at any rate.
//!
//! Parsing needs no instances: as many threads as there are cores may parse for a source that sets no pace
//! itself ([`slackwater_engine::source::SourceDescription::parsers`]), and take part only while there is
//! something for them.

use std::collections::BTreeSet;

use slackwater_control::demand::rows_into;
use slackwater_control::latency::model::UTILISATION_MAX;
use slackwater_control::query::{Exchange, NodeKind};
use slackwater_sql::program::{Output, Program};
use slackwater_sql::settings::Parallelism;

use crate::costs::{QueryCosts, source_rates};
use crate::report::count;

/// The number of instances of each subquery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The instances of the subquery that starts at each node.
    pub of_node: Vec<usize>,
    /// The threads that parse the input of each source, by node.
    pub parsers: Vec<Parsing>,
    /// The number of instances of the statement that gets the most.
    pub most: usize,
    /// How `'auto'` was decided, for each statement that sets it or gets more than one instance.
    pub notes: Vec<String>,
}

/// The number of threads that parse the input of a source, its instances' own included, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsing {
    /// At most so many threads.
    pub threads: usize,
    /// Why.
    pub why: Why,
}

/// Why so many threads parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its instances do: it keeps a pace, or nothing is parsed.
    Alone,
    /// The parallelism is a number.
    Parallelism,
    /// `'parsers'` is set.
    Set,
    /// As many as the input needs, whose rate is not known.
    OnDemand,
    /// It is read as fast as it can be.
    Endless,
}

impl Why {
    /// The reason, for users.
    pub fn text(self) -> &'static str {
        match self {
            Why::Alone => "its instances parse",
            Why::Parallelism => "as 'parallelism'",
            Why::Set => "as 'parsers'",
            Why::OnDemand => "as many as its input needs",
            Why::Endless => "it is read as fast as it can be",
        }
    }
}

/// Chooses the numbers for all statements of a program on `cores` cores.
pub fn choose(program: &Program, costs: &QueryCosts, cores: usize) -> Chosen {
    let alone = Parsing {
        threads: 1,
        why: Why::Alone,
    };
    let mut chosen = Chosen {
        of_node: vec![1; program.nodes.len()],
        parsers: vec![alone; program.nodes.len()],
        most: 1,
        notes: Vec::new(),
    };
    for output in &program.outputs {
        let wanted = match output.parallelism {
            Some(Parallelism::Fixed(number)) => Decided::fixed(number),
            None | Some(Parallelism::Auto) => {
                let decided = automatic(program, output, costs, cores);
                if output.parallelism.is_some() || decided.instances > 1 {
                    chosen.notes.push(decided.note.clone());
                }
                decided
            }
        };
        for node in program.graph.upstream(output.sink) {
            chosen.of_node[node] = chosen.of_node[node].max(wanted.instances);
            let parsing = match pace(program, node) {
                _ if wanted.is_fixed => Parsing {
                    threads: wanted.instances,
                    why: Why::Parallelism,
                },
                Some(Pace::Endless { parsers: true }) => Parsing {
                    threads: wanted.cores,
                    why: Why::Endless,
                },
                Some(Pace::Waits { parsers: true }) => Parsing {
                    threads: cores,
                    why: Why::OnDemand,
                },
                _ => Parsing {
                    threads: wanted.instances,
                    why: Why::Alone,
                },
            };
            let known = &mut chosen.parsers[node];
            if parsing.threads > known.threads {
                *known = parsing;
            }
        }
        chosen.most = chosen.most.max(wanted.instances);
    }
    chosen
}

/// What decides how fast rows of a source come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The source itself, or its options.
    Own,
    /// The reader. Whether several threads can parse for it.
    Endless { parsers: bool },
    /// Whoever sends it something. Whether several threads can parse for it.
    Waits { parsers: bool },
}

/// The pace of a source; `None` for other nodes.
fn pace(program: &Program, node: usize) -> Option<Pace> {
    let described = program.nodes[node].as_source()?.connector.describe();
    let parsers = described.parsers;
    Some(match (described.rows_per_s, described.bounded) {
        (Some(_), _) => Pace::Own,
        (None, true) => Pace::Endless { parsers },
        (None, false) => Pace::Waits { parsers },
    })
}

/// What was decided for a statement.
struct Decided {
    instances: usize,
    is_fixed: bool,
    /// The cores that bring something.
    cores: usize,
    note: String,
}

impl Decided {
    fn fixed(number: usize) -> Decided {
        Decided {
            instances: number,
            is_fixed: true,
            cores: number,
            note: String::new(),
        }
    }
}

/// The number for one statement with `'auto'`, and a note that explains it.
fn automatic(program: &Program, output: &Output, costs: &QueryCosts, cores: usize) -> Decided {
    let nodes = program.graph.upstream(output.sink);
    let paces = nodes.iter().filter_map(|&node| pace(program, node));
    let paces = paces.collect::<Vec<Pace>>();
    let measured = nodes.iter().filter(|&&node| costs.measured[node]).count();
    let (cores, instances, why) = if paces.iter().any(|pace| matches!(pace, Pace::Waits { .. })) {
        let why = "how much input arrives is not known before it does".to_string();
        (cores, 1, why)
    } else if paces
        .iter()
        .all(|pace| matches!(pace, Pace::Endless { .. }))
    {
        endless(program, &nodes, costs, cores)
    } else {
        paced(program, &nodes, costs, cores)
    };
    let note = format!(
        "parallelism {instances} for {}: {why}; the costs of {measured} of {} operators were measured by an \
         earlier run, the others are assumed",
        name(program, output.sink),
        nodes.len()
    );
    Decided {
        instances,
        is_fixed: false,
        cores,
        note,
    }
}

/// The instances for sources some of which have a pace, and the reason.
fn paced(
    program: &Program,
    nodes: &BTreeSet<usize>,
    costs: &QueryCosts,
    cores: usize,
) -> (usize, usize, String) {
    let partitions = |node: usize| program.graph.nodes[node].instances_max.min(cores);
    let mut rates = source_rates(program, costs, partitions);
    // A source without a declared rate fills its instances completely, including the margin.
    for (node, rate) in rates.iter_mut().enumerate() {
        let fastest = partitions(node) as f64 * 1e9 / costs.of_node[node].per_row_ns.max(1.0);
        *rate = rate.min(fastest * UTILISATION_MAX);
    }
    let rows = rows_into(&program.graph, &costs.of_node, &rates);
    let cost = |&node: &usize| rows[node] * costs.of_node[node].per_row_ns / 1e9;
    let work = nodes.iter().map(cost).sum::<f64>();
    let wanted = (work / UTILISATION_MAX - 1e-9).ceil().max(1.0) as usize;
    let rows_per_s = nodes.iter().map(|&node| rates[node]).sum::<f64>();
    let bounded = match wanted > cores {
        true => format!(", but the host has {cores}"),
        false => String::new(),
    };
    let why = format!(
        "{work:.2} cores of work at {} rows/s fill {wanted} to at most {:.0} %{bounded}",
        count(rows_per_s as u64),
        UTILISATION_MAX * 100.0,
    );
    (cores, wanted.min(cores), why)
}

/// The cores and instances for sources that are read as fast as they can be, and the reason.
fn endless(
    program: &Program,
    nodes: &BTreeSet<usize>,
    costs: &QueryCosts,
    cores: usize,
) -> (usize, usize, String) {
    // Shares count, so any rate does.
    let rates = source_rates(program, costs, |_| 1);
    let rows = rows_into(&program.graph, &costs.of_node, &rates);
    let mut shares = Shares::default();
    let mut measured = 0.0;
    for &node in nodes {
        let cost = rows[node] * costs.of_node[node].per_row_ns;
        if costs.measured[node] {
            measured += cost;
        }
        *match pace(program, node) {
            Some(Pace::Endless { parsers: true }) => &mut shares.parsing,
            _ if is_divided(program, node) => &mut shares.divided,
            _ => &mut shares.serial,
        } += cost;
    }
    let all = shares.parsing + shares.divided + shares.serial;
    if measured < all * MEASURED_MIN {
        let why = "no run has measured yet whether one instance keeps up with input that is read as fast as \
            it can be";
        return (cores, 1, why.to_string());
    }
    let (used, instances, speed) = cores_for(&shares, cores);
    let why = format!(
        "{used} of {cores} cores make it {speed:.1} times as fast as one, reading input as fast as it can be"
    );
    (used, instances, why)
}

/// Whether several instances divide the work of a node among them.
fn is_divided(program: &Program, node: usize) -> bool {
    let found = &program.graph.nodes[node];
    let is_divided = |from: usize, exchange: &Exchange| match exchange {
        Exchange::Forward | Exchange::Apart => is_divided(program, from),
        Exchange::Single => false,
        _ => true,
    };
    let mut inputs = found.inputs.iter();
    found.instances_max > 1
        && (found.kind == NodeKind::Source
            || inputs.any(|edge| is_divided(edge.from, &edge.exchange)))
}

/// The CPU time of a query, in parts; in any unit.
#[derive(Debug, Clone, Copy, Default)]
struct Shares {
    /// What all threads that parse can share.
    parsing: f64,
    /// What instances can share.
    divided: f64,
    /// What one thread does.
    serial: f64,
}

/// How much more a row costs that goes from one instance to another: medians of 1.06 to 1.25 were measured.
const COST_OF_SENDING: f64 = 1.2;

/// The share of a query's CPU time that must have been measured before it gets several instances: a second
/// one that brings nothing costs a fifth more, and what rows cost can differ tenfold from what is assumed.
const MEASURED_MIN: f64 = 0.9;

/// What each core has to bring where several instances use it, in cores.
const GAIN_MIN: f64 = 0.6;

/// How many times as fast several instances have to be as one. Keys are seldom divided evenly: Nexmark's q4
/// should have been 1.15 times as fast with two, and took 1.25 times as long.
const SEVERAL_GAIN_MIN: f64 = 1.2;

/// The share of the greatest speed that is enough: threads that would add less are left out.
const SPEED_ENOUGH: f64 = 0.98;

/// How many cores are used, by how many instances, and how many times as fast as one core they are. One
/// instance gets as many threads to parse for it as make it faster: they do no work that would not be done
/// without them. Several instances cost more, so each of their cores has to bring something.
fn cores_for(shares: &Shares, cores: usize) -> (usize, usize, f64) {
    let time = |cores: usize, instances: usize| {
        let sent = if instances > 1 { COST_OF_SENDING } else { 1.0 };
        let divided = shares.divided * sent;
        let longest = shares.serial + divided / instances as f64;
        ((shares.parsing + shares.serial + divided) / cores as f64).max(longest)
    };
    let one = time(1, 1);
    if one <= 0.0 {
        return (1, 1, 1.0);
    }
    let speed = |cores: usize, instances: usize| one / time(cores, instances);
    let most = speed(cores, 1);
    let enough = (1..=cores).find(|&used| speed(used, 1) >= most * SPEED_ENOUGH);
    let alone = enough.unwrap_or(cores);
    let several = (2..=cores).map(|used| {
        let speeds = (2..=used).map(|instances| (used, instances, speed(used, instances)));
        let best = speeds.reduce(|best, next| if next.2 > best.2 * 1.001 { next } else { best });
        best.unwrap_or((used, 1, 0.0))
    });
    let net = |found: &(usize, usize, f64)| found.2 - GAIN_MIN * found.0 as f64;
    let several = several.reduce(|best, next| if net(&next) > net(&best) { next } else { best });
    let several = several.filter(|(.., speed)| *speed >= most * SEVERAL_GAIN_MIN);
    several.unwrap_or((alone, 1, speed(alone, 1)))
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
            table("fast", ", 'rate' = '1000000000/s'"),
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
        // It is the default, which says something only if it decides for more than one.
        let (slow, fast) = (chosen(COUNT_SLOW, &[], 8), chosen(fast, &[], 8));
        assert_eq!((slow.most, slow.notes.len()), (1, 0));
        assert_eq!((fast.most, fast.notes.len()), (busy.most, 1));
    }

    #[test]
    fn cores_are_used_as_long_as_each_brings_enough() {
        let shares = |parsing: f64, divided: f64, serial: f64| Shares {
            parsing,
            divided,
            serial,
        };
        let chosen = |shares: Shares, cores| {
            let (cores, instances, _) = cores_for(&shares, cores);
            (cores, instances)
        };
        // Mostly parsing: all cores, one instance.
        assert_eq!(chosen(shares(0.9, 0.05, 0.05), 2), (2, 1));
        assert_eq!(chosen(shares(0.9, 0.05, 0.05), 8), (8, 1));
        // An instance that is full is not helped by more parsers, but by another instance.
        assert_eq!(chosen(shares(0.7, 0.3, 0.0), 2), (2, 1));
        let (cores, instances) = chosen(shares(0.7, 0.3, 0.0), 16);
        assert!(cores == 16 && (6..=16).contains(&instances), "{instances}");
        assert_eq!(chosen(shares(0.2, 0.8, 0.0), 2), (2, 2));
        // One thread has to do half of it.
        assert_eq!(chosen(shares(0.5, 0.0, 0.5), 16), (2, 1));
        assert_eq!(chosen(shares(0.0, 0.0, 1.0), 16), (1, 1));
        assert_eq!(chosen(shares(0.0, 0.0, 0.0), 16).1, 1);
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
            let parsers = found.parsers.iter().map(|parsing| parsing.threads);
            (found.most, parsers.max().unwrap())
        };
        assert_eq!(parsers("", "", ""), (1, 8));
        for number in [1, 3] {
            let set = format!("SET 'parallelism' = '{number}';");
            assert_eq!(parsers(&set, "", ""), (number, number));
        }
        let (instances, threads) = parsers("SET 'parallelism' = 'auto';", "", "");
        // One instance, because no run has measured what its operators cost.
        assert_eq!((instances, threads), (1, 8));
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
