//! The queries: those of `examples/nexmark` with other sources and sinks.

use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

/// Events per second of event time: ten million events span 1,000 s, a hundred windows of ten seconds.
const EVENTS_PER_SECOND: u64 = 10_000;

/// Rows of the side input of q13.
const SIDE_INPUT: &str = include_str!("../../../../examples/nexmark/side_input.csv");

/// A query of Nexmark.
pub struct Query {
    /// The query's name, such as `q0`.
    pub name: &'static str,
    text: &'static str,
}

macro_rules! queries {
    ($($number:literal)*) => {
        &[$(Query {
            name: concat!("q", $number),
            text: include_str!(concat!("../../../../examples/nexmark/q", $number, ".sql")),
        }),*]
    };
}

/// All queries. There is no q6, because Flink's own set can't run it.
pub const QUERIES: &[Query] = queries!(0 1 2 3 4 5 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22);

/// Where events come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// Events are generated as they are read.
    Generator,
    /// The same events, as JSON in a file.
    Json,
}

impl Input {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Input::Generator => "generator",
            Input::Json => "json",
        }
    }
}

impl Query {
    /// The query for the engine, over an input.
    pub fn over(&self, input: Input, file: &Path, events: u64, folder: &Path) -> String {
        let source = match input {
            Input::Generator => generator(events),
            Input::Json => format!(
                "'connector' = 'file', 'format' = 'json', 'path' = {}",
                quoted(file)
            ),
        };
        let side_input = quoted(&folder.join("side_input.csv"));
        with(self.text, &source)
            .replace("'connector' = 'print'", "'connector' = 'blackhole'")
            .replace("'examples/nexmark/side_input.csv'", &side_input)
    }

    /// The query for Flink, over a file.
    pub fn for_flink(&self, file: &Path, folder: &Path) -> String {
        let source = format!(
            "'connector' = 'filesystem', 'format' = 'json', 'path' = {}",
            quoted(file)
        );
        let side_input = quoted(&folder.join("side_input.csv"));
        let text = with(self.text, &source)
            .replace("'connector' = 'print'", "'connector' = 'blackhole'")
            .replace(
                "'connector' = 'file', 'path' = 'examples/nexmark/side_input.csv'",
                &format!("'connector' = 'filesystem', 'format' = 'csv', 'path' = {side_input}"),
            );
        in_back_quotes(&text, "dateTime")
    }
}

/// Writes the events to a file.
pub fn generate(file: &Path, events: u64) -> String {
    let text = QUERIES[0].text;
    let begin = text.find("(\n").unwrap_or_default();
    let end = text.find(",\n  dateTime AS").unwrap_or_default();
    let columns = &text[begin..end];
    format!(
        "CREATE TABLE nexmark {columns}) WITH ({});\n\
         CREATE TABLE out {columns}) WITH ('connector' = 'file', 'format' = 'json', 'path' = {});\n\
         INSERT INTO out SELECT * FROM nexmark;\n",
        generator(events),
        quoted(file)
    )
}

/// Writes the side input of q13.
pub fn write_side_input(folder: &Path) -> Result<(), String> {
    crate::lab::write(&folder.join("side_input.csv"), SIDE_INPUT)
}

fn generator(events: u64) -> String {
    format!(
        "'connector' = 'datagen', 'generator' = 'nexmark', 'rows' = '{events}', \
         'events_per_second' = '{EVENTS_PER_SECOND}', 'disorder' = '500 ms'"
    )
}

/// An example with other options for its source.
fn with(text: &str, options: &str) -> String {
    let before = ") WITH (";
    let Some(begin) = text.find(before).map(|begin| begin + before.len()) else {
        return text.to_string();
    };
    let end = text[begin..]
        .find(')')
        .map_or(text.len(), |length| begin + length);
    format!("{}{options}{}", &text[..begin], &text[end..])
}

/// Puts a name that is a reserved word of Flink into back quotes wherever it is a word.
fn in_back_quotes(text: &str, name: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, found) = rest.split_at(at);
        quoted.push_str(before);
        rest = &found[name.len()..];
        if before.ends_with(is_part) || rest.starts_with(is_part) {
            quoted.push_str(name);
        } else {
            quoted.push_str(&format!("`{name}`"));
        }
    }
    quoted + rest
}

/// A path as an SQL string.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slackwater::catalog::BuiltIn;

    #[test]
    fn every_query_compiles_over_each_input() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it's here.jsonl");
        std::fs::write(&file, "").unwrap();
        write_side_input(folder.path()).unwrap();
        let mut queries = vec![generate(&folder.path().join("new.jsonl"), 10)];
        for query in QUERIES {
            for input in [Input::Generator, Input::Json] {
                queries.push(query.over(input, &file, 10, folder.path()));
            }
        }
        for text in queries {
            assert!(
                !text.contains("'print'") && !text.contains("examples/"),
                "{text}"
            );
            let compiled = slackwater_sql::program::compile(&text, &[], &BuiltIn);
            if let Err(error) = compiled {
                panic!("{}", error.render("query", &text));
            }
        }
    }

    #[test]
    fn flink_gets_its_own_connectors_and_quotes() {
        let folder = Path::new("/folder");
        for query in QUERIES {
            let text = query.for_flink(Path::new("/events.jsonl"), folder);
            assert!(
                text.contains("'filesystem'") && text.contains("`dateTime`"),
                "{text}"
            );
            for other in ["'datagen'", "'print'", "'file'", "examples/", " dateTime"] {
                assert!(!text.contains(other), "{other} in {text}");
            }
        }
        assert_eq!(
            in_back_quotes("a.b, xb, b_, (b)", "b"),
            "a.`b`, xb, b_, (`b`)"
        );
    }
}
