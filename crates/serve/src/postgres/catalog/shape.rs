//! The columns of a query of the catalog: their names as PostgreSQL gives them, and the types of expressions,
//! as far as they can be seen in the text.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::types::oid;
use super::super::words::{Kind, Word, closing, top_level};
use super::reword::type_at;

/// A column of a SELECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    /// The number of its type, if it can be seen.
    pub oid: Option<u32>,
    /// Whether it stands for several columns.
    pub is_star: bool,
}

/// The columns of a query, those of its first SELECT.
pub fn items(words: &[Word<'_>]) -> Vec<Item> {
    items_within(words, 0)
}

fn items_within(words: &[Word<'_>], depth: usize) -> Vec<Item> {
    let mut outside = top_level(words);
    let Some((select, _)) = outside.find(|(_, word)| word.is("select")) else {
        return vec![];
    };
    let ends = [
        "from",
        "where",
        "union",
        "order",
        "limit",
        "group",
        "intersect",
        "except",
        "offset",
    ];
    let end = outside.find(|(_, word)| ends.iter().any(|end| word.is(end)));
    let mut list = &words[select + 1..end.map_or(words.len(), |(at, _)| at)];
    if list
        .first()
        .is_some_and(|word| word.is("distinct") || word.is("all"))
    {
        list = &list[1..];
        if list.first().is_some_and(|word| word.is("on")) {
            list = closing(list, 1).map_or(list, |close| &list[close + 1..]);
        }
    }
    let commas = top_level(list).filter(|(_, word)| word.is_sign(","));
    let mut starts = vec![0];
    let mut found = Vec::new();
    starts.extend(commas.map(|(at, _)| at + 1));
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).map_or(list.len(), |next| next - 1);
        found.extend(item(&list[*start..end], depth));
    }
    found
}

fn item(words: &[Word<'_>], depth: usize) -> Option<Item> {
    let last = words.last()?;
    let named = words.len() > 1 && last.name().is_some() && {
        let before = &words[words.len() - 2];
        let operand = matches!(
            before.kind,
            Kind::Name | Kind::Quoted | Kind::Text | Kind::Number | Kind::Parameter
        );
        let ends = ["end", "null", "true", "false"];
        let is_type = words.len() > 2 && words[words.len() - 3].is_sign("::");
        before.is("as")
            || before.is_sign(")")
            || before.is_sign("]")
            || (operand
                && !is_keyword(last)
                && (!is_keyword(before) || ends.iter().any(|end| before.is(end))))
                && !(is_type && last.is("precision"))
    };
    let expression = match named {
        true if words[words.len() - 2].is("as") => &words[..words.len() - 2],
        true => &words[..words.len() - 1],
        false => words,
    };
    let name = if named {
        last.name()
    } else {
        implied(expression, 0)
    };
    Some(Item {
        name: name.unwrap_or_else(|| "?column?".to_owned()),
        oid: kind(expression, depth),
        is_star: last.is_sign("*"),
    })
}

fn is_keyword(word: &Word<'_>) -> bool {
    const KEYWORDS: [&str; 18] = [
        "end",
        "null",
        "true",
        "false",
        "and",
        "or",
        "not",
        "is",
        "in",
        "like",
        "then",
        "else",
        "case",
        "when",
        "between",
        "as",
        "distinct",
        "precision",
    ];
    KEYWORDS.iter().any(|keyword| word.is(keyword))
}

/// The name that PostgreSQL gives a column without one: of the column, the function, or the type of a cast.
fn implied(words: &[Word<'_>], depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return None;
    }
    if let Some((at, _)) = top_level(words)
        .filter(|(_, word)| word.is_sign("::"))
        .last()
    {
        return implied(&words[..at], depth + 1)
            .or_else(|| type_at(words, at + 1).map(|(name, _)| name));
    }
    let first = words.first()?;
    if first.is("case") {
        return Some("case".to_owned());
    }
    if first.is("cast") && words.len() > 2 {
        let inner = &words[2..words.len() - 1];
        let (split, _) = top_level(inner).filter(|(_, word)| word.is("as")).last()?;
        return implied(&inner[..split], depth + 1)
            .or_else(|| type_at(inner, split + 1).map(|(name, _)| name));
    }
    let mut at = 0;
    while words.get(at + 1).is_some_and(|word| word.is_sign(".")) {
        at += 2;
    }
    let name = words.get(at)?.name()?;
    match words.get(at + 1) {
        None => Some(name),
        Some(open) if open.is_sign("(") && closing(words, at + 1)? + 1 == words.len() => Some(name),
        Some(_) => None,
    }
}

/// How deep an expression is looked into.
const DEPTH_MAX: usize = 20;

/// The type that the columns with this name have in the catalog.
fn column_type(name: &str) -> Option<u32> {
    static TYPES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let tables = include_str!("schema.sql")
            .split(';')
            .filter(|text| text.contains("CREATE TABLE"));
        let lists = tables.filter_map(|text| Some(text.split_once('(')?.1));
        let columns = lists.flat_map(|list| list.split(','));
        columns
            .filter_map(|column| {
                column
                    .trim()
                    .trim_end_matches(')')
                    .split_once(char::is_whitespace)
            })
            .collect()
    });
    TYPES
        .get(name)
        .and_then(|declared| super::declared(declared.trim().trim_matches('"')))
}

