//! Options of a table: the `WITH (…)` of its DDL.
//!
//! Every option is checked before anything is opened: an unknown one is rejected with the nearest
//! known name, and a value that can't be read names the form that is expected.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use slackwater_engine::format::RecordFormat;

/// Why a table's options can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    /// The option with the error; `None` if the table as a whole is wrong (a column's type).
    pub option: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub hint: String,
}

impl OptionError {
    /// An error about an option.
    pub fn new(
        option: impl Into<String>,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> OptionError {
        OptionError {
            option: Some(option.into()),
            reason: reason.into(),
            hint: hint.into(),
        }
    }

    /// An error about the table as a whole.
    pub(crate) fn table(reason: impl Into<String>, hint: impl Into<String>) -> OptionError {
        OptionError {
            option: None,
            reason: reason.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(option) = &self.option {
            write!(f, "option '{option}': ")?;
        }
        f.write_str(&self.reason)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for OptionError {}

/// An option that tables can have, as its connector's or format's page describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionKind {
    /// The option's name. One that ends with a dot stands for all names that begin with it.
    pub name: &'static str,
    /// The value if the option is left out, in Markdown.
    pub default: &'static str,
    /// What the option does and which values it has, in Markdown.
    pub meaning: &'static str,
}

/// An option's entry.
pub(crate) const fn option(
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> OptionKind {
    OptionKind {
        name,
        default,
        meaning,
    }
}

/// The error if the build lacks a feature that the option's value needs.
#[cfg(not(all(
    feature = "kafka",
    feature = "sqlite",
    feature = "postgres",
    feature = "parquet"
)))]
pub(crate) fn needs_feature(option: &str, feature: &str) -> OptionError {
    OptionError::new(
        option,
        format!("this program was built without {feature}"),
        format!("build it with: cargo build --release --features {feature}"),
    )
}

/// `a, b or c`.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => names.join(", "),
    }
}

/// The options of one table, with readers for common kinds of values.
pub(crate) struct Options<'a> {
    values: &'a BTreeMap<String, String>,
    /// The formats that the program brings, besides those of this crate.
    formats: &'a [Arc<dyn RecordFormat>],
    /// The names that were looked up. An option that is declared and never looked up would be accepted and
    /// have no effect.
    #[cfg(test)]
    looked_up: std::cell::RefCell<std::collections::BTreeSet<String>>,
}

impl<'a> Options<'a> {
    pub(crate) fn new(values: &'a BTreeMap<String, String>) -> Options<'a> {
        Options {
            values,
            formats: &[],
            #[cfg(test)]
            looked_up: Default::default(),
        }
    }

    /// The same options, of a table that may have one of these formats.
    pub(crate) fn with_formats(mut self, formats: &'a [Arc<dyn RecordFormat>]) -> Options<'a> {
        self.formats = formats;
        self
    }

    /// The formats that the program brings.
    pub(crate) fn formats(&self) -> &'a [Arc<dyn RecordFormat>] {
        self.formats
    }

    /// All values.
    pub(crate) fn values(&self) -> &'a BTreeMap<String, String> {
        self.values
    }

    /// The names that were looked up; one that ends with a dot stands for all names that begin with it.
    #[cfg(test)]
    pub(crate) fn looked_up(&self) -> std::collections::BTreeSet<String> {
        self.looked_up.borrow().clone()
    }

    /// The first option that is not among `known`.
    pub(crate) fn unknown(&self, known: &[&str]) -> Option<&'a str> {
        let is_known = |name: &str| {
            let mut known = known.iter();
            known.any(|known| *known == name || (known.ends_with('.') && name.starts_with(known)))
        };
        let mut names = self.values.keys();
        names.find(|name| !is_known(name)).map(String::as_str)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        #[cfg(test)]
        self.looked_up.borrow_mut().insert(name.to_string());
        self.values.get(name).map(String::as_str)
    }

    /// The options whose names begin with this, which ends with a dot.
    #[cfg(feature = "kafka")]
    pub(crate) fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        #[cfg(test)]
        self.looked_up.borrow_mut().insert(prefix.to_string());
        let all = self.values.iter();
        let chosen = all.filter(move |(name, _)| name.starts_with(prefix));
        chosen.map(|(name, value)| (&name[..], &value[..]))
    }

    pub(crate) fn required(&self, name: &str, example: &str) -> Result<&'a str, OptionError> {
        match self.text(name) {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(OptionError::new(
                name,
                "is missing",
                format!("add '{name}' = '{example}'"),
            )),
        }
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, OptionError> {
        self.choice(name, &[("true", true), ("false", false)], default)
    }

    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        for (word, value) in choices {
            if text.eq_ignore_ascii_case(word) {
                return Ok(*value);
            }
        }
        let words = choices.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        let mut hint = format!("write '{}'", words.join("' or '"));
        if let Some(near) = nearest(text, &words) {
            hint = format!("did you mean '{near}'? {hint}");
        }
        Err(OptionError::new(
            name,
            format!("'{text}' is not a valid value"),
            hint,
        ))
    }

    pub(crate) fn duration_ns(&self, name: &str) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match slackwater_engine::time::parse_duration_ns(text) {
            Some(duration_ns) => Ok(Some(duration_ns)),
            None => Err(OptionError::new(
                name,
                format!("'{text}' is not a duration"),
                "write a number and a unit: '200 us', '10 ms', '5 s', '1 min', '2 h'",
            )),
        }
    }

    /// Rows per second, as `'10000/s'`.
    pub(crate) fn rate(&self, name: &str) -> Result<Option<Rate>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match Rate::parse(text) {
            Some(rate) => Ok(Some(rate)),
            None => Err(OptionError::new(
                name,
                format!("'{text}' is not a rate"),
                "write rows and a unit: '10000/s', '30/min'; at least one row an hour and at most \
                 1,000,000,000 a second",
            )),
        }
    }

    pub(crate) fn number(
        &self,
        name: &str,
        default: Option<u64>,
        allowed: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        match text.replace('_', "").parse::<u64>() {
            Ok(number) if allowed.contains(&number) => Ok(Some(number)),
            _ => Err(OptionError::new(
                name,
                format!(
                    "'{text}' is not a number from {} to {}",
                    allowed.start(),
                    allowed.end()
                ),
                format!("write a whole number, as in '{name}' = '1000'"),
            )),
        }
    }

    /// One byte: an ASCII character, or `'\t'` for the tab.
    pub(crate) fn byte(&self, name: &str) -> Result<Option<u8>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let byte = match text.as_bytes() {
            b"\\t" => b'\t',
            [byte] => *byte,
            _ => 0,
        };
        if byte == 0 || matches!(byte, b'"' | b'\n' | b'\r') {
            return Err(OptionError::new(
                name,
                format!("'{text}' is not a single byte that can be used here"),
                "write one ASCII character other than the double quote and line ends, or '\\t'",
            ));
        }
        Ok(Some(byte))
    }
}

