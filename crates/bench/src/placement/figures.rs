//! The figures: predicted and measured ones compared with published ones and goals.

use serde::Serialize;

use super::deployments::Deployments;
use super::model::{Parameters, Prediction, published};
use super::scaling::Scaling;
use crate::lab::{Table, Verdict, rate};
use slackwater::report::count;

/// All figures.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The parameters of the predictions.
    pub parameters: Parameters,
    /// Predictions for UPM-CEP's machine.
    pub predictions: Vec<Prediction>,
    /// The fixed window in several deployments.
    pub deployed: Deployments,
    /// Measurements on this machine.
    pub scaling: Option<Scaling>,
}

/// The share of rows per CPU second at one instance that a parallelism must keep.
const KEPT: [(usize, f64); 2] = [(2, 0.85), (8, 0.75)];

/// The goals with their verdicts.
pub fn verdicts(predictions: &[Prediction], scaling: Option<&Scaling>) -> Vec<Verdict> {
    let gains = predictions.iter().filter_map(|prediction| {
        let Prediction {
            workload, nodes, ..
        } = prediction;
        let (unaware, aware) = published(workload, *nodes)?;
        let name =
            format!("predicted gain, {workload} on {nodes} node(s); limit: P5's measured gain");
        let gain = aware / unaware - 1.0;
        // As many digits as are known.
        let gain = (gain * 1e3).round() / 1e3;
        Some(Verdict::at_least(name, Some(prediction.gain()), gain))
    });
    let mut goals = gains.collect::<Vec<Verdict>>();
    for point in scaling.into_iter().flat_map(|scaling| &scaling.points) {
        let limit = KEPT
            .iter()
            .find(|(instances, _)| *instances == point.parallelism);
        if let Some((parallelism, limit)) = limit {
            let name = format!(
                "rows per CPU second, {} at parallelism {parallelism}, compared with parallelism 1",
                point.workload
            );
            goals.push(Verdict::at_least(name, Some(point.ratio.median), *limit));
        }
    }
    goals
}

impl Figures {
    /// The figures as text.
    pub fn text(&self) -> String {
        let mut text = self.predicted();
        text.push('\n');
        text.push_str(&self.deployed.text());
        if let Some(scaling) = &self.scaling {
            text.push('\n');
            text.push_str(&measured(scaling));
        }
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
             assumed: {line_local_ns} ns for a local cache line, times distance / 10 for \
             others; {lines_per_linked_row} lines\nof a row over a link, {lines_of_state} of state; \
             {:.1} GB/s in and out of a node; work per row as the planner assumes it\n\
             calibrated: {scale:.1} ns of CPU time for each assumed one\n\n",
            rate(*unaware_one_node_per_s),
            node_bytes_per_s / 1e9,
        );
        let rates = [
            "workload",
            "nodes",
            "unaware/s",
            "kept/s",
            "aware/s",
            "gain",
            "over kept",
        ];
        let others = [
            "distance",
            "unaware",
            "P5 unaware",
            "P5 aware",
            "P5",
            "lines",
        ];
        let mut table = Table::new(rates.into_iter().chain(others));
        for prediction in &self.predictions {
            let published = published(prediction.workload, prediction.nodes);
            let per_s = |value: f64| count(value as u64);
            // Without the sign of a negative zero.
            let percent = |value: f64| format!("{:+.1} %", (value * 1e3).round() / 10.0 + 0.0);
            let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_string());
            table.line([
                prediction.workload.to_string(),
                prediction.nodes.to_string(),
                per_s(prediction.unaware_per_s),
                per_s(prediction.unaware_kept_per_s),
                per_s(prediction.aware_per_s),
                percent(prediction.gain()),
                percent(prediction.gain_over_kept()),
                or(prediction.aware_distance.map(|d| format!("{d:.1}"))),
                format!("{:.1}", prediction.unaware_distance),
                or(published.map(|(unaware, _)| per_s(unaware))),
                or(published.map(|(_, aware)| per_s(aware))),
                or(published.map(|(unaware, aware)| percent(aware / unaware - 1.0))),
                or(prediction
                    .lines_for_published_gain
                    .map(|n| format!("{n:.1}"))),
            ]);
        }
        text.push_str(&table.columns());
        text.push_str(
            "\nunaware: the kernel moves threads over all 16 nodes. kept: over as many nodes as the \
             workers need.\ndistance: of a byte between instances, 0 on a core, 10 on a node. \
             lines: over links per row, with which\nthe model would give P5's gain.\n",
        );
        text
    }
}

fn measured(scaling: &Scaling) -> String {
    let head = ["workload", "parallelism", "rows/s", "rows/CPU s", "/ first"];
    let mut table = Table::new(head.into_iter().chain(["lowest", "highest"]));
    for point in &scaling.points {
        table.line([
            point.workload.to_string(),
            point.parallelism.to_string(),
            count(point.rows_per_s.median as u64),
            count(point.rows_per_cpu_s.median as u64),
            format!("{:.3}", point.ratio.median),
            format!("{:.3}", point.ratio.min),
            format!("{:.3}", point.ratio.max),
        ]);
    }
    format!(
        "measured here: {} records in {} files, {} round(s), medians\n\n{}",
        count(scaling.rows),
        scaling.files,
        scaling.runs,
        table.columns()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predicted_gain_is_compared_with_the_published_one() {
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
        let verdicts = verdicts(&[prediction(0.1), prediction(0.2)], None);
        let met = verdicts.iter().map(|verdict| verdict.met);
        assert_eq!(met.collect::<Vec<_>>(), [Some(false), Some(true)]);
        let line = verdicts[0].line();
        assert!(
            line.starts_with("MISSED by 0.075: predicted gain"),
            "{line}"
        );
        // What P5 has not measured is not a goal.
        let other = Prediction {
            nodes: 2,
            ..prediction(0.1)
        };
        assert_eq!(self::verdicts(&[other], None), []);
    }
}