/// The type of an expression, if its text shows it.
fn kind(words: &[Word<'_>], depth: usize) -> Option<u32> {
    if depth > DEPTH_MAX {
        return None;
    }
    let first = words.first()?;
    if first.is("case") {
        let then = words.iter().position(|word| word.is("then"))?;
        let ends = ["when", "else", "end"];
        let end = words[then..]
            .iter()
            .position(|word| ends.iter().any(|end| word.is(end)))?;
        return kind(&words[then + 1..then + end], depth + 1);
    }
    let logic = [
        "and", "or", "not", "in", "like", "ilike", "is", "between", "exists",
    ];
    let compares = ["=", "<>", "!=", "<", ">", "<=", ">=", "~", "!~", "~*", "~~"];
    let is_logic = |word: &Word<'_>| {
        logic.iter().any(|keyword| word.is(keyword))
            || compares.iter().any(|sign| word.is_sign(sign))
    };
    if top_level(words).any(|(_, word)| is_logic(word)) {
        return Some(oid::BOOL);
    }
    if top_level(words).any(|(_, word)| word.is_sign("||")) {
        return Some(oid::TEXT);
    }
    if let Some((at, _)) = top_level(words).find(|(at, word)| {
        *at > 0
            && ["+", "-", "*", "/", "%"]
                .iter()
                .any(|sign| word.is_sign(sign))
    }) {
        return kind(&words[..at], depth + 1);
    }
    if let Some((at, _)) = top_level(words)
        .filter(|(_, word)| word.is_sign("::"))
        .last()
    {
        return named(&type_at(words, at + 1)?.0);
    }
    match (first.kind, words.len()) {
        (Kind::Number, 1) if first.text.contains('.') => return Some(oid::FLOAT8),
        (Kind::Number, 1) => return Some(oid::INT4),
        (Kind::Text | Kind::Parameter, 1) => return Some(oid::TEXT),
        (Kind::Name, 1) if first.is("true") || first.is("false") => return Some(oid::BOOL),
        (Kind::Name, 1) if first.text.to_lowercase().starts_with("current_") => {
            return Some(oid::NAME);
        }
        _ => {}
    }
    // A column: its name has one type in all tables of the catalog.
    let is_name = |word: &Word<'_>| matches!(word.kind, Kind::Name | Kind::Quoted);
    let is_column = words.iter().enumerate().all(|(at, word)| match at % 2 {
        0 => is_name(word),
        _ => word.is_sign("."),
    });
    if is_column {
        return column_type(&words.last()?.name()?);
    }
    if first.is_sign("(") {
        let inner = &words[1..closing(words, 0)?];
        return match inner.first()?.is("select") {
            true => items_within(inner, depth + 1).first()?.oid,
            false => kind(inner, depth + 1),
        };
    }
    let open = words.iter().position(|word| word.is_sign("("))?;
    let arguments = &words[open + 1..closing(words, open)?];
    let name = words[open.checked_sub(1)?].name()?;
    if name == "cast" {
        let (split, _) = top_level(arguments)
            .filter(|(_, word)| word.is("as"))
            .last()?;
        return named(&type_at(arguments, split + 1)?.0);
    }
    if matches!(name.as_str(), "coalesce" | "nullif" | "max" | "min") {
        let comma = top_level(arguments).find(|(_, word)| word.is_sign(","));
        return kind(
            &arguments[..comma.map_or(arguments.len(), |(at, _)| at)],
            depth + 1,
        );
    }
    returned(&name)
}

