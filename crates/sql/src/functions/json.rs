//! JSON_VALUE, JSON_QUERY and JSON_EXISTS. `statement/forms.rs` turns their clauses
//! (`RETURNING INT DEFAULT 0 ON EMPTY`) into arguments.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StringViewArray, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use arrow_select::interleave::interleave;

use super::json_path::Path;
use super::rows::Rows;
use super::scalar::{Overload, Scalar};
use super::values::{downcast, fits};

pub(super) fn functions() -> Vec<Scalar> {
    let exists = Scalar::new("json_exists")
        .with(Rows::new(|json: &str, path: &str| {
            exists(json, path, "false")
        }))
        .with(Rows::new(exists));
    let query = Scalar::new("json_query")
        .with(Rows::new(|json: &str, path: &str| {
            query(json, path, "without", "null", "null")
        }))
        .with(Rows::new(query));
    vec![Scalar::new("json_value").with(JsonValue), exists, query]
}

fn exists(json: &str, path: &str, on_error: &str) -> Result<Option<bool>, String> {
    let path = Path::cached(path)?;
    match path.find(json) {
        Ok(None) if path.strict => {}
        Ok(found) => return Ok(Some(found.is_some())),
        Err(error) if on_error == "error" => return Err(error),
        Err(_) => {}
    }
    match on_error {
        "error" => Err("the path matches nothing".to_string()),
        "true" => Ok(Some(true)),
        "unknown" => Ok(None),
        _ => Ok(Some(false)),
    }
}

fn query(
    json: &str,
    path: &str,
    wrapper: &str,
    on_empty: &str,
    on_error: &str,
) -> Result<Option<String>, String> {
    let path = Path::cached(path)?;
    let instead = |behavior: &str, reason: String| match behavior {
        "error" => Err(reason),
        "empty array" => Ok(Some("[]".to_string())),
        "empty object" => Ok(Some("{}".to_string())),
        _ => Ok(None),
    };
    let nothing = || "the path matches nothing".to_string();
    match path.find(json) {
        Err(reason) => instead(on_error, reason),
        Ok(None | Some("null")) if path.strict => instead(on_error, nothing()),
        Ok(None | Some("null")) => instead(on_empty, nothing()),
        Ok(Some(found)) => match (wrapper, found.starts_with(['{', '['])) {
            ("without", false) => {
                let reason = "the path matches a scalar value: use JSON_VALUE".to_string();
                instead(if path.strict { on_error } else { on_empty }, reason)
            }
            ("without", true) | ("conditional", true) => Ok(Some(found.to_string())),
            _ => Ok(Some(format!("[{found}]"))),
        },
    }
}

/// What the path of a row matches.
enum Found {
    /// A scalar value, as a string.
    Value(String),
    Empty,
    Error(String),
}

fn single(json: &str, path: &Path) -> Found {
    let missing = |reason: &str| match path.strict {
        true => Found::Error(reason.to_string()),
        false => Found::Empty,
    };
    match path.find(json) {
        Err(reason) => Found::Error(reason),
        Ok(None) => missing("the path matches nothing"),
        Ok(Some("null")) => Found::Empty,
        Ok(Some(found)) if found.starts_with(['{', '[']) => {
            missing("the path does not match a scalar value: use JSON_QUERY")
        }
        Ok(Some(found)) if found.starts_with('"') => match serde_json::from_str::<String>(found) {
            Ok(text) => Found::Value(text),
            Err(error) => Found::Error(error.to_string()),
        },
        Ok(Some(found)) => Found::Value(found.to_string()),
    }
}

/// `JSON_VALUE(json, path)`. With clauses it has five more arguments: a NULL of the type after RETURNING, and
/// for ON EMPTY and ON ERROR each the behavior ('null', 'error', 'default') and the default.
struct JsonValue;

const TEXT: DataType = DataType::Utf8View;

