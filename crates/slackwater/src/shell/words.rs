//! The words that completion knows.

use slackwater_connect::{CONNECTORS, FORMATS};
use slackwater_sql::connectors::Connectors;
use slackwater_sql::names::WINDOW_FUNCTIONS;
use slackwater_sql::session::Session;

use super::commands::COMMANDS;
use crate::catalog::BuiltIn;

/// The keywords of statements.
const KEYWORDS: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTES",
    "CASE",
    "CAST",
    "CREATE",
    "DATE",
    "DECIMAL",
    "DESCRIPTOR",
    "DISTINCT",
    "DOUBLE",
    "ELSE",
    "END",
    "EXPLAIN",
    "FALSE",
    "FILTER",
    "FLOAT",
    "FOR",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INSERT",
    "INT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "RIGHT",
    "SELECT",
    "SET",
    "SMALLINT",
    "STRING",
    "SYSTEM_TIME",
    "TABLE",
    "THEN",
    "TIMESTAMP",
    "TINYINT",
    "TRUE",
    "UNION",
    "USING",
    "VIEW",
    "WATERMARK",
    "WHEN",
    "WHERE",
    "WITH",
];

/// All names that a session knows.
#[derive(Debug, Default, Clone)]
pub struct Words {
    /// Tables and views.
    pub tables: Vec<String>,
    columns: Vec<String>,
    functions: Vec<String>,
    /// Options of tables.
    options: Vec<String>,
    settings: Vec<String>,
}

impl Words {
    /// The names of a session.
    pub fn of(session: &Session) -> Words {
        let mut words = Words::default();
        for (name, table) in &session.tables {
            words.tables.push(name.clone());
            let fields = table.schema.fields().iter();
            words
                .columns
                .extend(fields.map(|field| field.name().clone()));
        }
        for name in session.view_names() {
            words.tables.push(name.clone());
            let columns = session.view_columns(name).unwrap_or_default();
            words
                .columns
                .extend(columns.into_iter().map(|(name, _)| name));
        }
        let functions = session.function_names().into_iter();
        // Internal functions of the planner.
        words.functions = functions
            .filter(|name| !name.starts_with("__"))
            .cloned()
            .collect();
        words.options = BuiltIn.table_options();
        let settings = slackwater_sql::settings::SETTINGS.iter();
        words.settings = settings.map(|setting| setting.name.to_string()).collect();
        let lists = [&mut words.options, &mut words.settings];
        for list in lists
            .into_iter()
            .chain([&mut words.tables, &mut words.columns])
        {
            list.sort();
            list.dedup();
        }
        words
    }

    /// With these tables and their columns, instead of its own.
    pub fn with_tables(mut self, tables: impl Iterator<Item = (String, Vec<String>)>) -> Words {
        (self.tables, self.columns) = Default::default();
        for (name, columns) in tables {
            self.tables.push(name);
            self.columns.extend(columns);
        }
        self.columns.sort();
        self.columns.dedup();
        self
    }

    /// The functions whose names start with `prefix`.
    pub fn functions(&self, prefix: &str) -> Vec<&String> {
        let prefix = prefix.to_lowercase();
        let all = self.functions.iter();
        all.filter(|name| name.starts_with(&prefix)).collect()
    }

