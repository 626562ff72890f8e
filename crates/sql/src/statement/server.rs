//! Statements that only a server knows: about its jobs, and about what it has declared.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::create::{name, options};
use super::{DIALECT, end, is_space, is_word, parser, setting};
use crate::error::{Result, SqlError, nearest, shown};
use crate::rewording::from_tokenizer;

/// A statement about a server's jobs and declarations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerStatement {
    /// `SHOW TABLES`, and so on.
    Show(Listing),
    /// `SHOW CREATE TABLE name`: the statement that made it.
    ShowCreate(Ident),
    /// `SHOW 'key'`: the value of a setting.
    ShowSetting(String),
    /// `DESCRIBE name`: its columns.
    Describe(Ident),
    /// `STOP JOB name`: its state is saved and kept.
    Stop(Ident),
    /// `START JOB name`: it goes on where it was stopped.
    Start(Ident),
    /// `DROP … name, …`.
    Drop(Drop),
    /// `ALTER … name …`.
    Alter(Alter),
    /// `ALTER SYSTEM SET ('key' = 'value', …)`: the settings of new sessions.
    AlterSystem(Change),
    /// `SUBSCRIBE [TO] name`: the rows of a materialized view, and then their changes.
    Subscribe(Ident),
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// Tables.
    Tables,
    /// Views that are not kept.
    Views,
    /// Materialized views.
    MaterializedViews,
    /// Sinks.
    Sinks,
    /// Jobs, with what they do.
    Jobs,
    /// The functions of SQL.
    Functions,
    /// Settings, with their values in this session.
    Settings,
}

/// What has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A table.
    Table,
    /// A view.
    View,
    /// A materialized view.
    MaterializedView,
    /// A sink.
    Sink,
    /// A job: a materialized view, a sink, or the job of an INSERT.
    Job,
    /// A function.
    Function,
}

impl Named {
    /// The words for it in messages.
    pub fn words(self) -> &'static str {
        match self {
            Named::Table => "table",
            Named::View => "view",
            Named::MaterializedView => "materialized view",
            Named::Sink => "sink",
            Named::Job => "job",
            Named::Function => "function",
        }
    }
}

/// `DROP … [IF EXISTS] name, … [CASCADE | RESTRICT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drop {
    /// What is dropped.
    pub kind: Named,
    /// `IF EXISTS`: no error for a name that is not there.
    pub if_exists: bool,
    /// The names.
    pub names: Vec<Ident>,
    /// `CASCADE`: what depends on it is dropped, too.
    pub cascades: bool,
}

/// `ALTER … name …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alter {
    /// What is changed.
    pub kind: Named,
    /// Its name.
    pub name: Ident,
    /// What becomes of it.
    pub change: Change,
}

/// What ALTER changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `SET ('key' = 'value', …)`.
    Set(BTreeMap<String, String>),
    /// `RESET ('key', …)`.
    Reset(Vec<String>),
    /// `AS query`: the place of the query's first character, in bytes of the statement.
    Query(usize),
}

const LISTINGS: [(&str, Listing); 6] = [
    ("TABLES", Listing::Tables),
    ("VIEWS", Listing::Views),
    ("SINKS", Listing::Sinks),
    ("JOBS", Listing::Jobs),
    ("FUNCTIONS", Listing::Functions),
    ("SETTINGS", Listing::Settings),
];

/// Reads a statement, if it is one that only a server knows.
///
/// # Errors
///
/// If it begins like one and is not valid.
pub fn parse(text: &str) -> Result<Option<ServerStatement>> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize_with_location()
        .map_err(|error| from_tokenizer(&error, text))?;
    let last = tokens.iter().rposition(|token| !is_space(token));
    let ends = last.is_some_and(|last| tokens[last].token == Token::SemiColon);
    let tokens = &tokens[..last.map_or(0, |last| last + usize::from(!ends))];
    let mut solid = tokens.iter().filter(|token| !is_space(token));
    let first = solid.next().map_or(String::new(), word);
    let second = solid.next().map_or(String::new(), word);
    let read = match first.as_str() {
        "SHOW" => show,
        "DESCRIBE" | "DESC" => describe,
        "STOP" | "START" if second == "JOB" => job,
        "STOP" => return Err(SqlError::new("STOP must be followed by JOB and its name")),
        "DROP" => drop,
        "ALTER" => alter,
        "SUBSCRIBE" => subscribe,
        _ => return Ok(None),
    };
    let mut reader = Reader {
        parser: parser(tokens.to_vec()),
        text,
    };
    let statement = read(&mut reader).map_err(|error| error.among(tokens))?;
    Ok(Some(statement))
}