/// What a function returns.
fn returned(function: &str) -> Option<u32> {
    let begins = |starts: &[&str]| starts.iter().any(|start| function.starts_with(start));
    Some(match function {
        "count"
        | "sum"
        | "pg_relation_size"
        | "pg_total_relation_size"
        | "row_number"
        | "txid_current" => oid::INT8,
        "array_length" | "array_lower" | "array_upper" | "cardinality" | "length"
        | "pg_backend_pid" | "char_length" | "position" | "strpos" => oid::INT4,
        "to_regclass" | "pg_my_temp_schema" => oid::OID,
        "current_database" | "current_schema" | "current_user" | "session_user"
        | "pg_get_userbyid" => oid::NAME,
        "array_agg" | "current_schemas" | "string_to_array" | "array_remove" => 1009,
        _ if begins(&["has_", "pg_is_", "pg_try_", "row_security"]) => oid::BOOL,
        _ if function.ends_with("_is_visible") => oid::BOOL,
        _ => oid::TEXT,
    })
}

/// The number of a type that a cast names.
fn named(name: &str) -> Option<u32> {
    Some(match name {
        "oid" | "xid" => oid::OID,
        "int" | "int4" | "integer" => oid::INT4,
        "int2" | "smallint" => oid::INT2,
        "int8" | "bigint" => oid::INT8,
        "bool" | "boolean" => oid::BOOL,
        "name" => oid::NAME,
        "char" => oid::CHAR,
        "float4" | "float8" | "real" | "double" | "numeric" | "decimal" => oid::FLOAT8,
        "text[]" | "name[]" | "varchar[]" => 1009,
        _ => oid::TEXT,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::words::words;
    use super::*;

    fn shapes(text: &str) -> Vec<(String, Option<u32>)> {
        items(&words(text))
            .into_iter()
            .map(|item| (item.name, item.oid))
            .collect()
    }

    #[test]
    fn names_and_types_are_seen() {
        let found = shapes(
            "SELECT n.nspname as \"Schema\", c.relname, pg_catalog.format_type(a.b, -1), count(*) n, \
             CASE c.k WHEN 'r' THEN 'table' END AS kind, a.x::int4, a = b AS same, (SELECT 1), \
             CAST(current_setting('server_version_num') AS INT)/100 as version, NOT x.y, version() FROM c",
        );
        let named = |name: &str, oid| (name.to_owned(), oid);
        assert_eq!(
            found,
            [
                named("Schema", Some(oid::NAME)),
                named("relname", Some(oid::NAME)),
                named("format_type", Some(oid::TEXT)),
                named("n", Some(oid::INT8)),
                named("kind", Some(oid::TEXT)),
                named("x", Some(oid::INT4)),
                named("same", Some(oid::BOOL)),
                named("?column?", Some(oid::INT4)),
                named("version", Some(oid::INT4)),
                named("?column?", Some(oid::BOOL)),
                named("version", Some(oid::TEXT)),
            ]
        );
        // However deep a query is, looking at it takes a bounded stack.
        for (open, close) in [
            ("(SELECT ", ")"),
            ("CAST(", " AS text)"),
            ("(", ")"),
            ("", "::text"),
        ] {
            let (open, close) = (open.repeat(9_000), close.repeat(9_000));
            assert_eq!(items(&words(&format!("SELECT {open}1{close}"))).len(), 1);
        }
        assert!(
            items(&words("SELECT *, a.* FROM b"))
                .iter()
                .all(|item| item.is_star)
        );
    }
}
