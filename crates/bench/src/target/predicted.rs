//! What `slackwater explain` predicts for a point, before anything runs.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::order::Spec;
use super::query::Addresses;
use super::setting::Setting;
use crate::programs;

/// The predicted CPU time of a point with a target, in percent of a core; `None` without a target.
pub fn predicted_percent(spec: &Spec) -> Result<Option<f64>, String> {
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
