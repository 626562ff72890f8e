//! The forms of an answer, and which of them a client wants.

use arrow_cast::display::FormatOptions;
use hyper::header::ACCEPT;

use crate::backend::{Kind, Refusal};
use crate::http::{Asked, StatusCode};

use super::Refused;
use super::query::Query;

/// How a time is written.
pub const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// How values are written as text.
pub const DISPLAY: FormatOptions<'static> = FormatOptions::new()
    .with_timestamp_format(Some(TIMESTAMP))
    .with_timestamp_tz_format(Some(TIMESTAMP));

/// The form of an answer with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A JSON object per line: the columns, each row, and how it ended.
    Lines,
    /// An array of objects.
    Json,
    /// Arrow's stream format.
    Arrow,
    /// Comma-separated values, with the names of the columns.
    Csv,
    /// A table for people.
    Text,
    /// Events for a page.
    Events,
}

impl Form {
    /// The content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Lines => "application/x-ndjson",
            Form::Json => "application/json",
            Form::Arrow => "application/vnd.apache.arrow.stream",
            Form::Csv => "text/csv; charset=utf-8",
            Form::Text => "text/plain; charset=utf-8",
            Form::Events => "text/event-stream",
        }
    }

    /// The word for `?format=`.
    fn word(self) -> &'static str {
        match self {
            Form::Lines => "lines",
            Form::Json => "json",
            Form::Arrow => "arrow",
            Form::Csv => "csv",
            Form::Text => "text",
            Form::Events => "events",
        }
    }

    /// Whether it has room for the rows of one statement only, and for no error after the first of them.
    pub fn is_single(self) -> bool {
        matches!(self, Form::Json | Form::Arrow | Form::Csv)
    }

    /// The form that a client wants: `?format=` or the header `Accept`. Without either it is the first one.
    pub fn wanted(asked: &Asked, query: &mut Query, offered: &[Form]) -> Result<Form, Refused> {
        let refused = |message: String| {
            let words = offered.iter().map(|form| form.content_type());
            let hint = format!("use one of {}", words.collect::<Vec<_>>().join(", "));
            Refused {
                status: StatusCode::NOT_ACCEPTABLE,
                refusal: Refusal::new(Kind::Value, message).hint(hint),
            }
        };
        if let Some(word) = query.take("format") {
            let found = offered.iter().find(|form| form.word() == word);
            return found.copied().ok_or_else(|| {
                let words = offered.iter().map(|form| form.word()).collect::<Vec<_>>();
                let message = format!("format '{word}' is not supported here");
                Refusal::new(Kind::Value, message)
                    .hint(format!("use one of {}", words.join(", ")))
                    .into()
            });
        }
        let accept = asked.headers.get_all(ACCEPT).iter();
        let accept = accept.filter_map(|value| value.to_str().ok());
        let ranges = accept.flat_map(|value| value.split(','));
        let ranges = ranges.filter_map(Range::of).collect::<Vec<Range<'_>>>();
        if ranges.is_empty() {
            return Ok(offered[0]);
        }
        let mut best: Option<(u32, Form)> = None;
        for &form in offered {
            // The most precise range says how much the client wants it.
            let own = ranges.iter().filter(|range| range.matches(form));
            let weight = own.max_by_key(|range| range.precision());
            let weight = weight.map_or(0, |range| range.weight);
            if weight > best.map_or(0, |(best, _)| best) {
                best = Some((weight, form));
            }
        }
        best.map(|(_, form)| form)
            .ok_or_else(|| refused("the client accepts no form of this answer".to_string()))
    }
}

/// A part of the header `Accept`, such as `text/*;q=0.5`.
struct Range<'a> {
    kind: &'a str,
    subkind: &'a str,
    /// In thousandths.
    weight: u32,
}

impl<'a> Range<'a> {
    fn of(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subkind) = parts.next()?.split_once('/')?;
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        Some(Range {
            kind,
            subkind,
            weight: (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u32,
        })
    }

    fn matches(&self, form: Form) -> bool {
        let own = form.content_type().split(';').next().unwrap_or_default();
        let (kind, subkind) = own.split_once('/').unwrap_or_default();
        let fits = |range: &str, own: &str| range == "*" || range.eq_ignore_ascii_case(own);
        fits(self.kind, kind) && fits(self.subkind, subkind)
    }

    fn precision(&self) -> u32 {
        u32::from(self.kind != "*") + u32::from(self.subkind != "*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::asked;

    fn wanted(accept: &str, query: &str) -> Result<Form, (u16, String)> {
        let mut query = Query::of(Some(query)).unwrap();
        let asked = asked(&[("accept", accept)]);
        let offered = [Form::Lines, Form::Json, Form::Arrow, Form::Csv, Form::Text];
        let form = Form::wanted(&asked, &mut query, &offered);
        form.map_err(|refused| (refused.status.as_u16(), refused.refusal.to_string()))
    }

    #[test]
    fn the_form_that_a_client_wants_most_is_taken() {
        for (accept, form) in [
            ("", Form::Lines),
            ("*/*", Form::Lines),
            ("application/json", Form::Json),
            ("Text/CSV", Form::Csv),
            ("text/*", Form::Csv),
            ("application/vnd.apache.arrow.stream", Form::Arrow),
            ("text/html, */*;q=0.1", Form::Lines),
            ("text/plain;q=0.5, application/json;q=0.7", Form::Json),
            ("application/x-ndjson;q=0, */*", Form::Json),
            ("text/csv;q=what, text/plain;q=0.9", Form::Csv),
        ] {
            assert_eq!(wanted(accept, ""), Ok(form), "{accept}");
        }
        assert_eq!(wanted("text/csv", "format=text"), Ok(Form::Text));
    }

    #[test]
    fn forms_that_there_are_not_are_refused() {
        for accept in ["image/png", "text/html", "*/*;q=0"] {
            let (status, message) = wanted(accept, "").unwrap_err();
            assert_eq!(status, 406, "{accept}");
            assert!(message.contains("application/x-ndjson"), "{message}");
        }
        let (status, message) = wanted("", "format=xml").unwrap_err();
        assert_eq!(status, 400);
        assert!(
            message.contains("'xml'") && message.contains("lines"),
            "{message}"
        );
    }
}
