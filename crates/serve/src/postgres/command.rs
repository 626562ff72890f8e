//! What a statement is to this door: a command that it answers itself, a query of the catalog, or anything
//! else, which the session is asked.

use std::ops::Range;

use super::copy::Copy;
use super::words::{Kind, Word, words};

/// A statement, by who answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Empty,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Release,
    RollbackToSavepoint,
    /// `SET name = value`; `None` stands for DEFAULT.
    Set {
        name: String,
        value: Option<String>,
    },
    /// `RESET name`, or `RESET ALL`.
    Reset(Option<String>),
    Show(String),
    /// A cursor, and where its query is in the text.
    Declare {
        name: String,
        query: Range<usize>,
        hold: bool,
    },
    Fetch(Fetch),
    /// `CLOSE name`, or `CLOSE ALL`.
    Close(Option<String>),
    Copy(Copy),
    /// `DEALLOCATE name`, or `DEALLOCATE ALL`.
    Deallocate(Option<String>),
    Discard,
    /// Accepted without doing anything, with these words as the answer: `LISTEN`, `UNLISTEN`.
    Nothing(&'static str),
    /// A query that reads PostgreSQL's catalog, or only asks for facts of the server.
    Catalog,
    Other,
}

/// `FETCH` or `MOVE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub cursor: String,
    /// `None` for all rows.
    pub rows: Option<usize>,
    pub moves: bool,
}

