//! Functions that return several rows, which are tables in SQLite: in FROM, and `unnest` in the list of a
//! SELECT.

use super::super::words::{Kind, Word, closing, top_level};

/// Keywords after which FROM is over.
const AFTER_FROM: [&str; 11] = [
    "where",
    "group",
    "having",
    "window",
    "order",
    "limit",
    "offset",
    "fetch",
    "union",
    "intersect",
    "except",
];

/// The text of words within parentheses, for SQLite.
type Reword<'a> = &'a dyn Fn(&[Word<'_>]) -> Option<String>;

/// What a SELECT whose list calls `unnest` needs: a row for each element.
pub struct Elements {
    /// The array, as it was written.
    array: String,
    /// What is added to FROM.
    pub table: String,
    /// The place where FROM ends.
    pub end: usize,
    /// The place where the list ends.
    list_end: usize,
}

fn text(words: &[Word<'_>]) -> String {
    words
        .iter()
        .map(|word| word.text)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The arguments of a call whose parenthesis is at this place, the first of them, and the place after it.
fn arguments<'a, 'b>(
    words: &'b [Word<'a>],
    open: usize,
) -> Option<(&'b [Word<'a>], &'b [Word<'a>], usize)> {
    words.get(open).filter(|word| word.is_sign("("))?;
    let close = closing(words, open)?;
    let all = &words[open + 1..close];
    let comma = top_level(all).find(|(_, word)| word.is_sign(","));
    Some((
        all,
        &all[..comma.map_or(all.len(), |(at, _)| at)],
        close + 1,
    ))
}

fn is_set(word: &Word<'_>) -> bool {
    word.is("unnest") || word.is("generate_subscripts")
}

impl Elements {
    /// Looks at the SELECT that begins at this place.
    pub fn of_select(words: &[Word<'_>], select: usize, reword: Reword<'_>) -> Option<Elements> {
        let rest = &words[select + 1..];
        let is_end = |word: &Word<'_>| AFTER_FROM.iter().any(|keyword| word.is(keyword));
        let end = top_level(rest)
            .find(|(_, word)| is_end(word))
            .map_or(rest.len(), |(at, _)| at);
        let from = top_level(&rest[..end]).find(|(_, word)| word.is("from"));
        let list = &rest[..from.map_or(end, |(at, _)| at)];
        let (call, _) = top_level(list).find(|(at, word)| {
            is_set(word) && list.get(at + 1).is_some_and(|next| next.is_sign("("))
        })?;
        let (_, array, _) = arguments(list, call + 1)?;
        let before = if from.is_some() { "," } else { "FROM" };
        Some(Elements {
            array: text(array),
            table: format!(
                "{before} json_each(pg_array({})) AS pg_elements",
                reword(array)?
            ),
            end: select + 1 + end,
            list_end: select + 1 + list.len(),
        })
    }

    /// A call in the list: its text, and the place after it.
    pub fn call(
        &self,
        words: &[Word<'_>],
        at: usize,
        reword: Reword<'_>,
    ) -> Option<(String, usize)> {
        if at >= self.list_end || !is_set(&words[at]) {
            return None;
        }
        let (_, array, next) = arguments(words, at + 1)?;
        let called = if words[at].is("generate_subscripts") {
            "(pg_elements.key + 1)".to_owned()
        } else if text(array) == self.array {
            "pg_elements.value".to_owned()
        } else {
            format!("pg_item({}, pg_elements.key + 1)", reword(array)?)
        };
        Some((called, next))
    }
}

/// A function in FROM, with its alias: a table of its rows, and the place after it.
pub fn table(words: &[Word<'_>], at: usize, reword: Reword<'_>) -> Option<(String, usize)> {
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    let has_schema = at >= 2 && words[at - 1].is_sign(".");
    let before = words.get(if has_schema { at - 2 } else { at }.checked_sub(1)?)?;
    if !(before.is("from") || before.is("join") || before.is("lateral") || before.is_sign(",")) {
        return None;
    }
    let function = words
        .get(at)
        .filter(|word| word.kind == Kind::Name)?
        .name()?;
    let (all, _, mut next) = arguments(words, at + 1)?;
    let numbered = is(next, "with") && is(next + 1, "ordinality");
    next += if numbered { 2 } else { 0 };
    next += usize::from(is(next, "as"));
    let keywords = ["on", "left", "join", "cross", "inner"];
    let mut ends = AFTER_FROM.iter().chain(&keywords);
    let is_alias = |word: &&Word<'_>| !ends.any(|keyword| word.is(keyword));
    let alias = words.get(next).filter(is_alias).and_then(Word::name);
    next += usize::from(alias.is_some());
    let alias = alias.unwrap_or_else(|| function.clone());
    let mut columns = [alias.clone(), "ordinality".to_owned()];
    if let Some((named, _, after)) = arguments(words, next) {
        for (at, name) in named.iter().filter_map(Word::name).take(2).enumerate() {
            columns[at] = name;
        }
        next = after;
    }
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let (alias, column, number) = (quoted(&alias), quoted(&columns[0]), quoted(&columns[1]));
    let all = reword(all)?;
    let list = match function.as_str() {
        "generate_series" => format!("pg_series({all})"),
        "unnest" => format!("pg_array({all})"),
        _ => {
            return Some((
                format!("(SELECT {function}({all}) AS {column}) AS {alias}"),
                next,
            ));
        }
    };
    let number = if numbered {
        format!(", key + 1 AS {number}")
    } else {
        String::new()
    };
    let rows = format!("(SELECT value AS {column}{number} FROM json_each({list})) AS {alias}");
    Some((rows, next))
}

/// `(VALUES …) AS t (a, b)`, whose parenthesis is at this place: SQLite names the columns itself.
pub fn named_values(words: &[Word<'_>], at: usize, reword: Reword<'_>) -> Option<(String, usize)> {
    words.get(at + 1).filter(|word| word.is("values"))?;
    let close = closing(words, at)?;
    let next = close + 1 + usize::from(words.get(close + 1)?.is("as"));
    let alias = words.get(next)?.name()?;
    let (names, _, after) = arguments(words, next + 1)?;
    let name = |(at, name): (usize, String)| {
        format!("column{} AS \"{}\"", at + 1, name.replace('"', "\"\""))
    };
    let columns: Vec<String> = names
        .iter()
        .filter_map(Word::name)
        .enumerate()
        .map(name)
        .collect();
    let (columns, values) = (columns.join(", "), reword(&words[at + 1..close])?);
    let alias = alias.replace('"', "\"\"");
    Some((
        format!("(SELECT {columns} FROM ({values})) AS \"{alias}\""),
        after,
    ))
}
