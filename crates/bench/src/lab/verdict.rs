//! Goals, met or missed.

use serde::Serialize;

/// The limit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// A goal and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The goal; for a comparison that is not a goal, what is compared.
    pub goal: String,
    /// Whether this is a goal, and not only a comparison.
    pub is_goal: bool,
    /// The measured figure; `None` if the points that the goal needs were not measured.
    pub measured: Option<f64>,
    /// Text after the figure, such as its spread.
    pub note: String,
    #[serde(flatten)]
    bound: Bound,
    /// Whether the goal is met.
    pub met: Option<bool>,
    /// The figures that the verdict is based on.
    pub details: String,
}

impl Verdict {
    /// A goal with an upper limit.
    pub fn at_most(goal: impl Into<String>, measured: Option<f64>, limit: f64) -> Verdict {
        let met = measured.map(|measured| measured <= limit);
        Verdict::of(goal.into(), measured, Bound::AtMost(limit), met)
    }

    /// A goal with a lower limit.
    pub fn at_least(goal: impl Into<String>, measured: Option<f64>, limit: f64) -> Verdict {
        let met = measured.map(|measured| measured >= limit);
        Verdict::of(goal.into(), measured, Bound::AtLeast(limit), met)
    }

    fn of(goal: String, measured: Option<f64>, bound: Bound, met: Option<bool>) -> Verdict {
        Verdict {
            goal,
            is_goal: true,
            measured,
            note: String::new(),
            bound,
            met,
            details: String::new(),
        }
    }

    /// The verdict with the figures that it is based on.
    pub fn details(self, details: impl Into<String>) -> Verdict {
        let details = details.into();
        Verdict { details, ..self }
    }

    /// The verdict with text after the figure.
    pub fn note(self, note: impl Into<String>) -> Verdict {
        let note = note.into();
        Verdict { note, ..self }
    }

    /// The verdict, which is missed unless another condition holds as well.
    pub fn only_if(self, holds: bool) -> Verdict {
        let met = self.met.map(|met| met && holds);
        Verdict { met, ..self }
    }

    /// The verdict as a mere comparison, unless it is a goal.
    pub fn beside_unless(self, is_goal: bool) -> Verdict {
        Verdict { is_goal, ..self }
    }

    /// The verdict as a line of text.
    pub fn line(&self) -> String {
        let (words, limit) = match self.bound {
            Bound::AtMost(limit) => ("at most", limit),
            Bound::AtLeast(limit) => ("at least", limit),
        };
        let goal = &self.goal;
        let (Some(measured), Some(met)) = (self.measured, self.met) else {
            return format!("not measured: {goal}, {words} {limit}");
        };
        let beyond = match self.bound {
            Bound::AtMost(limit) => measured - limit,
            Bound::AtLeast(limit) => limit - measured,
        };
        let said = match (self.is_goal, met, self.bound) {
            (true, true, _) => "met".to_string(),
            (true, false, _) if beyond > 0.0 => format!("MISSED by {}", short(beyond)),
            (true, false, _) => "MISSED".to_string(),
            (false, true, Bound::AtMost(_)) => "comparison, within".to_string(),
            (false, false, Bound::AtMost(_)) => "comparison, beyond".to_string(),
            (false, true, Bound::AtLeast(_)) => "comparison, reached".to_string(),
            (false, false, Bound::AtLeast(_)) => "comparison, not reached".to_string(),
        };
        let mut line = format!("{said}: {goal}: {}", figure(measured, limit));
        if !self.note.is_empty() {
            line += &format!(" ({})", self.note);
        }
        line += &format!(", {words} {limit}");
        if !self.details.is_empty() {
            line += &format!("; {}", self.details);
        }
        line
    }
}

/// Counts are whole numbers, ratios are not.
fn figure(measured: f64, limit: f64) -> String {
    let is_whole = |value: f64| (value - value.round()).abs() < 1e-9;
    match is_whole(measured) && is_whole(limit) {
        true => format!("{measured:.0}"),
        false => format!("{measured:.2}"),
    }
}

/// Up to three digits after the point, so that a near miss is visible.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "0" => "less than 0.001".to_string(),
        text => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_contains_the_measurement_and_the_limit() {
        let line = |verdict: Verdict| verdict.line();
        let goal = |measured| Verdict::at_most("CPU time", measured, 1.1);
        assert_eq!(line(goal(Some(0.5))), "met: CPU time: 0.50, at most 1.1");
        let noted = goal(Some(2.25)).note("raw 2.5").details("of 7");
        assert_eq!(
            line(noted),
            "MISSED by 1.15: CPU time: 2.25 (raw 2.5), at most 1.1; of 7"
        );
        assert_eq!(line(goal(None)), "not measured: CPU time, at most 1.1");
        let close = Verdict::at_least("rows", Some(0.7499), 0.75);
        assert_eq!(
            line(close),
            "MISSED by less than 0.001: rows: 0.75, at least 0.75"
        );
        let points = Verdict::at_most("points", Some(3.0), 0.0);
        assert_eq!(line(points), "MISSED by 3: points: 3, at most 0");
        let beside = Verdict::at_least("ratio", Some(12.0), 10.0).beside_unless(false);
        assert_eq!(line(beside), "comparison, reached: ratio: 12, at least 10");
        let late = goal(Some(1.0)).only_if(false);
        assert_eq!(late.line(), "MISSED: CPU time: 1.00, at most 1.1");
        assert_eq!(goal(None).only_if(false).met, None);
    }

    #[test]
    fn json_names_the_bound() {
        let json = serde_json::to_value(Verdict::at_least("rows", Some(1.0), 0.75)).unwrap();
        assert_eq!(json["at_least"], 0.75);
        assert!(json["at_most"].is_null() && json["met"] == true);
    }
}