/// The names and strings in a statement: among them are the tables and views that it uses.
///
/// # Errors
///
/// If it is not made of words of SQL.
pub fn words(text: &str) -> Result<BTreeSet<String>> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize()
        .map_err(|error| from_tokenizer(&error, text))?;
    let words = tokens.into_iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.value),
        Token::SingleQuotedString(text) => Some(text),
        _ => None,
    });
    Ok(words.collect())
}

/// The name of the job of a `SET 'pipeline.name' = 'name'`, which Flink knows too.
pub const JOB_NAME: &str = "pipeline.name";

struct Reader<'a> {
    parser: Parser<'static>,
    text: &'a str,
}

impl Reader<'_> {
    /// Takes these words, if they come next.
    fn takes(&mut self, words: &[&str]) -> bool {
        let next = |at: usize| self.parser.peek_nth_token(at);
        let are_next = words
            .iter()
            .enumerate()
            .all(|(at, word)| is_word(&next(at), word));
        if are_next {
            words.iter().for_each(|_| self.skip());
        }
        are_next
    }

    fn skip(&mut self) {
        self.parser.next_token();
    }

    fn end<T>(&mut self, statement: T) -> Result<T> {
        end(&mut self.parser).map(|()| statement)
    }

    /// A name that ends the statement.
    fn last_name(&mut self) -> Result<Ident> {
        let name = name(&mut self.parser)?;
        self.end(name)
    }

    fn unexpected(&mut self, wanted: &str) -> SqlError {
        let next = self.parser.peek_token();
        SqlError::new(format!("expected {wanted}, found {}", shown(&next.token))).at_token(&next)
    }

    /// The kind of something that has a name.
    fn named(&mut self) -> Result<Named> {
        let kinds: [(&[&str], Named); 6] = [
            (&["MATERIALIZED", "VIEW"], Named::MaterializedView),
            (&["TABLE"], Named::Table),
            (&["VIEW"], Named::View),
            (&["SINK"], Named::Sink),
            (&["JOB"], Named::Job),
            (&["FUNCTION"], Named::Function),
        ];
        self.takes(&["TEMPORARY"]);
        let found = kinds.into_iter().find(|(words, _)| self.takes(words));
        found
            .map(|(_, kind)| kind)
            .ok_or_else(|| self.unexpected("TABLE, VIEW, MATERIALIZED VIEW, SINK, JOB or FUNCTION"))
    }
}

fn show(reader: &mut Reader<'_>) -> Result<ServerStatement> {
    reader.skip();
    if reader.takes(&["MATERIALIZED", "VIEWS"]) {
        return reader.end(ServerStatement::Show(Listing::MaterializedViews));
    }
    if reader.takes(&["CREATE"]) {
        reader.named()?;
        return reader.last_name().map(ServerStatement::ShowCreate);
    }
    for (word, listing) in LISTINGS {
        if reader.takes(&[word]) {
            return reader.end(ServerStatement::Show(listing));
        }
    }
    if reader.takes(&["ALL"]) {
        return reader.end(ServerStatement::Show(Listing::Settings));
    }
    let next = reader.parser.peek_token();
    let hint = "use SHOW TABLES, VIEWS, MATERIALIZED VIEWS, SINKS, JOBS, FUNCTIONS, SETTINGS, or SHOW \
        CREATE TABLE t";
    if next.token == Token::EOF {
        return Err(SqlError::new("SHOW needs to know what").hint(hint));
    }
    let key = setting(&mut reader.parser)?;
    let words = LISTINGS.map(|(word, _)| word.to_string());
    if reader.parser.peek_token().token != Token::EOF
        || (key == key.to_uppercase() && nearest(&key, &words).is_some())
    {
        return Err(SqlError::new(format!("SHOW {key} is not supported"))
            .at_token(&next)
            .hint(hint));
    }
    Ok(ServerStatement::ShowSetting(key))
}