    /// The completions of the last word of `line`: where the word starts, and the candidates.
    pub fn complete(&self, line: &str) -> (usize, Vec<String>) {
        if let Some(command) = line.strip_prefix('\\') {
            return self.complete_command(command);
        }
        if let Some(start) = crate::split::open_quote(line) {
            let found = self.quoted(&line[..start - 1], &line[start..]);
            let found = found.into_iter().map(|name| format!("{name}'"));
            return (start, found.collect());
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let start = line.rfind(|c| !is_part(c)).map_or(0, |at| {
            at + line[at..].chars().next().map_or(1, char::len_utf8)
        });
        let prefix = &line[start..];
        if prefix.is_empty() && !line.ends_with('.') {
            return (start, Vec::new());
        }
        let mut found = matching(&self.tables, prefix);
        found.extend(matching(&self.columns, prefix));
        if line[..start].ends_with('.') {
            return (start, found);
        }
        // Keywords and functions in the case of the typed prefix.
        let is_lower = prefix.chars().any(char::is_lowercase);
        let in_case = |word: &str| match is_lower {
            true => word.to_lowercase(),
            false => word.to_uppercase(),
        };
        let upper = prefix.to_uppercase();
        let keywords = KEYWORDS.iter().chain(WINDOW_FUNCTIONS);
        let keywords = keywords.filter(|word| word.starts_with(&upper));
        found.extend(keywords.map(|word| in_case(word)));
        let functions = self.functions(prefix).into_iter();
        found.extend(functions.map(|name| in_case(name) + "("));
        found.sort();
        found.dedup();
        (start, found)
    }

    /// What may stand in quotes behind `before`: a setting behind SET, an option of a table that is created,
    /// and the values of those that name something.
    fn quoted(&self, before: &str, prefix: &str) -> Vec<String> {
        let pieces = crate::split::split(before);
        let statement = pieces.last().map_or("", |piece| piece.placed.trim());
        let first = statement.split_whitespace().next().unwrap_or_default();
        let names = match statement.strip_suffix('=') {
            Some(named) => {
                let key = named.trim_end().trim_end_matches('\'');
                let key = key.rsplit('\'').next().unwrap_or_default();
                match key.to_lowercase().as_str() {
                    "connector" => CONNECTORS
                        .iter()
                        .map(|kind| kind.name.to_string())
                        .collect(),
                    "format" => {
                        let own = slackwater_sql::functions::formats();
                        let own = own.iter().map(|format| format.name().to_string());
                        let built_in = FORMATS.iter().map(|kind| kind.name.to_string());
                        built_in.chain(own).collect()
                    }
                    _ => Vec::new(),
                }
            }
            None if first.eq_ignore_ascii_case("SET") => self.settings.clone(),
            None if first.eq_ignore_ascii_case("CREATE") => self.options.clone(),
            None => Vec::new(),
        };
        matching(&names, prefix)
    }

    fn complete_command(&self, command: &str) -> (usize, Vec<String>) {
        match command.split_once(char::is_whitespace) {
            None => {
                let known = COMMANDS.iter().map(|(name, ..)| name.to_string());
                (1, matching(&known.collect::<Vec<String>>(), command))
            }
            Some((name, rest)) => {
                let start = 1 + name.len() + 1 + rest.len() - rest.trim_start().len();
                let words = match name {
                    "d" | "drop" => matching(&self.tables, rest.trim_start()),
                    "df" => self
                        .functions(rest.trim_start())
                        .into_iter()
                        .cloned()
                        .collect(),
                    _ => Vec::new(),
                };
                (start, words)
            }
        }
    }
}

fn matching(words: &[String], prefix: &str) -> Vec<String> {
    words
        .iter()
        .filter(|word| word.starts_with(prefix))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        let text =
            "CREATE TABLE bids (price DOUBLE, bidder STRING) WITH ('connector' = 'file', 'path' = \
                    'b.csv');
            CREATE VIEW cheap AS SELECT price AS low FROM bids WHERE price < 1";
        Words::of(&slackwater_sql::program::declared(text, &[], &BuiltIn).unwrap())
    }

    #[test]
    fn words_are_completed_by_where_they_stand() {
        let words = words();
        assert_eq!(words.complete("SELECT pri"), (7, vec!["price".to_string()]));
        assert_eq!(
            words.complete("SELECT b.bidd"),
            (9, vec!["bidder".to_string()])
        );
        assert!(words.complete("sel").1.contains(&"select".to_string()));
        assert!(
            words
                .complete("FROM CUMU")
                .1
                .contains(&"CUMULATE".to_string())
        );
        assert!(
            words
                .complete("SELECT SPLIT_I")
                .1
                .contains(&"SPLIT_INDEX(".to_string())
        );
        assert!(
            words
                .complete("SET 'paralleli")
                .1
                .contains(&"parallelism'".to_string())
        );
        assert!(
            words
                .complete("CREATE TABLE t (a INT) WITH ('conn")
                .1
                .contains(&"connector'".to_string())
        );
        let quoted = |line: &str| words.complete(line).1;
        assert!(!quoted("SET '").contains(&"connector'".to_string()));
        assert!(!quoted("CREATE TABLE t (a INT) WITH ('").contains(&"parallelism'".to_string()));
        assert_eq!(
            words.complete("CREATE TABLE t (a INT) WITH ('connector' = 'f"),
            (44, vec!["file'".to_string()])
        );
        assert_eq!(
            quoted("CREATE TABLE t (a INT)\nWITH ('connector' = 'file', 'format' = 'j"),
            ["json'"]
        );
        assert!(quoted("CREATE TABLE t (a INT) WITH ('path' = '").is_empty());
        assert!(quoted("SELECT bidder FROM bids WHERE bidder = 'f").is_empty());
        assert_eq!(words.complete("\\d ch"), (3, vec!["cheap".to_string()]));
        assert!(words.complete("\\ti").1.contains(&"timing".to_string()));
        assert_eq!(words.complete("SELECT "), (7, vec![]));
        assert_eq!(words.complete("ü"), (0, vec![]));
    }
}
