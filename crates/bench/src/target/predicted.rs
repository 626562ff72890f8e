//! What `slackwater explain` predicts for points with a target, before anything runs, beside what was
//! measured.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::order::Spec;
use super::query::Addresses;
use super::setting::Setting;
use super::summary::Summary;
use crate::lab::{Table, Verdict, distinct, rate};
use crate::programs;

/// How far the predicted CPU time may be from the measured one, as a factor.
const FACTOR_MAX: f64 = 1.3;

/// A prediction and what was measured, in percent of a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The point.
    #[serde(flatten)]
    pub spec: Spec,
    /// The CPU time that `explain` predicts.
    pub predicted_percent: f64,
    /// The CPU time that was measured.
    pub measured_percent: f64,
}

impl Prediction {
    /// Predicted / measured.
    fn ratio(&self) -> f64 {
        self.predicted_percent / self.measured_percent.max(f64::MIN_POSITIVE)
    }
}

/// The predictions for all points with a target.
pub fn predictions(summaries: &[Summary]) -> Result<Vec<Prediction>, String> {
    let mut predictions = Vec::new();
    for summary in summaries {
        let spec = summary.spec;
        predictions.extend(
            predicted_percent(&spec)?.map(|predicted_percent| Prediction {
                spec,
                predicted_percent,
                measured_percent: summary.percent.median,
            }),
        );
    }
    Ok(predictions)
}

/// How far predictions are from what was measured, at worst.
pub fn verdict(predictions: &[Prediction]) -> Verdict {
    let factors = predictions.iter().map(Prediction::ratio);
    let worst = factors.map(|ratio| ratio.max(1.0 / ratio)).reduce(f64::max);
    let shown = predictions.iter().map(|one| format!("{:.2}", one.ratio()));
    let goal = "CPU time predicted by explain against measured, as a factor either way";
    Verdict::at_most(goal, worst, FACTOR_MAX).details(format!(
        "predicted / measured: {}",
        shown.collect::<Vec<String>>().join(", ")
    ))
}

/// A row for each target of each query, a column for each rate.
pub fn table(predictions: &[Prediction]) -> String {
    let rates = distinct(predictions.iter().map(|one| one.spec.rate_per_s));
    let head = ["query", "setting"].map(str::to_string).into_iter();
    let named = rates.iter().map(|&per_s| rate(per_s as f64));
    let mut table = Table::new(head.chain(named));
    let points = predictions.iter();
    for (query, setting) in distinct(points.map(|one| (one.spec.query, one.spec.setting))) {
        let cells = rates.iter().map(|&rate_per_s| {
            let spec = Spec {
                setting,
                query,
                rate_per_s,
            };
            let one = predictions.iter().find(|one| one.spec == spec);
            one.map_or(String::new(), |one| {
                let (predicted, measured) = (one.predicted_percent, one.measured_percent);
                format!("{predicted:.2} / {measured:.2} = {:.2}", one.ratio())
            })
        });
        let names = [query.to_string(), setting.to_string()];
        table.line(names.into_iter().chain(cells));
    }
    table.markdown()
}

/// The predicted CPU time of a point with a target, in percent of a core; `None` without a target.
fn predicted_percent(spec: &Spec) -> Result<Option<f64>, String> {
    if !matches!(spec.setting, Setting::Auto { .. }) {
        return Ok(None);
    }
    // Nobody connects to plan.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let sql = spec.query.sql(&Addresses {
        records: nowhere,
        rows: nowhere,
    });
    let rate = spec.rate_per_s.to_string();
    let mut command = Command::new(programs::engine()?);
    command.args(["explain", "-", "--format", "json", "--rate", &rate]);
    for setting in spec.setting.settings() {
        command.args(["--set", &setting]);
    }
    let failed = |error: std::io::Error| format!("slackwater explain: {error}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut text) = child.stdin.take() {
        // A process that has ended before reading it reports the reason on its standard error.
        let _ = text.write_all(sql.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    let plan = serde_json::from_slice::<serde_json::Value>(&output.stdout);
    let plan = plan.map_err(|error| format!("slackwater explain: {error}"))?;
    Ok(plan["targets"][0]["predicted_cpu_percent"].as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::query::Query;

    #[test]
    fn a_prediction_may_be_too_high_or_too_low() {
        assert_eq!(verdict(&[]).met, None);
        let one = |rate_per_s, predicted_percent, measured_percent| Prediction {
            spec: Spec {
                setting: Setting::Auto { target_us: 20_000 },
                query: Query::Filter,
                rate_per_s,
            },
            predicted_percent,
            measured_percent,
        };
        let all = [one(100, 1.2, 1.0), one(1_000, 1.0, 2.0)];
        assert_eq!(verdict(&all[..1]).met, Some(true));
        let both = verdict(&all);
        assert_eq!((both.measured, both.met), (Some(2.0), Some(false)));
        let text = table(&all);
        assert!(
            text.contains("| query | setting | 100/s | 1 k/s |"),
            "{text}"
        );
        assert!(
            text.contains("| 1.20 / 1.00 = 1.20 | 1.00 / 2.00 = 0.50 |"),
            "{text}"
        );
    }
}