fn describe(reader: &mut Reader<'_>) -> Result<ServerStatement> {
    reader.skip();
    // As in Flink, the kind may be named.
    if !matches!(reader.parser.peek_nth_token(1).token, Token::EOF) {
        reader.named()?;
    }
    reader.last_name().map(ServerStatement::Describe)
}

fn job(reader: &mut Reader<'_>) -> Result<ServerStatement> {
    let stops = reader.takes(&["STOP", "JOB"]);
    if !stops {
        reader.takes(&["START", "JOB"]);
    }
    // Flink writes the job's name in quotes.
    let next = reader.parser.peek_token();
    let name = match &next.token {
        Token::SingleQuotedString(name) => {
            let name = Ident::with_span(next.span, name);
            reader.skip();
            reader.takes(&["WITH", "SAVEPOINT"]);
            reader.end(name)?
        }
        _ => reader.last_name()?,
    };
    Ok(match stops {
        true => ServerStatement::Stop(name),
        false => ServerStatement::Start(name),
    })
}

fn drop(reader: &mut Reader<'_>) -> Result<ServerStatement> {
    reader.skip();
    let kind = reader.named()?;
    let if_exists = reader.takes(&["IF", "EXISTS"]);
    let mut names = vec![name(&mut reader.parser)?];
    while reader.parser.consume_token(&Token::Comma) {
        names.push(name(&mut reader.parser)?);
    }
    let cascades = reader.takes(&["CASCADE"]);
    if !cascades {
        reader.takes(&["RESTRICT"]);
    }
    reader.end(ServerStatement::Drop(Drop {
        kind,
        if_exists,
        names,
        cascades,
    }))
}

fn alter(reader: &mut Reader<'_>) -> Result<ServerStatement> {
    reader.skip();
    if reader.takes(&["SYSTEM"]) {
        let change = set_or_reset(reader)?;
        return reader.end(ServerStatement::AlterSystem(change));
    }
    let kind = reader.named()?;
    let name = name(&mut reader.parser)?;
    if reader.takes(&["RENAME"]) {
        return Err(SqlError::new("RENAME is not supported").at(name.span).hint(
            "drop it and create it under the other name; a job with the new name begins with the sources' \
            first rows",
        ));
    }
    let next = reader.parser.peek_token();
    if kind == Named::MaterializedView && reader.parser.parse_keyword(Keyword::AS) {
        let query = reader.parser.peek_token();
        if query.token == Token::EOF {
            return Err(SqlError::new("expected a query after AS").at(next.span));
        }
        let begin = query.span.start;
        let change = Change::Query(place(reader.text, begin.line, begin.column));
        return Ok(ServerStatement::Alter(Alter { kind, name, change }));
    }
    let change = set_or_reset(reader)?;
    reader.end(ServerStatement::Alter(Alter { kind, name, change }))
}

/// `SET ('key' = 'value', …)` or `RESET ('key', …)`.
fn set_or_reset(reader: &mut Reader<'_>) -> Result<Change> {
    if reader.takes(&["SET"]) {
        let (mut given, mut places) = (BTreeMap::new(), BTreeMap::new());
        options(&mut reader.parser, &mut given, &mut places)?;
        return Ok(Change::Set(given));
    }
    if !reader.takes(&["RESET"]) {
        return Err(reader
            .unexpected("SET, RESET or AS")
            .hint("for example ALTER JOB name SET ('latency_target' = '50 ms')"));
    }
    if !reader.parser.consume_token(&Token::LParen) {
        return Err(reader.unexpected("'('"));
    }
    let mut keys = Vec::new();
    loop {
        keys.push(setting(&mut reader.parser)?);
        match reader.parser.next_token().token {
            Token::Comma => {}
            Token::RParen => return Ok(Change::Reset(keys)),
            _ => {
                return Err(SqlError::new(
                    "expected ',' or ')' after the name of a setting",
                ));
            }
        }
    }
}

