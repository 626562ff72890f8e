//! `slackwater explain`.

use std::process::ExitCode;
use std::time::Duration;

use slackwater_sql::program::compile;

use super::arguments::QueryArguments;
use super::{complain, finish};
use crate::bound::Bound;
use crate::broadcast::distance_between_hosts;
use crate::catalog::BuiltIn;
use crate::costs::Learned;
use crate::explain::{Format, Predicted, Price, host_names};
use crate::machine::Machine;
use crate::planner::{learns, plan_bound, plan_on};
use crate::run::{Outcome, RunOptions, run_script};
use crate::script::Script;
use crate::terminal::{USAGE, print, say};

pub(super) const HELP: &str = "\
With a latency target it also shows how the query will meet the target, the next best way to do so, and
what both are predicted to cost. --analyze also runs the query and shows the measured figures.

  slackwater explain query.sql --set 'latency_target=20 ms'
  slackwater explain query.sql --targets --rate 20000/s
  slackwater explain query.sql --analyze --duration 10s
  slackwater explain query.sql --parallelism 36 --topology bullion-s16
  slackwater explain query.sql --parallelism 4 --format svg > plan.svg";

/// What to explain.
pub(super) struct Explain {
    pub(super) format: Format,
    /// The number of hosts to plan for, if not this one.
    pub(super) hosts: Option<usize>,
    /// The load of the sources, if the user named it.
    pub(super) rows_per_s: Option<f64>,
    /// For the table of targets: what a core costs.
    pub(super) price: Option<Price>,
}

/// The plans of a program in a format, and what they predict.
pub(super) fn explained(
    query: &QueryArguments,
    script: &Script,
    explain: &Explain,
) -> Result<(String, Vec<Predicted>), String> {
    let format = explain.format;
    let file = script.name();
    let failed = |error: slackwater_sql::SqlError| script.render(&error);
    let mut compiled = compile(script.text(), &query.settings(), &BuiltIn).map_err(failed)?;
    script.warn(&mut compiled.run);
    script.warn(&mut compiled.explain);
    let programs = [&compiled.run, &compiled.explain];
    let mut programs = programs.into_iter().filter(|program| !program.is_empty());
    if format != Format::Text && programs.clone().count() > 1 {
        return Err(format!(
            "{file}: --format writes a single plan, but EXPLAIN statements have plans of their own\n  \
             = remove EXPLAIN from the file"
        ));
    }
    let (machine, names) = match explain.hosts {
        None => (query.machine()?, Vec::new()),
        Some(hosts) => {
            let machines = vec![(query.machine()?, true); hosts];
            // Beyond loopback there are no hosts without a secret.
            let machine = Machine::of_hosts(&machines, distance_between_hosts(true));
            (machine, host_names(hosts))
        }
    };
    let mut predicted = Vec::new();
    let written = programs.try_fold(String::new(), |written, program| {
        let learned = match learns(program) {
            true => Learned::load(),
            false => Learned::default(),
        };
        let planned = match names.is_empty() {
            true => plan_on(program, &machine, &learned),
            false => Bound::new(program, &names)
                .and_then(|bound| plan_bound(program, &machine, &bound, &learned)),
        };
        let mut plan = planned.map_err(failed)?;
        plan.rows_per_s = explain.rows_per_s;
        if let Some(price) = explain.price {
            return Ok(written + &crate::explain::table(program, &plan, price));
        }
        if std::ptr::eq(program, &compiled.run) {
            predicted = crate::explain::predicted(program, &plan);
        }
        Ok::<String, String>(written + &crate::explain::write(program, &plan, format)?)
    })?;
    Ok((written, predicted))
}

/// Runs a query to measure its costs.
pub(super) fn analyse(
    query: &QueryArguments,
    script: &Script,
    duration: Option<Duration>,
    predicted: &[Predicted],
) -> ExitCode {
    let machine = match query.machine_here() {
        Ok(machine) => machine,
        Err(error) => return complain(&error, USAGE),
    };
    let options = RunOptions {
        settings: query.settings(),
        duration,
        signals: true,
        machine,
        ..RunOptions::default()
    };
    match run_script(script, &options) {
        Ok(Outcome::Finished(finished)) => {
            print(&crate::explain::analysed(&finished.report, predicted));
            say(&format!(
                "\n{}",
                finished.report.summary(&finished.dead_letters)
            ));
            ExitCode::SUCCESS
        }
        outcome => finish(outcome, None, true),
    }
}
