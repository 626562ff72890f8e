//! Queries of PostgreSQL's catalog in the words of SQLite, which answers them: casts, operators, arrays and
//! functions that SQLite does not have become those that it has, or functions of `functions.rs`.

use super::super::words::{Kind, Word, closing, top_level};
use super::sets::{self, Elements};

/// How deep parentheses may lie within each other: SQLite has a limit too, and this recursion needs one.
const DEPTH_MAX: usize = 100;

/// The longest operand of a cast: a chain of casts copies it again for each of them.
const OPERAND_BYTES_MAX: usize = 16 << 10;

/// Functions that PostgreSQL calls without parentheses.
const BARE: [&str; 6] = [
    "current_catalog",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
    "user",
];

/// Whether a function is called without parentheses.
pub fn is_bare(name: &str) -> bool {
    BARE.contains(&name)
}

/// The text for SQLite; `None` if it is nested too deeply, has parentheses that do not fit, or is too long.
pub fn reword(words: &[Word<'_>]) -> Option<String> {
    let mut pieces = Vec::new();
    reword_into(words, 0, &mut pieces)?;
    Some(pieces.join(" "))
}

fn inner(words: &[Word<'_>], depth: usize) -> Option<String> {
    let mut pieces = Vec::new();
    reword_into(words, depth + 1, &mut pieces)?;
    Some(pieces.join(" "))
}

fn reword_into(words: &[Word<'_>], depth: usize, out: &mut Vec<String>) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    let sign = |at: usize, text: &str| words.get(at).is_some_and(|word| word.is_sign(text));
    let is = |at: usize, text: &str| words.get(at).is_some_and(|word| word.is(text));
    let within = |words: &[Word<'_>]| inner(words, depth);
    let (mut elements, mut in_from) = (None::<Elements>, false);
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if let Some(table) = elements.take_if(|elements| elements.end == at) {
            out.push(table.table);
        }
        let after_dot = at > 0 && sign(at - 1, ".");
        if word.kind == Kind::Name {
            let listed = elements
                .as_ref()
                .and_then(|elements| elements.call(words, at, &within));
            let table = || sets::table(words, at, &within).filter(|_| in_from);
            if let Some((text, next)) = listed.or_else(table) {
                out.push(text);
                at = next;
                continue;
            }
        }
        if let Some((text, next)) = sets::named_values(words, at, &within).filter(|_| in_from) {
            out.push(text);
            at = next;
            continue;
        }
        match word.kind {
            Kind::Sign if word.text == "::" => {
                let (kind, next) = type_at(words, at + 1)?;
                let operand = take_operand(out)?;
                out.push(cast(&kind, &operand));
                at = next;
                continue;
            }
            Kind::Sign if word.text == "[" && !out.is_empty() => {
                let close = closing(words, at)?;
                let index = inner(&words[at + 1..close], depth)?;
                let operand = take_operand(out)?;
                out.push(format!("pg_item({operand}, {index})"));
                at = close + 1;
                continue;
            }
            Kind::Sign if word.text == "(" => {
                let close = closing(words, at)?;
                let text = inner(&words[at + 1..close], depth)?;
                // One piece, so that a cast finds its operand.
                out.push(format!("({text})"));
                at = close + 1;
                continue;
            }
            Kind::Sign if is_compared(words, at) => {
                // x = ANY (array), x <> ALL (array)
                let close = closing(words, at + 2)?;
                let list = &words[at + 3..close];
                let text = inner(list, depth)?;
                let negated = if is(at + 1, "all") { "NOT IN" } else { "IN" };
                let query = list
                    .first()
                    .is_some_and(|word| word.is("select") || word.is("with"));
                out.push(match query {
                    true => format!("{negated} ({text})"),
                    false => format!("{negated} (SELECT value FROM json_each(pg_array({text})))"),
                });
                at = close + 1;
                continue;
            }
            Kind::Sign => out.push(operator(word.text).to_owned()),
            Kind::Parameter => out.push(word.text.replace('$', "?")),
            Kind::Text => {
                let text = word.string().unwrap_or_default();
                out.push(format!("'{}'", text.replace('\'', "''")));
            }
            Kind::Quoted => {
                let name = word.name().unwrap_or_default();
                out.push(format!("\"{}\"", name.replace('"', "\"\"")));
            }
            Kind::Name if word.is("operator") && sign(at + 1, "(") => {
                let close = closing(words, at + 1)?;
                out.push(operator(words.get(close.checked_sub(1)?)?.text).to_owned());
                at = close + 1;
                continue;
            }
            Kind::Name if word.is("collate") => {
                at += if sign(at + 2, ".") { 4 } else { 2 };
                continue;
            }
            Kind::Name if word.is("cast") && sign(at + 1, "(") => {
                let close = closing(words, at + 1)?;
                let parts = &words[at + 2..close];
                let split = top_level(parts).filter(|(_, word)| word.is("as")).last()?.0;
                let (kind, _) = type_at(parts, split + 1)?;
                out.push(cast(
                    &kind,
                    &format!("({})", inner(&parts[..split], depth)?),
                ));
                at = close + 1;
                continue;
            }
            Kind::Name if word.is("array") && sign(at + 1, "[") => {
                let close = closing(words, at + 1)?;
                out.push(format!(
                    "json_array({})",
                    inner(&words[at + 2..close], depth)?
                ));
                at = close + 1;
                continue;
            }
            // An array of a query's rows: the queries that clients send have none or one.
            Kind::Name if word.is("array") && sign(at + 1, "(") => {}
            Kind::Name if word.is("ilike") => out.push("MATCH".to_owned()),
            // The catalog's functions have no schema here.
            Kind::Name
                if (word.is("pg_catalog") || word.is("information_schema"))
                    && sign(at + 1, ".")
                    && sign(at + 3, "(")
                    && words
                        .get(at + 2)
                        .is_some_and(|word| word.kind == Kind::Name) =>
            {
                at += 2;
                continue;
            }
            Kind::Name
                if !(after_dot || sign(at + 1, ".") || (at > 0 && is(at - 1, "as")))
                    && BARE.iter().any(|name| word.is(name)) =>
            {
                out.push(word.text.to_lowercase());
                if !sign(at + 1, "(") {
                    out.push("()".to_owned());
                }
            }
            Kind::Name if sign(at + 1, "(") && renamed(word).is_some() => {
                out.extend(renamed(word).map(str::to_owned));
            }
            Kind::Name if word.is("select") => {
                elements = Elements::of_select(words, at, &within);
                in_from = false;
                out.push(word.text.to_owned());
            }
            Kind::Name | Kind::Number => {
                in_from = (in_from || word.is("from")) && !word.is("where");
                out.push(word.text.to_owned());
            }
        }
        at += 1;
    }
    out.extend(elements.map(|elements| elements.table));
    Some(())
}

/// What SQLite calls a function that it has by another name.
fn renamed(word: &Word<'_>) -> Option<&'static str> {
    const NAMES: [(&str, &str); 8] = [
        ("array_agg", "json_group_array"),
        ("json_agg", "json_group_array"),
        ("jsonb_agg", "json_group_array"),
        ("json_build_object", "json_object"),
        ("jsonb_build_object", "json_object"),
        ("bool_and", "min"),
        ("every", "min"),
        ("bool_or", "max"),
    ];
    NAMES
        .iter()
        .find(|(name, _)| word.is(name))
        .map(|(_, renamed)| *renamed)
}

fn is_compared(words: &[Word<'_>], at: usize) -> bool {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|word| word.is(text));
    let equal = words[at].text == "=" && (is(at + 1, "any") || is(at + 1, "some"));
    let unequal = matches!(words[at].text, "<>" | "!=") && is(at + 1, "all");
    (equal || unequal) && words.get(at + 2).is_some_and(|word| word.is_sign("("))
}

fn operator(sign: &str) -> &str {
    match sign {
        "~" => "REGEXP",
        "!~" => "NOT REGEXP",
        "~*" => "REGEXP '(?i)' ||",
        "!~*" => "NOT REGEXP '(?i)' ||",
        "~~" => "LIKE",
        "!~~" => "NOT LIKE",
        "~~*" => "MATCH",
        "!~~*" => "NOT MATCH",
        other => other,
    }
}

/// The operand that ends the text written until now: `a.b`, `f(x)`, `(x)`, `'text'`; `None` if it is too
/// long.
fn take_operand(out: &mut Vec<String>) -> Option<String> {
    const KEYWORDS: [&str; 16] = [
        "in", "any", "all", "and", "or", "not", "when", "then", "else", "select", "where", "on",
        "case", "from", "as", "=",
    ];
    let mut from = out.len().saturating_sub(1);
    let is_name = |piece: &str| {
        let first = piece.chars().next();
        let begins = first.is_some_and(|first| first.is_alphabetic() || matches!(first, '_' | '"'));
        begins
            && !KEYWORDS
                .iter()
                .any(|keyword| piece.eq_ignore_ascii_case(keyword))
    };
    if out.get(from).is_some_and(|piece| piece.starts_with('('))
        && from > 0
        && is_name(&out[from - 1])
    {
        from -= 1;
    }
    while from > 1 && out[from - 1] == "." {
        from -= 2;
    }
    let operand = out.drain(from..).collect::<Vec<_>>().join(" ");
    (operand.len() <= OPERAND_BYTES_MAX).then_some(operand)
}

/// The name of a type in small letters, without its schema, and the place after it.
pub fn type_at(words: &[Word<'_>], at: usize) -> Option<(String, usize)> {
    let mut at = at;
    let mut name = words.get(at)?.name()?;
    while words.get(at + 1).is_some_and(|word| word.is_sign(".")) {
        name = words.get(at + 2)?.name()?;
        at += 2;
    }
    at += 1;
    let is = |at: usize, text: &str| words.get(at).is_some_and(|word| word.is(text));
    if (name == "double" && is(at, "precision")) || (name == "character" && is(at, "varying")) {
        at += 1;
    }
    if words.get(at).is_some_and(|word| word.is_sign("(")) {
        at = closing(words, at)? + 1;
    }
    if name.starts_with("time") && (is(at, "with") || is(at, "without")) {
        at += 3;
    }
    while words.get(at).is_some_and(|word| word.is_sign("[")) {
        at = closing(words, at)? + 1;
        name.push_str("[]");
    }
    Some((name, at))
}

/// Whether SQLite has values of a type, so that a query without tables may ask it for them.
pub fn is_plain_type(name: &str) -> bool {
    const TYPES: [&str; 13] = [
        "bigint", "bool", "boolean", "int", "int2", "int4", "int8", "integer", "name", "oid",
        "smallint", "text", "varchar",
    ];
    TYPES.contains(&name)
}

/// A cast in SQLite's words.
fn cast(kind: &str, operand: &str) -> String {
    match kind {
        "oid" | "int" | "int2" | "int4" | "int8" | "integer" | "bigint" | "smallint" | "xid"
        | "cardinal_number" => format!("CAST({operand} AS INTEGER)"),
        "text" | "varchar" | "name" | "char" | "bpchar" | "character" | "sql_identifier"
        | "character_data" | "yes_or_no" | "cstring" => format!("CAST({operand} AS TEXT)"),
        "float4" | "float8" | "real" | "double" | "numeric" | "decimal" => {
            format!("CAST({operand} AS REAL)")
        }
        "bool" | "boolean" => format!("pg_bool({operand})"),
        "regclass" | "regtype" | "regproc" | "regprocedure" | "regnamespace" | "regrole" => {
            format!("pg_{kind}({operand})")
        }
        _ => format!("({operand})"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::words::words;
    use super::*;

    fn of(text: &str) -> String {
        reword(&words(text)).unwrap()
    }

    #[test]
    fn queries_are_reworded() {
        assert_eq!(
            of("SELECT c.oid::regclass::text"),
            "SELECT CAST(pg_regclass(c . oid) AS TEXT)"
        );
        assert_eq!(
            of("WHERE c.relname OPERATOR(pg_catalog.~) '^(v)$' COLLATE pg_catalog.default"),
            "WHERE c . relname REGEXP '^(v)$'"
        );
        assert_eq!(
            of("pg_catalog.pg_table_is_visible(c.oid)"),
            "pg_table_is_visible (c . oid)"
        );
        assert_eq!(of("FROM pg_catalog.pg_class"), "FROM pg_catalog . pg_class");
        assert_eq!(
            of("a = ANY (ARRAY['x', 'y'])"),
            "a IN (SELECT value FROM json_each(pg_array(json_array('x' , 'y'))))"
        );
        assert_eq!(
            of("a <> ALL ($1::oid[])"),
            "a NOT IN (SELECT value FROM json_each(pg_array((?1))))"
        );
        assert_eq!(
            of("CAST(f(x) AS pg_catalog.int4)"),
            "CAST((f (x)) AS INTEGER)"
        );
        assert_eq!(
            of("current_schema = a.user"),
            "current_schema () = a . user"
        );
        assert_eq!(of("a[1]"), "pg_item(a, 1)");
        assert_eq!(of("x IN ('a')::text"), "x IN CAST(('a') AS TEXT)");
        assert_eq!(of("E'a\\'b'"), "'a''b'");
    }

    proptest! {
        #[test]
        fn any_text_is_reworded_or_refused(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "select", "(", ")", "[", "]", "::", "cast", "as", "a", ".", "any", "=", "operator",
                    "collate", "array", "'x'", "$1", "pg_catalog", "double", "int", "timestamp", "with", ",",
                ]), 0..14)
        ) {
            let text = parts.join(" ");
            reword(&words(&text));
        }
    }
}
