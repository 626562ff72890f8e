//! Flink's string functions.

use std::cell::RefCell;
use std::collections::HashMap;

use arrow_schema::DataType;
use regex::Regex;

use super::rows::Rows;
use super::scalar::{Overload, Scalar};

/// The number of compiled regular expressions that a thread keeps. A query has a few constant ones; those
/// from a column must not fill the memory.
const KEPT_MAX: usize = 64;

/// SPLIT_INDEX, REGEXP_EXTRACT and related functions.
pub(super) fn functions() -> Vec<Scalar> {
    let regexp_extract = Scalar::new("regexp_extract")
        .with(Expression(Rows::new(|text: &str, pattern: &str| {
            extract(text, pattern, 0)
        })))
        .with(Expression(Rows::new(extract)));
    let regexp = Scalar::new("regexp").with(Expression(Rows::new(|text: &str, pattern: &str| {
        with_regex(pattern, |regex| regex.is_match(text))
    })));
    let split_index = Scalar::new("split_index")
        .with(Rows::new(split_index))
        .with(Rows::new(|text: &str, separator: i64, index: i64| {
            let separator = u32::try_from(separator).ok().and_then(char::from_u32)?;
            split_index(text, &separator.to_string(), index)
        }));
    let locate = Scalar::new("locate")
        .with(Rows::new(|wanted: &str, text: &str| {
            locate(wanted, text, 1)
        }))
        .with(Rows::new(locate));
    let every = |name: &str, is: fn(char) -> bool| {
        Scalar::new(name).with(Rows::new(move |text: &str| {
            !text.is_empty() && text.chars().all(is)
        }))
    };
    vec![
        split_index,
        locate,
        regexp_extract,
        regexp,
        every("is_alpha", char::is_alphabetic),
        every("is_digit", |c| c.is_ascii_digit()),
        Scalar::new("is_decimal").with(Rows::new(|text: &str| text.trim().parse::<f64>().is_ok())),
        Scalar::new("bin").with(Rows::new(|number: i64| format!("{number:b}"))),
    ]
}

/// Part number `index` of a string, from 0; NULL if there is no such part.
fn split_index(text: &str, separator: &str, index: i64) -> Option<String> {
    let index = usize::try_from(index).ok()?;
    if separator.is_empty() {
        return (index == 0).then(|| text.to_string());
    }
    text.split(separator).nth(index).map(str::to_string)
}

/// The position of `wanted` in a string, searched from character `start`: from 1, or 0 if it isn't found.
fn locate(wanted: &str, text: &str, start: i64) -> i64 {
    let Some(skipped) = start
        .checked_sub(1)
        .and_then(|start| usize::try_from(start).ok())
    else {
        return 0;
    };
    let from = match text.char_indices().nth(skipped) {
        Some((from, _)) => from,
        None if text.chars().count() == skipped => text.len(),
        None => return 0,
    };
    match text[from..].find(wanted) {
        Some(at) => text[..from + at].chars().count() as i64 + 1,
        None => 0,
    }
}

/// The text of a group in the first match; NULL if nothing matches, or the group is not part of the match.
fn extract(text: &str, pattern: &str, group: i64) -> Result<Option<String>, String> {
    with_regex(pattern, |regex| {
        let group = usize::try_from(group).ok()?;
        let captures = regex.captures(text)?;
        captures.get(group).map(|found| found.as_str().to_string())
    })
}

fn compiled(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default();
        let reason = reason.trim_start_matches("error: ");
        format!("'{pattern}' is not a supported regular expression: {reason}")
    })
}

/// Calls `then` with a regular expression, which is compiled at its first use in this thread.
fn with_regex<T>(pattern: &str, then: impl FnOnce(&Regex) -> T) -> Result<T, String> {
    thread_local! {
        static KEPT: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
    }
    KEPT.with_borrow_mut(|kept| {
        if let Some(regex) = kept.get(pattern) {
            return Ok(then(regex));
        }
        let regex = compiled(pattern)?;
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        Ok(then(kept.entry(pattern.to_string()).or_insert(regex)))
    })
}

/// A function whose second argument is a regular expression: a constant one is checked before the query runs.
struct Expression<O>(O);

impl<O: Overload> Overload for Expression<O> {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        self.0.fit(given)
    }

    fn result(&self, arguments: &[DataType]) -> DataType {
        self.0.result(arguments)
    }

    fn call(
        &self,
        columns: &[arrow_array::ArrayRef],
        rows: usize,
        result: &DataType,
    ) -> Result<arrow_array::ArrayRef, String> {
        self.0.call(columns, rows, result)
    }

    fn shape(&self) -> String {
        self.0.shape()
    }

    fn check(&self, constants: &[Option<&str>]) -> Result<(), String> {
        match constants.get(1).copied().flatten() {
            Some(pattern) => compiled(pattern).map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_in_characters() {
        assert_eq!(locate("b", "aübab", 1), 3);
        assert_eq!(locate("b", "aübab", 4), 5);
        assert_eq!(locate("x", "aübab", 1), 0);
        assert_eq!(locate("", "ab", 3), 3);
        assert_eq!(locate("a", "ab", 4), 0);
        assert_eq!(locate("a", "ab", 0), 0);
        assert_eq!(locate("a", "ab", i64::MIN), 0);
    }

    #[test]
    fn parts_are_counted_from_zero() {
        let part = |index| split_index("a,,c", ",", index);
        assert_eq!(part(0).as_deref(), Some("a"));
        assert_eq!(part(1).as_deref(), Some(""));
        assert_eq!(part(2).as_deref(), Some("c"));
        assert_eq!((part(3), part(-1)), (None, None));
    }

    #[test]
    fn groups_of_the_first_match() {
        let channel = |text| extract(text, "(&|^)channel_id=([^&]*)", 2).unwrap();
        assert_eq!(channel("a=1&channel_id=22&b").as_deref(), Some("22"));
        assert_eq!(channel("channel_id="), Some(String::new()));
        assert_eq!(channel("channel"), None);
        assert_eq!(extract("ab", "a", 7), Ok(None));
        assert!(
            extract("ab", "(?=a)", 0)
                .unwrap_err()
                .contains("look-around")
        );
    }
}
