//! What main may still violate: a number for each check and place, which may only shrink.
//!
//! The numbers are exact. A place that gets better fails too, until its number is lowered, so that nobody can
//! use up what somebody else has saved.

use std::collections::BTreeMap;

use crate::Finding;

/// Where the numbers are.
pub const FILE: &str = "tools/tidy/budget.txt";
/// How many findings of a place over its budget are printed.
const SHOWN_MAX: usize = 12;

const HEADER: &str = "\
# What main may still violate: COUNT CHECK PLACE, for long-files the lines. The numbers are exact and may only
# shrink:
# `cargo run -q -p tidy -- lower` lowers them, also after a move: the sum of a check counts.
";

/// The numbers by check and place.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Budget(BTreeMap<(String, String), usize>);

impl Budget {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut numbers = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut parts = line.splitn(3, ' ');
            let (Some(count), Some(check), Some(place)) =
                (parts.next(), parts.next(), parts.next())
            else {
                return Err(format!("{FILE}:{}: not COUNT CHECK PLACE: {line}", at + 1));
            };
            let count = count
                .parse()
                .map_err(|_| format!("{FILE}:{}: {count} is not a number", at + 1))?;
            if numbers
                .insert((check.to_owned(), place.to_owned()), count)
                .is_some()
            {
                return Err(format!("{FILE}:{}: {check} {place} is there twice", at + 1));
            }
        }
        Ok(Self(numbers))
    }

    /// The budget that today's findings need.
    pub fn of(findings: &[Finding]) -> Self {
        let mut numbers = BTreeMap::new();
        for finding in findings {
            *numbers
                .entry((finding.check.to_owned(), finding.place.clone()))
                .or_default() += finding.amount;
        }
        Self(numbers)
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let line = |((check, place), count): (&(String, String), &usize)| {
            format!("{count} {check} {place}\n")
        };
        HEADER.to_owned() + &self.0.iter().map(line).collect::<String>()
    }

    /// The places of a check that have more findings than allowed.
    fn raised(&self, today: &Self, check: &str) -> Vec<String> {
        let here = today.0.iter().filter(|((of, _), _)| of == check);
        let more = here.filter_map(|(key, count)| {
            let allowed = self.0.get(key).copied().unwrap_or_default();
            (*count > allowed).then(|| format!("{} has {count}, {allowed} are allowed", key.1))
        });
        more.collect()
    }

    /// Whether a place of the check has more findings, and no place is gone from which they can have moved.
    fn is_raised(&self, today: &Self, check: &str) -> bool {
        let mut gone = self.0.keys().filter(|(of, _)| of == check);
        gone.all(|key| today.0.contains_key(key)) && !self.raised(today, check).is_empty()
    }

    fn sums(&self) -> BTreeMap<&str, usize> {
        let mut sums = BTreeMap::new();
        for ((check, _), count) in &self.0 {
            *sums.entry(check.as_str()).or_default() += count;
        }
        sums
    }

    /// The budget after findings have been fixed or moved. Checks whose sum has grown, or of which a place
    /// has more while none is gone, keep their numbers and are returned; except for one that is accepted.
    pub fn lowered(self, now: &[Finding], accepted: Option<&str>) -> (Self, Vec<String>) {
        let today = Self::of(now);
        let (before, after) = (self.sums(), today.sums());
        let was = |check: &str| before.get(check).copied().unwrap_or_default();
        let grown: Vec<&str> = after
            .iter()
            .map(|(check, sum)| (*check, *sum))
            .filter(|(check, sum)| *sum > was(check) || self.is_raised(&today, check))
            .map(|(check, _)| check)
            .filter(|check| accepted != Some(*check))
            .collect();
        let message = |check: &&str| match after[check] > was(check) {
            true => format!("{check}: {} are more than {}", after[check], was(check)),
            false => format!("{check}: {}", self.raised(&today, check).join(", ")),
        };
        let messages = grown.iter().map(message);
        let messages = messages.collect();
        let grown: Vec<String> = grown.into_iter().map(str::to_owned).collect();
        let kept = self
            .0
            .into_iter()
            .filter(|((check, _), _)| grown.contains(check));
        let kept: Vec<_> = kept.collect();
        let mut numbers = today.0;
        numbers.retain(|(check, _), _| !grown.contains(check));
        numbers.extend(kept);
        (Self(numbers), messages)
    }

    /// Compares findings with the budget: a message for every number that isn't exact.
    /// Those at places that `is_new` knows come first.
    pub fn compare(&self, findings: &[Finding], is_new: impl Fn(&str) -> bool) -> Vec<String> {
        let today = Self::of(findings);
        let mut messages = Vec::new();
        for (key @ (check, place), count) in &today.0 {
            let allowed = self.0.get(key).copied().unwrap_or_default();
            if *count <= allowed {
                continue;
            }
            let mut here = findings
                .iter()
                .filter(|finding| finding.check == check && finding.place == *place)
                .collect::<Vec<&Finding>>();
            here.sort_by_key(|finding| !is_new(&finding.at));
            let line = |finding: &&Finding| {
                let new = if is_new(&finding.at) { " (new)" } else { "" };
                format!("{}: {}: {}{new}\n", finding.at, finding.check, finding.what)
            };
            let mut message: String = here.iter().take(SHOWN_MAX).map(line).collect();
            let more = here.len().saturating_sub(SHOWN_MAX);
            if more > 0 {
                message += &format!("{place}: {check}: and {more} more\n");
            }
            if allowed > 0 {
                message += &format!("  {count} of them, and {FILE} allows {allowed}\n");
            }
            let fix = here.first().map_or("", |finding| finding.fix);
            messages.push(format!("{message}  fix: {fix}"));
        }
        for ((check, place), allowed) in &self.0 {
            let count = today
                .0
                .get(&(check.clone(), place.clone()))
                .copied()
                .unwrap_or_default();
            if count < *allowed {
                messages.push(format!(
                    "{FILE}: {check} {place}: {count}, and {allowed} are allowed\n  \
                     fix: lower the number: cargo run -q -p tidy -- lower"
                ));
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(places: &[(&'static str, &str)]) -> Vec<Finding> {
        let one = |(at, (check, place)): (usize, &(&'static str, &str))| {
            Finding::in_line(check, place, at + 1, "is wrong".to_owned(), "mark it")
        };
        places.iter().enumerate().map(one).collect()
    }

    fn budget(text: &str) -> Budget {
        Budget::parse(text).unwrap()
    }

    #[test]
    fn more_and_fewer_than_allowed_are_messages() {
        let found = findings(&[("words", "docs"), ("words", "docs"), ("lines", "a.rs")]);
        assert_eq!(
            budget("# x\n2 words docs\n1 lines a.rs\n").compare(&found, |_| false),
            [""; 0]
        );
        let messages = budget("1 words docs\n2 lines a.rs\n").compare(&found, |_| false);
        let more = "docs:1: words: is wrong\ndocs:2: words: is wrong\n  \
                    2 of them, and tools/tidy/budget.txt allows 1\n  fix: mark it";
        let fewer = "tools/tidy/budget.txt: lines a.rs: 1, and 2 are allowed\n  \
                     fix: lower the number: cargo run -q -p tidy -- lower";
        assert_eq!(messages, [more, fewer]);
    }

    #[test]
    fn a_place_may_have_more_only_by_a_move() {
        let now = findings(&[("words", "a.rs"), ("words", "a.rs"), ("words", "b.rs")]);
        let (kept, messages) = budget("1 words a.rs\n4 words b.rs\n").lowered(&now, None);
        assert_eq!(messages, ["words: a.rs has 2, 1 are allowed"]);
        assert_eq!(kept, budget("1 words a.rs\n4 words b.rs\n"));
        let (moved, messages) = budget("3 words gone.rs\n1 words b.rs\n").lowered(&now, None);
        assert_eq!(messages, [""; 0]);
        assert_eq!(moved, budget("2 words a.rs\n1 words b.rs\n"));
    }

    #[test]
    fn what_is_new_comes_first() {
        let found = findings(&[("words", "docs"), ("words", "docs")]);
        let messages = budget("1 words docs\n").compare(&found, |at| at == "docs:2");
        let first = "docs:2: words: is wrong (new)\ndocs:1: words: is wrong\n";
        assert!(messages[0].starts_with(first), "{messages:?}");
    }

    #[test]
    fn what_has_no_budget_is_a_message() {
        let messages = Budget::default().compare(&findings(&[("words", "docs")]), |_| false);
        assert_eq!(messages, ["docs:1: words: is wrong\n  fix: mark it"]);
    }

    #[test]
    fn only_sums_that_shrink_are_written() {
        let before = || budget("3 lines a.rs\n1 words docs\n");
        let moved = findings(&[("lines", "b.rs"), ("lines", "b.rs"), ("words", "docs")]);
        assert_eq!(
            before().lowered(&moved, None),
            (budget("2 lines b.rs\n1 words docs\n"), Vec::new())
        );
        let grown = findings(&[("words", "docs"), ("words", "docs")]);
        let messages = vec!["words: 2 are more than 1".to_owned()];
        assert_eq!(
            before().lowered(&grown, None),
            (budget("1 words docs\n"), messages)
        );
        assert_eq!(
            before().lowered(&grown, Some("words")),
            (budget("2 words docs\n"), Vec::new())
        );
    }

    #[test]
    fn a_budget_is_read_as_it_is_written() {
        let text = budget("2 words docs walks over\n501 long-files a.rs\n").text();
        assert_eq!(
            budget(&text),
            budget("501 long-files a.rs\n2 words docs walks over\n")
        );
        assert_eq!(
            Budget::parse("x").unwrap_err(),
            "tools/tidy/budget.txt:1: not COUNT CHECK PLACE: x"
        );
        let twice = Budget::parse("1 a b\n2 a b").unwrap_err();
        assert_eq!(twice, "tools/tidy/budget.txt:2: a b is there twice");
    }
}
