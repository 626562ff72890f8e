//! Errors of SQL text: where, with a caret, and the mend.

use std::fmt;

use datafusion_common::{DataFusionError, Diagnostic, SchemaError};
use sqlparser::tokenizer::{Location, Span};

/// What is wrong with a SQL text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// What is wrong.
    pub message: String,
    /// What would be right; empty when nothing better than the message is known.
    pub mend: String,
    /// Line and column, both from 1, and how many characters are meant; `None` when the text as a
    /// whole is wrong.
    pub place: Option<Place>,
}

/// A place in a SQL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Characters, at least 1.
    pub length: usize,
}

/// A result of reading SQL.
pub type Result<T> = std::result::Result<T, SqlError>;

impl SqlError {
    /// An error about the text as a whole.
    pub fn new(message: impl Into<String>) -> SqlError {
        SqlError {
            message: message.into(),
            mend: String::new(),
            place: None,
        }
    }

    /// The same error with what would be right.
    #[must_use]
    pub fn mend(mut self, mend: impl Into<String>) -> SqlError {
        self.mend = mend.into();
        self
    }

    /// The same error at a place, unless it names one already.
    #[must_use]
    pub fn at(mut self, span: Span) -> SqlError {
        if self.place.is_none() && span.start.line > 0 {
            let Location { line, column } = span.start;
            let length = if span.end.line == line {
                span.end.column.saturating_sub(column)
            } else {
                1
            };
            self.place = Some(Place {
                line: line as usize,
                column: column as usize,
                length: length.max(1) as usize,
            });
        }
        self
    }

    /// The error as it is shown to the user, with the line of `text` and a caret.
    pub fn render(&self, file: &str, text: &str) -> String {
        let mut shown = match self.place {
            Some(Place { line, column, .. }) => format!("{file}:{line}:{column}: {}", self.message),
            None => format!("{file}: {}", self.message),
        };
        if let Some(Place {
            line,
            column,
            length,
        }) = self.place
            && let Some(source) = text.lines().nth(line - 1)
        {
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            // Tabs before the caret are kept, so that it stands under what is meant.
            let lead = source.chars().take(column - 1);
            let lead = lead
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect::<String>();
            let room = source.chars().count().saturating_sub(column - 1).max(1);
            let carets = "^".repeat(length.min(room));
            shown.push_str(&format!(
                "\n{margin} |\n{number} | {source}\n{margin} | {lead}{carets}"
            ));
        }
        if !self.mend.is_empty() {
            shown.push_str(&format!("\n  = {}", self.mend));
        }
        shown
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column, .. }) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        if !self.mend.is_empty() {
            write!(f, " ({})", self.mend)?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        from_datafusion(&error, None)
    }
}

impl From<slackwater_engine::Error> for SqlError {
    fn from(error: slackwater_engine::Error) -> SqlError {
        SqlError::new(error.to_string())
    }
}

fn from_datafusion(error: &DataFusionError, diagnostic: Option<&Diagnostic>) -> SqlError {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => from_datafusion(inner, Some(diagnostic)),
        DataFusionError::Context(_, inner) => from_datafusion(inner, diagnostic),
        DataFusionError::Shared(inner) => from_datafusion(inner, diagnostic),
        DataFusionError::Collection(errors) if !errors.is_empty() => {
            from_datafusion(&errors[0], diagnostic)
        }
        DataFusionError::SchemaError(schema, _) => {
            let mut converted = from_schema_error(schema);
            if let Some(span) = diagnostic.and_then(|diagnostic| diagnostic.span) {
                converted = converted.at(to_span(span));
            }
            converted
        }
        other => {
            let text = match other {
                DataFusionError::Plan(text)
                | DataFusionError::NotImplemented(text)
                | DataFusionError::Execution(text)
                | DataFusionError::Internal(text) => text.clone(),
                DataFusionError::SQL(error, _) => return from_parser(error),
                DataFusionError::External(error) => match error.downcast_ref::<SqlError>() {
                    Some(ours) => return ours.clone(),
                    None => error.to_string(),
                },
                DataFusionError::ArrowError(error, _) => error.to_string(),
                other => other.strip_backtrace(),
            };
            let mut converted = SqlError::new(first_sentence(&text));
            if let Some(diagnostic) = diagnostic {
                if let Some(span) = diagnostic.span {
                    converted = converted.at(to_span(span));
                }
                let helps = diagnostic.helps.iter().map(|help| help.message.clone());
                converted.mend = helps.collect::<Vec<_>>().join("; ");
            }
            converted
        }
    }
}