/// The name most similar to `wrong`, if one is similar enough to be what was meant.
pub(crate) fn nearest<'k>(wrong: &str, known: &[&'k str]) -> Option<&'k str> {
    // Jaro-Winkler: 0.8 accepts one typo in a word of five letters and rejects unrelated words.
    const LIKENESS_MIN: f64 = 0.8;
    let wrong = wrong.to_ascii_lowercase();
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(&wrong, name), *name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Rows in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) rows: u64,
    pub(crate) per_ns: u64,
}

impl Rate {
    fn parse(text: &str) -> Option<Rate> {
        let (rows, unit) = match text.split_once('/') {
            Some((rows, unit)) => (rows, unit.trim()),
            None => (text, "s"),
        };
        let rows: u64 = rows.trim().replace('_', "").parse().ok()?;
        let per_ns = slackwater_engine::time::parse_duration_ns(&format!("1 {unit}"))?;
        let rate = Rate { rows, per_ns };
        let fast = rows > per_ns;
        let slow = rows == 0 || per_ns / rows > 3_600_000_000_000;
        (!fast && !slow).then_some(rate)
    }

    /// The part of the rate for `own` of `all` bytes; at least one of ten thousand parts.
    pub(crate) fn share(self, own: u64, all: u64) -> Rate {
        const PARTS: u64 = 10_000;
        if own >= all {
            return self;
        }
        let parts = u128::from(own) * u128::from(PARTS) / u128::from(all);
        // A rate names at most a week, which is 6 × 10^14 ns.
        Rate {
            rows: self.rows.saturating_mul((parts as u64).max(1)),
            per_ns: self.per_ns.saturating_mul(PARTS),
        }
    }

    /// Rows per second.
    pub(crate) fn rows_per_s(&self) -> f64 {
        self.rows as f64 * 1e9 / self.per_ns as f64
    }

    /// When row `row` (from 0) is due, in nanoseconds after the start.
    pub(crate) fn due_ns(&self, row: u64) -> u64 {
        let due_ns = u128::from(row) * u128::from(self.per_ns) / u128::from(self.rows);
        u64::try_from(due_ns).unwrap_or(u64::MAX / 2)
    }

    /// How many rows become due in the given time, the first one at its start.
    pub(crate) fn rows_within(&self, span_ns: u64) -> usize {
        let rows = u128::from(span_ns) * u128::from(self.rows) / u128::from(self.per_ns) + 1;
        usize::try_from(rows).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_rate_add_up() {
        for text in ["10000/s", "1/h", "1000000000/s"] {
            let rate = Rate::parse(text).unwrap();
            let shares = [1u64, 30, 69].map(|own| rate.share(own, 100).rows_per_s());
            let sum = shares.iter().sum::<f64>();
            assert!(
                (sum / rate.rows_per_s() - 1.0).abs() < 1e-9,
                "{text}: {sum}"
            );
            assert_eq!(rate.share(5, 5), rate);
            assert_eq!(rate.share(0, 0), rate);
            // Something that has no bytes, but rows (an empty file that has grown), goes on, slowly.
            assert!(rate.share(0, 5).rows_per_s() > 0.0);
        }
    }

    #[test]
    fn rates_and_their_deadlines() {
        let rate = Rate::parse("10000/s").unwrap();
        assert_eq!(rate.due_ns(0), 0);
        assert_eq!(rate.due_ns(10_000), 1_000_000_000);
        assert_eq!(rate.rows_within(1_000_000), 11);
        assert_eq!(Rate::parse("30/min").unwrap().due_ns(1), 2_000_000_000);
        for text in ["0/s", "/s", "10/parsec", "x", "-1/s", "2000000000/s"] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_and_choices() {
        let value = |text: &str| BTreeMap::from([("o".to_string(), text.to_string())]);
        assert_eq!(Options::new(&value("\\t")).byte("o"), Ok(Some(b'\t')));
        assert_eq!(Options::new(&value("|")).byte("o"), Ok(Some(b'|')));
        for wrong in ["", "ab", "\"", "é", "\n"] {
            assert!(Options::new(&value(wrong)).byte("o").is_err(), "{wrong}");
        }
        let error = Options::new(&value("tru")).flag("o", false).unwrap_err();
        assert!(error.hint.contains("did you mean 'true'"), "{error}");
    }
}