impl Overload for JsonValue {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        match given {
            [json, path] if fits(json, &TEXT) && fits(path, &TEXT) => Some(vec![TEXT; 2]),
            [json, path, data_type, empty, on_empty, error, on_error] => {
                let strings = [json, path, empty, error]
                    .into_iter()
                    .all(|text| fits(text, &TEXT));
                let data_type = match data_type {
                    DataType::Null => TEXT,
                    data_type => data_type.clone(),
                };
                let defaults = [on_empty, on_error]
                    .into_iter()
                    .all(|default| fits(default, &data_type));
                let is_single = data_type == DataType::Boolean
                    || data_type.is_numeric()
                    || matches!(
                        data_type,
                        DataType::Utf8View | DataType::Date32 | DataType::Timestamp(_, None)
                    );
                (strings && defaults && is_single).then(|| {
                    vec![
                        TEXT,
                        TEXT,
                        data_type.clone(),
                        TEXT,
                        data_type.clone(),
                        TEXT,
                        data_type,
                    ]
                })
            }
            _ => None,
        }
    }

    fn result(&self, arguments: &[DataType]) -> DataType {
        arguments.get(2).cloned().unwrap_or(TEXT)
    }

    fn call(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        result: &DataType,
    ) -> Result<ArrayRef, String> {
        let json = downcast::<StringViewArray>(columns, 0)?;
        let paths = downcast::<StringViewArray>(columns, 1)?;
        let mut found = Vec::with_capacity(rows);
        for row in 0..rows {
            found.push(match json.is_null(row) || paths.is_null(row) {
                true => None,
                false => Some(single(json.value(row), &*Path::cached(paths.value(row))?)),
            });
        }
        let strings = found.iter().map(|found| match found {
            Some(Found::Value(text)) => Some(text.as_str()),
            _ => None,
        });
        let strings: ArrayRef = Arc::new(StringViewArray::from_iter(strings));
        let lenient = CastOptions::default();
        let values =
            cast_with_options(&strings, result, &lenient).map_err(|error| error.to_string())?;
        self.choose(columns, found, values, result)
    }

    fn shape(&self) -> String {
        "json, 'path' [RETURNING type] [NULL | ERROR | DEFAULT value ON EMPTY | ON ERROR]"
            .to_string()
    }

    fn check(&self, constants: &[Option<&str>]) -> Result<(), String> {
        check_path(constants)
    }
}

fn check_path(constants: &[Option<&str>]) -> Result<(), String> {
    match constants.get(1).copied().flatten() {
        Some(path) => Path::new(path).map(drop),
        None => Ok(()),
    }
}

impl JsonValue {
    /// The value of each row, its default, or NULL.
    fn choose(
        &self,
        columns: &[ArrayRef],
        found: Vec<Option<Found>>,
        values: ArrayRef,
        result: &DataType,
    ) -> Result<ArrayRef, String> {
        const NULL: usize = 0;
        const VALUE: usize = 1;
        let mut picked = Vec::with_capacity(found.len());
        let instead = |row: usize, clause: usize, reason: String| {
            let Some(column) = columns.get(clause) else {
                return Ok(NULL);
            };
            let what = downcast::<StringViewArray>(std::slice::from_ref(column), 0)?;
            match what.value(row) {
                "error" => Err(reason),
                // A default follows its behavior: columns 4 and 6 become parts 2 and 3.
                "default" => Ok(clause / 2 + 1),
                _ => Ok(NULL),
            }
        };
        for (row, found) in found.into_iter().enumerate() {
            picked.push((
                match found {
                    None => NULL,
                    Some(Found::Empty) => instead(row, 3, "the path matches nothing".to_string())?,
                    Some(Found::Error(reason)) => instead(row, 5, reason)?,
                    Some(Found::Value(text)) if values.is_null(row) => {
                        let data_type = crate::types::sql_name(result);
                        instead(row, 5, format!("'{text}' is not a valid {data_type}"))?
                    }
                    Some(Found::Value(_)) => VALUE,
                },
                row,
            ));
        }
        let nulls = new_null_array(result, values.len());
        let mut parts: Vec<&dyn Array> = vec![nulls.as_ref(), values.as_ref()];
        parts.extend(columns.get(4).map(|column| column.as_ref()));
        parts.extend(columns.get(6).map(|column| column.as_ref()));
        interleave(&parts, &picked).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_exists_of_invalid_json() {
        assert_eq!(exists(r#"{"a": null}"#, "$.a", "false"), Ok(Some(true)));
        assert_eq!(exists("{}", "$.a", "true"), Ok(Some(false)));
        assert_eq!(exists("{}", "strict $.a", "true"), Ok(Some(true)));
        assert_eq!(exists("{", "$.a", "unknown"), Ok(None));
        assert!(exists("{", "$.a", "error").is_err());
    }

    #[test]
    fn wrappers_of_json_query() {
        let query = |path, wrapper| {
            query(
                r#"{"a": [1, 2], "b": 3}"#,
                path,
                wrapper,
                "null",
                "empty object",
            )
        };
        assert_eq!(query("$.a", "without"), Ok(Some("[1, 2]".to_string())));
        assert_eq!(query("$.a", "conditional"), Ok(Some("[1, 2]".to_string())));
        assert_eq!(
            query("$.a", "unconditional"),
            Ok(Some("[[1, 2]]".to_string()))
        );
        assert_eq!(query("$.b", "without"), Ok(None));
        assert_eq!(query("strict $.b", "without"), Ok(Some("{}".to_string())));
        assert_eq!(query("$.b", "conditional"), Ok(Some("[3]".to_string())));
    }
}