/// Without the advice to report a bug to another project, and without a backtrace.
fn first_sentence(text: &str) -> String {
    let end = [
        "\n\nbacktrace",
        ".\nThis issue was likely caused",
        "\nThis issue was likely caused",
    ]
    .iter()
    .filter_map(|mark| text.find(mark))
    .min()
    .unwrap_or(text.len());
    text[..end].trim_end().to_string()
}

fn from_schema_error(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let names = valid_fields
                .iter()
                .map(|valid| valid.name.clone())
                .collect::<Vec<_>>();
            let error = SqlError::new(format!("there is no column '{}'", field.flat_name()));
            let error = match field.spans.first() {
                Some(span) => error.at(to_span(span)),
                None => error,
            };
            match nearest(&field.name, &names) {
                Some(near) => error.mend(format!("did you mean '{near}'?")),
                None if names.is_empty() => error,
                None => error.mend(format!("the columns are: {}", names.join(", "))),
            }
        }
        SchemaError::AmbiguousReference { field } => {
            let error = SqlError::new(format!("column '{}' is in more than one table", field.name));
            let error = match field.spans.first() {
                Some(span) => error.at(to_span(span)),
                None => error,
            };
            error.mend(format!("write which one: table.{}", field.name))
        }
        other => SqlError::new(other.to_string()),
    }
}

fn to_span(span: datafusion_common::Span) -> Span {
    Span::new(
        Location::new(span.start.line, span.start.column),
        Location::new(span.end.line, span.end.column),
    )
}

/// A parser's error; it has its place only in its text: `… at Line: 3, Column: 14`.
pub fn from_parser(error: &sqlparser::parser::ParserError) -> SqlError {
    use sqlparser::parser::ParserError;
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.clone(),
        ParserError::RecursionLimitExceeded => "the statement is nested too deeply".to_string(),
    };
    let Some(at) = text.rfind(" at Line: ") else {
        return SqlError::new(text);
    };
    let numbers = text[at + " at Line: ".len()..]
        .split(", Column: ")
        .collect::<Vec<_>>();
    let place = match numbers.as_slice() {
        [line, column] => line
            .trim()
            .parse::<u64>()
            .ok()
            .zip(column.trim().parse::<u64>().ok()),
        _ => None,
    };
    let message = SqlError::new(&text[..at]);
    match place {
        Some((line, column)) => message.at(Span::new(
            Location::new(line, column),
            Location::new(line, column + 1),
        )),
        None => message,
    }
}

/// The one of `known` that `name` is most likely a misspelling of.
pub fn nearest(name: &str, known: &[String]) -> Option<String> {
    let name = name.to_lowercase();
    known
        .iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&name, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_what_is_meant() {
        let span = Span::new(Location::new(2, 9), Location::new(2, 12));
        let error = SqlError::new("there is no column 'ips'")
            .at(span)
            .mend("did you mean 'ip'?");
        assert_eq!(
            error.render("q.sql", "SELECT 1;\n\tSELECT ips FROM t"),
            "q.sql:2:9: there is no column 'ips'\n  |\n2 | \tSELECT ips FROM t\n  | \t       ^^^\n  \
             = did you mean 'ip'?"
        );
    }

    #[test]
    fn a_name_far_from_all_others_has_no_nearest() {
        let known = ["price".to_string(), "auction".to_string()];
        assert_eq!(nearest("pirce", &known), Some("price".to_string()));
        assert_eq!(nearest("xyz", &known), None);
    }
}
