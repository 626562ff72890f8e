//! Goals, met or missed.

use serde::Serialize;

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// A goal, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What was to be reached; for a comparison beside the goals, what was compared.
    pub goal: String,
    /// Whether this is one of the goals.
    pub is_goal: bool,
    /// What was measured; nothing where the points that the goal rests on were not measured.
    pub measured: Option<f64>,
    /// What is shown beside it, such as its spread.
    pub note: String,
    #[serde(flatten)]
    bound: Bound,
    /// Whether the goal is reached.
    pub met: Option<bool>,
    /// What the verdict rests on.
    pub details: String,
}

impl Verdict {
    /// A goal that a figure is at most so much.
    pub fn at_most(goal: impl Into<String>, measured: Option<f64>, limit: f64) -> Verdict {
        let met = measured.map(|measured| measured <= limit);
        Verdict::of(goal.into(), measured, Bound::AtMost(limit), met)
    }

    /// A goal that a figure is at least so much.
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

    /// The same with what it rests on.
    pub fn details(self, details: impl Into<String>) -> Verdict {
        let details = details.into();
        Verdict { details, ..self }
    }

    /// The same with something beside what was measured.
    pub fn note(self, note: impl Into<String>) -> Verdict {
        let note = note.into();
        Verdict { note, ..self }
    }

    /// The same, missed unless something else holds, too.
    pub fn only_if(self, holds: bool) -> Verdict {
        let met = self.met.map(|met| met && holds);
        Verdict { met, ..self }
    }

    /// The same as a comparison beside the goals, unless it is one of them.
    pub fn beside_unless(self, is_goal: bool) -> Verdict {
        Verdict { is_goal, ..self }
    }

    /// As people read it.
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
            (false, true, Bound::AtMost(_)) => "beside the goals, within".to_string(),
            (false, false, Bound::AtMost(_)) => "beside the goals, beyond".to_string(),
            (false, true, Bound::AtLeast(_)) => "beside the goals, reached".to_string(),
            (false, false, Bound::AtLeast(_)) => "beside the goals, not reached".to_string(),
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

/// Numbers of points are whole, ratios are not.
fn figure(measured: f64, limit: f64) -> String {
    let is_whole = |value: f64| (value - value.round()).abs() < 1e-9;
    match is_whole(measured) && is_whole(limit) {
        true => format!("{measured:.0}"),
        false => format!("{measured:.2}"),
    }
}

/// Up to three digits after the point, so that a near miss shows.
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
    fn a_line_says_what_was_measured_and_what_was_wanted() {
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
        assert_eq!(
            line(beside),
            "beside the goals, reached: ratio: 12, at least 10"
        );
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
