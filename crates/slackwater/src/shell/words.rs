//! What can be completed, and what is shown of tables and views.

use slackwater_connect::{CONNECTORS, FORMATS};
use slackwater_sql::connectors::Connectors;
use slackwater_sql::session::Session;
use slackwater_sql::table::{Table, TableColumn};
use slackwater_sql::types::sql_name;

use super::commands::COMMANDS;
use crate::catalog::BuiltIn;

/// Words that statements are made of.
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
    "HOP",
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
    "TUMBLE",
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
    /// Those of a session.
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
        // What the planner calls for itself.
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

    /// Functions whose name begins so.
    pub fn functions(&self, prefix: &str) -> Vec<&String> {
        let prefix = prefix.to_lowercase();
        let all = self.functions.iter();
        all.filter(|name| name.starts_with(&prefix)).collect()
    }

    /// What may stand in place of the last word of `line`: where that begins, and the candidates.
    pub fn complete(&self, line: &str) -> (usize, Vec<String>) {
        if let Some(command) = line.strip_prefix('\\') {
            return self.complete_command(command);
        }
        if let Some(start) = super::split::open_quote(line) {
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
        // Keywords and functions in the case that was begun.
        let is_lower = prefix.chars().any(char::is_lowercase);
        let in_case = |word: &str| match is_lower {
            true => word.to_lowercase(),
            false => word.to_uppercase(),
        };
        let upper = prefix.to_uppercase();
        let keywords = KEYWORDS.iter().filter(|word| word.starts_with(&upper));
        found.extend(keywords.map(|word| in_case(word)));
        let functions = self.functions(prefix).into_iter();
        found.extend(functions.map(|name| in_case(name) + "("));
        found.sort();
        found.dedup();
        (start, found)
    }

    /// What may stand in quotes behind `before`: a setting behind SET, an option of a table that is created, and
    /// the values of those that name something.
    fn quoted(&self, before: &str, prefix: &str) -> Vec<String> {
        let pieces = super::split::split(before);
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
                    "format" => FORMATS.iter().map(|kind| kind.name.to_string()).collect(),
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

/// `\d`: what there is.
pub fn list(session: &Session) -> String {
    let tables = session.tables.values().map(|table| {
        let connector = table.options.get("connector").map_or("", String::as_str);
        vec![
            table.name.clone(),
            "table".to_string(),
            connector.to_string(),
        ]
    });
    let views = session.view_names();
    let views = views.map(|name| vec![name.clone(), "view".to_string(), String::new()]);
    let mut rows = tables.chain(views).collect::<Vec<_>>();
    if rows.is_empty() {
        return "no tables yet: CREATE TABLE … declares one\n".to_string();
    }
    rows.sort();
    aligned(&["name", "kind", "connector"], &rows)
}

/// `\d name`: what a table or view is.
pub fn describe(session: &Session, name: &str) -> Option<String> {
    if let Some(table) = session.tables.get(name) {
        return Some(table_described(table));
    }
    let columns = session.view_columns(name)?;
    let rows = columns
        .into_iter()
        .map(|(name, of)| vec![name, sql_name(&of)]);
    Some(aligned(&["column", "type"], &rows.collect::<Vec<_>>()))
}

fn table_described(table: &Table) -> String {
    let fields = table.schema.fields().iter().zip(&table.columns).enumerate();
    let rows = fields.map(|(index, (field, column))| {
        let mut notes = Vec::new();
        match column {
            TableColumn::Computed(_) => notes.push("computed".to_string()),
            TableColumn::Physical(physical) => {
                let key = table.metadata.get(physical);
                notes.extend(key.map(|key| format!("metadata '{key}'")));
            }
        }
        if let Some((time, delay_us)) = table.event_time
            && time == index
        {
            let delay_s = delay_us as f64 / 1e6;
            notes.push(format!("event time, watermark {delay_s} s behind"));
        }
        if let TableColumn::Physical(physical) = column
            && table.not_null.contains(physical)
        {
            notes.push("not null".to_string());
        }
        notes.extend(table.column_comments.get(&index).cloned());
        vec![
            field.name().clone(),
            sql_name(field.data_type()),
            notes.join(", "),
        ]
    });
    let mut text = aligned(&["column", "type", ""], &rows.collect::<Vec<_>>());
    if let Some(comment) = &table.comment {
        text.push_str(&format!("  {comment}\n"));
    }
    for (name, value) in &table.options {
        let is_secret = ["password", "secret", "token"]
            .iter()
            .any(|word| name.contains(word));
        let value = if is_secret { "…" } else { value };
        text.push_str(&format!("  '{name}' = '{value}'\n"));
    }
    text
}

/// The statement that declares a table of columns that are read or written.
pub fn written(table: &Table) -> String {
    let name = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let columns = table.physical.fields().iter();
    let columns =
        columns.map(|field| format!("{} {}", name(field.name()), sql_name(field.data_type())));
    let options = table.options.iter();
    let options = options.map(|(key, value)| format!("{} = {}", text(key), text(value)));
    format!(
        "CREATE TABLE {} ({}) WITH ({})",
        name(&table.name),
        columns.collect::<Vec<String>>().join(", "),
        options.collect::<Vec<String>>().join(", ")
    )
}

/// Rows under their titles.
pub fn aligned(titles: &[&str], rows: &[Vec<String>]) -> String {
    let titles = titles
        .iter()
        .map(|title| title.to_string())
        .collect::<Vec<String>>();
    let lines = std::iter::once(&titles).chain(rows);
    let width = |index: usize| {
        let texts = lines.clone().filter_map(|line| line.get(index));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths = (0..titles.len()).map(width).collect::<Vec<usize>>();
    let mut text = String::new();
    for line in lines.clone() {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(text, width)| format!("{text:<width$}"));
        let line = cells.collect::<Vec<String>>().join("  ");
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        let text = "CREATE TABLE bids (price DOUBLE, bidder STRING) WITH ('connector' = 'file', 'path' = 'b.csv');
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
