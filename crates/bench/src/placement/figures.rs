//! The figures: what was predicted and measured beside what was published and wanted.

use serde::Serialize;

use super::model::{Parameters, Prediction, published};
use super::scaling::Scaling;
use crate::common::rate;
use slackwater::report::count;

/// All that there is.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// What the predictions rest on.
    pub parameters: Parameters,
    /// On UPM-CEP's machine.
    pub predictions: Vec<Prediction>,
    /// On this machine.
    pub scaling: Option<Scaling>,
    /// What was wanted.
    pub goals: Vec<Goal>,
}

/// What was wanted, and what came of it.
#[derive(Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What.
    pub goal: String,
    /// What was predicted or measured.
    pub found: f64,
    /// What it has to be at least.
    pub limit: f64,
    /// Whether it is.
    pub met: bool,
}

/// Rows per CPU second that a parallelism has to keep of those at one instance.
const KEPT: [(usize, f64); 2] = [(2, 0.85), (8, 0.75)];

/// The goals with their verdicts.
pub fn verdicts(predictions: &[Prediction], scaling: Option<&Scaling>) -> Vec<Goal> {
    let goal = |goal: String, found: f64, limit: f64| Goal {
        goal,
        found,
        limit,
        met: found >= limit,
    };
    let gains = predictions.iter().filter_map(|prediction| {
        let Prediction {
            workload, nodes, ..
        } = prediction;
        let (unaware, aware) = published(workload, *nodes)?;
        let name = format!("predicted gain, {workload} on {nodes} node(s): P5's measured gain");
        Some(goal(name, prediction.gain(), aware / unaware - 1.0))
    });
    let mut goals = gains.collect::<Vec<Goal>>();
    for point in scaling.into_iter().flat_map(|scaling| &scaling.points) {
        let limit = KEPT.iter().find(|(of, _)| *of == point.parallelism);
        if let Some((parallelism, limit)) = limit {
            let name = format!(
                "rows per CPU second, {} at parallelism {parallelism}, of parallelism 1",
                point.workload
            );
            goals.push(goal(name, point.ratio.median, *limit));
        }
    }
    goals
}

impl Goal {
    fn line(&self) -> String {
        let verdict = match self.met {
            true => format!("met by {:.3}", self.found - self.limit),
            false => format!("missed by {:.3}", self.limit - self.found),
        };
        format!(
            "{}: at least {:.3}, found {:.3}: {verdict}\n",
            self.goal, self.limit, self.found
        )
    }
}

impl Figures {
    /// All of it as people read it.
    pub fn table(&self) -> String {
        let mut text = self.predicted();
        if let Some(scaling) = &self.scaling {
            text.push('\n');
            text.push_str(&measured(scaling));
        }
        text.push_str("\ngoals\n");
        let goals = self.goals.iter().map(Goal::line);
        text.push_str(&goals.collect::<String>());
        text
    }

    fn predicted(&self) -> String {
        let Parameters {
            machine,
            workers_per_node,
            unaware_one_node_per_s,
            line_local_ns,
            lines_per_linked_row,
            lines_of_state,
            node_bytes_per_s,
            scale,
        } = &self.parameters;
        let mut text = format!(
            "predicted on the {machine}: a prediction, not a reproduction\n\
             from P5: {workers_per_node} workers a node, the machine's distances, {} unaware on one \
             node (fixwindow)\n\
             assumed: {line_local_ns} ns for a cache line of the own node, times distance / 10 for \
             others; {lines_per_linked_row} lines\nof a row over a link, {lines_of_state} of state; \
             {:.1} GB/s in and out of a node; work per row as the planner assumes it\n\
             calibrated: {scale:.1} ns of CPU time for each assumed one\n\n",
            rate(*unaware_one_node_per_s),
            node_bytes_per_s / 1e9,
        );
        text.push_str(&format!(
            "{:<12} {:>5} {:>11} {:>11} {:>11} {:>7} {:>7} {:>8} {:>8} {:>11} {:>11} {:>7} {:>7}\n",
            "workload",
            "nodes",
            "unaware/s",
            "kept/s",
            "aware/s",
            "gain",
            "of kept",
            "distance",
            "unaware",
            "P5 unaware",
            "P5 aware",
            "P5",
            "lines"
        ));
        for prediction in &self.predictions {
            let published = published(prediction.workload, prediction.nodes);
            let per_s = |value: f64| count(value as u64);
            // Without the sign of a zero.
            let percent = |value: f64| format!("{:+.1} %", (value * 1e3).round() / 10.0 + 0.0);
            let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_string());
            text.push_str(&format!(
                "{:<12} {:>5} {:>11} {:>11} {:>11} {:>7} {:>7} {:>8} {:>8.1} {:>11} {:>11} {:>7} {:>7}\n",
                prediction.workload,
                prediction.nodes,
                per_s(prediction.unaware_per_s),
                per_s(prediction.unaware_kept_per_s),
                per_s(prediction.aware_per_s),
                percent(prediction.gain()),
                percent(prediction.gain_over_kept()),
                or(prediction.aware_distance.map(|d| format!("{d:.1}"))),
                prediction.unaware_distance,
                or(published.map(|(unaware, _)| per_s(unaware))),
                or(published.map(|(_, aware)| per_s(aware))),
                or(published.map(|(unaware, aware)| percent(aware / unaware - 1.0))),
                or(prediction.lines_for_published_gain.map(|n| format!("{n:.1}"))),
            ));
        }
        text.push_str(
            "\nunaware: the kernel moves threads over all 16 nodes. kept: over as many nodes as there \
             are workers for.\ndistance: of a byte between instances, 0 on a core, 10 on a node. \
             lines: over links per row, with which\nthe model would give P5's gain.\n",
        );
        text
    }
}

fn measured(scaling: &Scaling) -> String {
    let mut text = format!(
        "measured here: {} records in {} files, {} round(s), medians; {}, {} core(s)\n\n{:<12} {:>11} \
         {:>12} {:>14} {:>9} {:>15}\n",
        count(scaling.rows),
        scaling.files,
        scaling.runs,
        scaling.machine.processor,
        scaling.machine.cores,
        "workload",
        "parallelism",
        "rows/s",
        "rows/CPU s",
        "of first",
        "lowest, highest"
    );
    for point in &scaling.points {
        text.push_str(&format!(
            "{:<12} {:>11} {:>12} {:>14} {:>9.3} {:>8.3} {:>6.3}\n",
            point.workload,
            point.parallelism,
            count(point.rows_per_s.median as u64),
            count(point.rows_per_cpu_s.median as u64),
            point.ratio.median,
            point.ratio.min,
            point.ratio.max,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_says_by_how_much_it_is_missed() {
        let prediction = |gain: f64| Prediction {
            workload: "fixwindow",
            nodes: 1,
            aware_per_s: 570e3 * (1.0 + gain),
            unaware_per_s: 570e3,
            unaware_kept_per_s: 600e3,
            aware_distance: None,
            unaware_distance: 30.0,
            lines_for_published_gain: None,
        };
        let lines = verdicts(&[prediction(0.1), prediction(0.2)], None);
        let lines = lines.iter().map(Goal::line).collect::<Vec<String>>();
        assert!(lines[0].ends_with("missed by 0.075\n"), "{lines:?}");
        assert!(lines[1].ends_with("met by 0.025\n"), "{lines:?}");
        // What P5 has not measured is no goal.
        let other = Prediction {
            nodes: 2,
            ..prediction(0.1)
        };
        assert_eq!(verdicts(&[other], None), []);
    }
}