fn subscribe(reader: &mut Reader<'_>) -> Result<ServerStatement> {
    reader.skip();
    // TO is also a name that needs no quotes.
    if !matches!(reader.parser.peek_nth_token(1).token, Token::EOF) {
        reader.takes(&["TO"]);
    }
    reader.last_name().map(ServerStatement::Subscribe)
}

/// The byte at a line and a column, both counted from 1.
pub(super) fn place(text: &str, line: u64, column: u64) -> usize {
    let mut begin = 0;
    for _ in 1..line {
        let rest = text.get(begin..).unwrap_or_default();
        begin += rest.find('\n').map_or(rest.len(), |at| at + 1);
    }
    let rest = text.get(begin..).unwrap_or_default();
    let mut characters = rest.char_indices();
    let at = characters.nth(
        usize::try_from(column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1),
    );
    begin + at.map_or(rest.len(), |(at, _)| at)
}

fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> ServerStatement {
        parse(text).unwrap().expect("a statement of a server")
    }

    #[test]
    fn statements_of_a_server() {
        assert_eq!(
            of("show materialized views;"),
            ServerStatement::Show(Listing::MaterializedViews)
        );
        assert_eq!(of("SHOW JOBS"), ServerStatement::Show(Listing::Jobs));
        let key = ServerStatement::ShowSetting("latency_target".to_string());
        assert_eq!(of("SHOW 'latency_target'"), key);
        assert!(
            matches!(of("SHOW CREATE VIEW v"), ServerStatement::ShowCreate(name) if name.value == "v")
        );
        assert!(matches!(of("DESC v"), ServerStatement::Describe(name) if name.value == "v"));
        assert!(
            matches!(of("STOP JOB 'a b' WITH SAVEPOINT"), ServerStatement::Stop(name) if name.value == "a b")
        );
        assert!(matches!(of("START JOB v"), ServerStatement::Start(name) if name.value == "v"));
        assert!(
            matches!(of("SUBSCRIBE TO v"), ServerStatement::Subscribe(name) if name.value == "v")
        );
        assert!(matches!(of("SUBSCRIBE v"), ServerStatement::Subscribe(name) if name.value == "v"));
        let ServerStatement::Drop(drop) = of("DROP TABLE IF EXISTS a, b CASCADE") else {
            panic!("not DROP");
        };
        assert_eq!(
            (drop.kind, drop.if_exists, drop.cascades),
            (Named::Table, true, true)
        );
        assert_eq!(drop.names.len(), 2);
        assert_eq!(parse("SELECT 1").unwrap(), None);
        assert_eq!(parse("START TRANSACTION").unwrap(), None);
        assert_eq!(parse("-- nothing").unwrap(), None);
    }

    #[test]
    fn alterations() {
        let change = |text: &str| match of(text) {
            ServerStatement::Alter(alter) => alter.change,
            ServerStatement::AlterSystem(change) => change,
            other => panic!("{other:?}"),
        };
        let set = BTreeMap::from([("latency_target".to_string(), "5 ms".to_string())]);
        let text = "ALTER JOB v SET ('latency_target' = '5 ms')";
        assert_eq!(change(text), Change::Set(set.clone()));
        assert_eq!(
            change("ALTER SYSTEM SET ('latency_target' = '5 ms')"),
            Change::Set(set)
        );
        let reset = Change::Reset(vec!["a".to_string(), "b.c".to_string()]);
        assert_eq!(change("ALTER SINK s RESET ('a', b.c)"), reset);
        let text = "ALTER MATERIALIZED VIEW v AS\n -- größer\n  SELECT 'ö', 2";
        let Change::Query(begin) = change(text) else {
            panic!("not a query");
        };
        assert_eq!(&text[begin..], "SELECT 'ö', 2");
    }

    #[test]
    fn errors_name_the_place() {
        let error = |text: &str| parse(text).unwrap_err();
        let place = |text: &str| error(text).place.map(|place| (place.line, place.column));
        assert_eq!(place("DROP\n  TABEL t"), Some((2, 3)));
        assert_eq!(place("SHOW JOBZ"), Some((1, 6)));
        assert_eq!(place("SHOW TABLES please"), Some((1, 13)));
        assert!(
            error("ALTER VIEW v RENAME TO w")
                .to_string()
                .contains("not supported")
        );
        assert!(error("STOP").to_string().contains("JOB"));
    }
}
