//! Paths into JSON (`lax $.a[0]."b c"`), and the value at a path. The JSON is read once, and nothing is
//! allocated for the parts that are skipped.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Whether a missing value is an error, rather than empty.
    pub strict: bool,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// When the path is not valid, or contains a step that is not supported.
    pub(super) fn new(text: &str) -> Result<Path, String> {
        let trimmed = text.trim();
        let (strict, rest) = match (
            trimmed.strip_prefix("strict "),
            trimmed.strip_prefix("lax "),
        ) {
            (Some(rest), _) => (true, rest.trim_start()),
            (_, Some(rest)) => (false, rest.trim_start()),
            _ => (false, trimmed),
        };
        let wrong = |what: &str| {
            format!("the path '{text}' {what}: only $.name, $['name'] and $[0] are supported")
        };
        let mut rest = rest
            .strip_prefix('$')
            .ok_or_else(|| wrong("does not begin with $"))?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if rest.starts_with("..") || rest.starts_with(".*") || rest.starts_with("[*") {
                return Err(wrong("may match several values"));
            }
            let (step, after) = step(rest).ok_or_else(|| wrong("is not valid"))?;
            steps.push(step);
            rest = after;
        }
        Ok(Path { strict, steps })
    }

    /// The path `text`, parsed only if it differs from the previous one.
    pub(super) fn cached(text: &str) -> Result<Rc<Path>, String> {
        thread_local! {
            static LAST: RefCell<Option<(String, Rc<Path>)>> = const { RefCell::new(None) };
        }
        LAST.with_borrow_mut(|last| match last {
            Some((known, path)) if known == text => Ok(Rc::clone(path)),
            _ => {
                let path = Rc::new(Path::new(text)?);
                *last = Some((text.to_string(), Rc::clone(&path)));
                Ok(path)
            }
        })
    }

    /// The text of the value at the path; `None` if the path matches nothing.
    ///
    /// # Errors
    ///
    /// When `json` is not valid JSON.
    pub(super) fn find<'a>(&self, json: &'a str) -> Result<Option<&'a str>, String> {
        let mut reader = serde_json::Deserializer::from_str(json);
        let found = Walk(&self.steps).deserialize(&mut reader);
        let found = found.and_then(|found| reader.end().map(|()| found));
        let found = found.map_err(|error| format!("the string is not valid JSON: {error}"))?;
        Ok(found.map(RawValue::get))
    }
}

/// The first step of a path, and the rest of the path.
fn step(rest: &str) -> Option<(Step, &str)> {
    if let Some(rest) = rest.strip_prefix('.') {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (key, rest) = quoted.split_once('"')?;
            return Some((Step::Key(key.to_string()), rest));
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let key = rest[..end].trim_end();
        return (!key.is_empty()).then(|| (Step::Key(key.to_string()), &rest[end..]));
    }
    let inside = rest.strip_prefix('[')?.trim_start();
    for quote in ['\'', '"'] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let (key, rest) = quoted.split_once(quote)?;
            let rest = rest.trim_start().strip_prefix(']')?;
            return Some((Step::Key(key.to_string()), rest));
        }
    }
    let (index, rest) = inside.split_once(']')?;
    Some((Step::Index(index.trim().parse().ok()?), rest))
}

/// Follows the steps of a path.
struct Walk<'p>(&'p [Step]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        match self.0.is_empty() {
            true => serde::Deserialize::deserialize(reader).map(Some),
            false => reader.deserialize_any(self),
        }
    }
}

/// A scalar value has no parts, so a further step matches nothing.
macro_rules! no_parts {
    ($($visit:ident $data_type:ty),*) => {$(
        fn $visit<E>(self, _: $data_type) -> Result<Self::Value, E> {
            Ok(None)
        }
    )*};
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    no_parts!(visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str);

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &self.0[0] {
                // Of several equal keys the last one counts.
                Step::Key(wanted) if *wanted == key => {
                    found = map.next_value_seed(Walk(&self.0[1..]))?
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let wanted = match self.0[0] {
            Step::Index(wanted) => Some(wanted),
            Step::Key(_) => None,
        };
        let mut found = None;
        for index in 0.. {
            if Some(index) == wanted {
                match items.next_element_seed(Walk(&self.0[1..]))? {
                    Some(item) => found = item,
                    None => break,
                }
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str =
        r#"{"a": {"b c": [1, {"d": "x\"y"}, null]}, "a.b": 2, "e": 1.50, "e": 2.50}"#;

    #[test]
    fn values_at_paths() {
        let at = |path| Path::new(path).unwrap().find(JSON).unwrap();
        assert_eq!(at("$.a['b c'][0]"), Some("1"));
        assert_eq!(at("lax $.a.\"b c\"[1].d"), Some(r#""x\"y""#));
        assert_eq!(at("$['a.b']"), Some("2"));
        assert_eq!(at("$[ \"a.b\" ]"), Some("2"));
        assert_eq!(at("$.e"), Some("2.50"));
        assert_eq!(at("$.a.b"), None);
        assert_eq!(at("$.a['b c'][9]"), None);
        assert_eq!(at("$.e.x[0]"), None);
        assert_eq!(at("$"), Some(JSON));
    }

    #[test]
    fn invalid_paths_and_invalid_json_are_errors() {
        for path in [
            "", "a", "$.", "$..a", "$[*]", "$.*", "$[", "$[x]", "$['a]", "$x",
        ] {
            assert!(Path::new(path).is_err(), "{path}");
        }
        let path = Path::new("$.a").unwrap();
        for json in ["", "{", "{\"a\": 1} x", "{'a': 1}", "{\"a\": 01}", "[1,]"] {
            assert!(path.find(json).is_err(), "{json}");
        }
    }
}
