//! The fixed window in the deployments that UPM-CEP's machine allows, predicted: a copy of the query on each
//! node as P5 ran it, one query over all nodes, and copies with one answer (`SET 'copies' = 'nodes'`).
//!
//! One parameter is fitted to P5's gain on one node: the cache lines of a row over a link. What follows for
//! more nodes is the prediction. Every rate can be computed by hand from the printed terms.

use serde::Serialize;

use super::model::{Case, Options, Parameters, UNAWARE_ONE_NODE_PER_S, fitted, published};
use super::terms::Terms;
use crate::hibench::workload::Workload;
use crate::lab::{Table, Verdict};
use slackwater::report::count;

/// The prediction for a deployment on a number of nodes.
#[derive(Debug, Clone, Serialize)]
pub struct Deployment {
    /// How the query is deployed.
    pub name: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// What a row costs.
    pub terms: Terms,
    /// Events per second when placed by the planner.
    pub aware_per_s: f64,
    /// Events per second when the kernel places threads on the whole machine.
    pub unaware_per_s: f64,
    /// Bytes between nodes for each event when placed.
    pub aware_bytes: f64,
    /// The same when the kernel places threads.
    pub unaware_bytes: f64,
}

impl Deployment {
    /// The gain that P5 measured for this deployment, unless the parameters were fitted to it.
    pub fn published_gain(&self) -> Option<f64> {
        let is_it = self.name == AS_P5 && self.nodes > 1;
        let (unaware, aware) =
            published(Workload::FixWindow.name(), self.nodes).filter(|_| is_it)?;
        Some(aware / unaware - 1.0)
    }

    /// The gain of placement.
    pub fn gain(&self) -> f64 {
        self.aware_per_s / self.unaware_per_s - 1.0
    }
}

/// Predictions with their parameters.
#[derive(Debug, Clone, Serialize)]
pub struct Deployments {
    /// The parameters: those of the other predictions, with fitted lines.
    pub parameters: Parameters,
    /// Addresses with an event in a window (assumed: those of the generator here).
    pub groups_per_window: f64,
    /// Each deployment on each number of nodes.
    pub deployments: Vec<Deployment>,
}

/// HiBench's window.
const WINDOW_S: f64 = 30.0;

/// The addresses of the generator `uservisits` unless it is told another number.
const GROUPS: f64 = 10_000.0;

/// The nodes of the machine, among which the kernel moves threads.
const MACHINE_NODES: usize = 16;

/// As P5 ran it: the published figures are of this one.
const AS_P5: &str = "copies as in P5";

/// Predicts all deployments on these numbers of nodes.
pub fn predict(nodes: &[usize]) -> Result<Deployments, String> {
    // As many events as P5's unaware runs have in a window.
    let options = |nodes: usize, copies: bool| Options {
        copies,
        results_per_row: Some(GROUPS / (UNAWARE_ONE_NODE_PER_S * nodes as f64 * WINDOW_S)),
    };
    let parameters = fitted(&options(1, false))?;
    let one = Case::new(Workload::FixWindow, 1, &options(1, false))?;
    let mut deployments = Vec::new();
    for &nodes in nodes {
        // The same query on one node, as often as there are nodes.
        let mut copied = deployment(AS_P5, nodes, one.terms(&parameters), &parameters);
        copied.aware_per_s *= nodes as f64;
        copied.unaware_per_s *= nodes as f64;
        deployments.push(copied);
        if nodes == 1 {
            continue;
        }
        for (name, copies) in [("one query", false), ("copies, one answer", true)] {
            let case = Case::new(Workload::FixWindow, nodes, &options(nodes, copies))?;
            let terms = case.terms(&parameters);
            deployments.push(deployment(name, nodes, terms, &parameters));
        }
    }
    Ok(Deployments {
        parameters,
        groups_per_window: GROUPS,
        deployments,
    })
}

fn deployment(
    name: &'static str,
    nodes: usize,
    terms: Terms,
    parameters: &Parameters,
) -> Deployment {
    let per_s = |ns: f64| terms.workers as f64 * 1e9 / ns;
    let local_ns = parameters.line_local_ns;
    Deployment {
        name,
        nodes,
        aware_per_s: per_s(terms.aware_ns(local_ns) * terms.busiest),
        unaware_per_s: per_s(terms.unaware_ns(local_ns)),
        aware_bytes: terms.aware_bytes(),
        unaware_bytes: terms.unaware_bytes(MACHINE_NODES),
        terms,
    }
}