/// Recognizes a statement. `is_setting` knows the settings of clients, `is_catalog` the queries of the
/// catalog.
pub fn recognize(
    text: &str,
    is_setting: impl Fn(&str) -> bool,
    is_catalog: impl Fn(&[Word<'_>]) -> bool,
) -> Command {
    let mut words = words(text);
    if words.last().is_some_and(|word| word.is_sign(";")) {
        words.pop();
    }
    let Some(first) = words.first().and_then(Word::name) else {
        return match words.is_empty() {
            true => Command::Empty,
            false if is_catalog(&words) => Command::Catalog,
            false => Command::Other,
        };
    };
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    let known = match first.as_str() {
        "begin" if !is(1, "statement") => Some(Command::Begin),
        "start" if is(1, "transaction") => Some(Command::Begin),
        "commit" => Some(Command::Commit),
        "end" if words.len() == 1 || is(1, "transaction") || is(1, "work") => Some(Command::Commit),
        "abort" => Some(Command::Rollback),
        "rollback" => {
            let to = words.iter().any(|word| word.is("to"));
            Some(if to {
                Command::RollbackToSavepoint
            } else {
                Command::Rollback
            })
        }
        "savepoint" => Some(Command::Savepoint),
        "release" => Some(Command::Release),
        "set" => set(&words[1..], is_setting),
        "reset" => reset(&words[1..], is_setting),
        "show" => show(&words[1..], is_setting),
        "declare" => declare(&words),
        "fetch" => fetch(&words[1..], false),
        "move" => fetch(&words[1..], true),
        "close" => one_or_all(&words[1..]).map(Command::Close),
        "copy" => Copy::recognize(&words).map(Command::Copy),
        "deallocate" => {
            let rest = &words[1 + usize::from(is(1, "prepare"))..];
            one_or_all(rest).map(Command::Deallocate)
        }
        "discard" => Some(Command::Discard),
        "listen" => Some(Command::Nothing("LISTEN")),
        "unlisten" => Some(Command::Nothing("UNLISTEN")),
        "select" | "with" | "values" | "table" if is_catalog(&words) => Some(Command::Catalog),
        _ => None,
    };
    known.unwrap_or(Command::Other)
}

fn one_or_all(words: &[Word<'_>]) -> Option<Option<String>> {
    match words {
        [all] if all.is("all") => Some(None),
        [name] => name.name().map(Some),
        _ => None,
    }
}

/// `[SESSION | LOCAL] name { = | TO } value`, and the forms with words of their own.
fn set(words: &[Word<'_>], is_setting: impl Fn(&str) -> bool) -> Option<Command> {
    let words = match words {
        [scope, rest @ ..] if rest.len() > 1 && (scope.is("session") || scope.is("local")) => rest,
        _ => words,
    };
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    if is(0, "transaction") || (is(0, "characteristics") && is(1, "as")) {
        return Some(Command::Nothing("SET"));
    }
    let (name, values) = if is(0, "time") && is(1, "zone") {
        ("timezone".to_owned(), &words[2..])
    } else if is(0, "names") {
        ("client_encoding".to_owned(), &words[1..])
    } else {
        let name = words
            .first()
            .filter(|word| word.kind != Kind::Text)?
            .name()?;
        let equals = words.get(1)?;
        if !is_setting(&name) || !(equals.is_sign("=") || equals.is("to")) {
            return None;
        }
        (name, &words[2..])
    };
    let value = match values {
        [default] if default.is("default") || (default.is("local") && name == "timezone") => None,
        values => Some(list(values)),
    };
    Some(Command::Set { name, value })
}

/// The values of a setting, which may be a list, as one text.
fn list(values: &[Word<'_>]) -> String {
    let mut text = String::new();
    for value in values {
        let shown = value.string().or_else(|| match value.kind {
            Kind::Quoted => value.name(),
            _ => None,
        });
        text.push_str(&shown.unwrap_or_else(|| value.text.to_owned()));
        text.push_str(if value.is_sign(",") { " " } else { "" });
    }
    text
}

fn reset(words: &[Word<'_>], is_setting: impl Fn(&str) -> bool) -> Option<Command> {
    let name = one_or_all(words)?;
    let known = name.as_ref().is_none_or(|name| is_setting(name));
    known.then_some(Command::Reset(name))
}

fn show(words: &[Word<'_>], is_setting: impl Fn(&str) -> bool) -> Option<Command> {
    let name = match words {
        [time, zone] if time.is("time") && zone.is("zone") => "timezone".to_owned(),
        [transaction, isolation, level]
            if transaction.is("transaction") && isolation.is("isolation") && level.is("level") =>
        {
            "transaction_isolation".to_owned()
        }
        [name] => name.name()?,
        _ => return None,
    };
    is_setting(&name).then_some(Command::Show(name))
}

/// `DECLARE name … CURSOR … FOR query`.
fn declare(words: &[Word<'_>]) -> Option<Command> {
    let name = words.get(1)?.name()?;
    let cursor = words.iter().position(|word| word.is("cursor"))?;
    let begin = cursor + words[cursor..].iter().position(|word| word.is("for"))?;
    let hold = words[cursor..begin].windows(2);
    let hold = hold
        .into_iter()
        .any(|two| two[0].is("with") && two[1].is("hold"));
    let query = words.get(begin + 1)?.at..words.last()?.range().end;
    Some(Command::Declare { name, query, hold })
}

/// `[NEXT | FORWARD] [ALL | n] [FROM | IN] name`.
fn fetch(words: &[Word<'_>], moves: bool) -> Option<Command> {
    let (cursor, mut before) = words.split_last()?;
    let cursor = cursor.name()?;
    let skip = |words: &mut &[Word<'_>], keywords: &[&str], from_end: bool| {
        let word = if from_end {
            words.last()
        } else {
            words.first()
        };
        if word.is_some_and(|word| keywords.iter().any(|keyword| word.is(keyword))) {
            *words = if from_end {
                &words[..words.len() - 1]
            } else {
                &words[1..]
            };
            return true;
        }
        false
    };
    skip(&mut before, &["from", "in"], true);
    let next = skip(&mut before, &["next"], false);
    skip(&mut before, &["forward"], false);
    let rows = match before {
        [] => Some(1),
        [all] if all.is("all") && !next => None,
        [count] if count.kind == Kind::Number && !next => Some(count.text.parse().ok()?),
        _ => return None,
    };
    Some(Command::Fetch(Fetch {
        cursor,
        rows,
        moves,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Command {
        recognize(
            text,
            |name| name == "datestyle" || name == "search_path",
            |_| false,
        )
    }

    #[test]
    fn commands_of_clients_are_recognized() {
        assert_eq!(of(" -- ping"), Command::Empty);
        assert_eq!(of("BEGIN READ ONLY;"), Command::Begin);
        assert_eq!(
            of("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;"),
            Command::Other
        );
        assert_eq!(of("rollback to savepoint x"), Command::RollbackToSavepoint);
        let set = |name: &str, value: &str| Command::Set {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        assert_eq!(
            of("SET DateStyle TO 'ISO, MDY'"),
            set("datestyle", "ISO, MDY")
        );
        assert_eq!(
            of("SET LOCAL search_path = \"a\", b"),
            set("search_path", "a, b")
        );
        assert_eq!(of("SET TIME ZONE 'UTC'"), set("timezone", "UTC"));
        assert_eq!(of("SET 'latency.target' = '5 ms'"), Command::Other);
        assert_eq!(of("SET parallelism = 4"), Command::Other);
        assert_eq!(of("SHOW TABLES"), Command::Other);
        assert_eq!(of("DEALLOCATE PREPARE ALL"), Command::Deallocate(None));
    }

    #[test]
    fn cursors_are_recognized() {
        let text = "DECLARE \"C\" NO SCROLL CURSOR WITH HOLD FOR SELECT * FROM v;";
        let Command::Declare { name, query, hold } = of(text) else {
            panic!("not a cursor")
        };
        assert_eq!(
            (name.as_str(), &text[query], hold),
            ("C", "SELECT * FROM v", true)
        );
        let fetch = |rows, moves| {
            Command::Fetch(Fetch {
                cursor: "c".to_owned(),
                rows,
                moves,
            })
        };
        assert_eq!(of("FETCH c"), fetch(Some(1), false));
        assert_eq!(of("FETCH FORWARD 100 FROM c"), fetch(Some(100), false));
        assert_eq!(of("FETCH ALL IN c"), fetch(None, false));
        assert_eq!(of("MOVE 3 c"), fetch(Some(3), true));
        assert_eq!(of("FETCH BACKWARD 3 c"), Command::Other);
    }
}