impl Deployments {
    /// Predicted gains compared with those that P5 measured.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let deployments = self.deployments.iter();
        let verdicts = deployments.filter_map(|deployment| {
            let gain = (deployment.published_gain()? * 1e3).round() / 1e3;
            let Deployment { name, nodes, .. } = deployment;
            let what =
                format!("predicted gain, {name} on {nodes} nodes; limit: P5's measured gain");
            Some(Verdict::at_least(what, Some(deployment.gain()), gain))
        });
        verdicts.collect()
    }

    /// The table.
    pub fn text(&self) -> String {
        let Parameters {
            line_local_ns,
            lines_per_linked_row,
            scale,
            ..
        } = &self.parameters;
        let mut text = format!(
            "fixwindow by deployment, predicted: {lines_per_linked_row:.1} lines of a row over a link \
             are fitted to P5's gain on one node,\n\
             {scale:.1} ns of CPU time for each assumed one; {} groups in a window of {WINDOW_S} s\n\n",
            count(self.groups_per_window as u64)
        );
        let head = [
            "deployment",
            "nodes",
            "work",
            "state",
            "link",
            "distance",
            "unaware",
            "busiest",
        ];
        let rates = [
            "unaware/s",
            "aware/s",
            "gain",
            "P5",
            "bytes unaware",
            "aware",
        ];
        let mut table = Table::new(head.into_iter().chain(rates));
        for deployment in &self.deployments {
            let Deployment {
                name, nodes, terms, ..
            } = deployment;
            let percent = |value: f64| format!("{:+.1} %", (value * 1e3).round() / 10.0 + 0.0);
            let published = published(Workload::FixWindow.name(), *nodes);
            let published = published.filter(|_| *name == AS_P5);
            let gain = published.map(|(unaware, aware)| percent(aware / unaware - 1.0));
            table.line([
                name.to_string(),
                nodes.to_string(),
                format!("{:.0}", terms.work_ns),
                format!("{:.2}", terms.state_lines),
                format!("{:.2}", terms.link_lines),
                format!("{:.2}", terms.distance),
                format!("{:.2}", terms.unaware_distance),
                format!("{:.4}", terms.busiest),
                count(deployment.unaware_per_s as u64),
                count(deployment.aware_per_s as u64),
                percent(deployment.gain()),
                gain.unwrap_or_else(|| "-".to_string()),
                format!("{:.0}", deployment.unaware_bytes),
                format!("{:.0}", deployment.aware_bytes),
            ]);
        }
        text.push_str(&table.columns());
        text.push_str(&format!(
            "\nplaced: ns = work + {line_local_ns} × (state + link × distance / 10), events/s = 18 × nodes × \
             1e9 / (ns × busiest).\n\
             unaware: ns = work + {line_local_ns} × (state + link) × unaware / 10, events/s = 18 × nodes × \
             1e9 / ns.\n\
             state, link: cache lines of an event. busiest: the busiest worker's share, compared with an \
             equal one.\nbytes: between nodes for each event. P5's copies have an answer each.\n"
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_gain_what_one_node_gains_and_send_less_than_one_query() {
        let found = predict(&[1, 4]).unwrap();
        let [one, as_p5, whole, copies] = found.deployments.as_slice() else {
            panic!("{found:?}");
        };
        // Fitted.
        assert!((one.unaware_per_s / 570e3 - 1.0).abs() < 1e-6, "{one:?}");
        assert!((one.aware_per_s / 670e3 - 1.0).abs() < 1e-3, "{one:?}");
        assert!((as_p5.gain() - one.gain()).abs() < 1e-9);
        assert_eq!((one.aware_bytes, as_p5.aware_bytes), (0.0, 0.0));
        assert!(whole.gain() < one.gain(), "{whole:?}");
        assert!(copies.aware_per_s > whole.aware_per_s, "{copies:?}");
        assert!(
            copies.aware_bytes < whole.aware_bytes / 5.0,
            "{copies:?} {whole:?}"
        );
    }

    #[test]
    fn rates_follow_from_the_printed_terms() {
        let found = predict(&[2]).unwrap();
        for deployment in &found.deployments {
            let Terms {
                work_ns,
                state_lines,
                link_lines,
                distance,
                busiest,
                ..
            } = deployment.terms;
            let ns = work_ns + 100.0 * (state_lines + link_lines * distance / 10.0);
            let per_s = 36e9 / (ns * busiest);
            assert!(
                (per_s / deployment.aware_per_s - 1.0).abs() < 1e-9,
                "{deployment:?}"
            );
        }
    }
}
