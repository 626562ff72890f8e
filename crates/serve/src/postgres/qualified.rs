//! Names with the schema before them, as tools write them: `"slackwater"."public"."v"`, `public.v`. There is
//! only one schema, and the session knows none.

use std::borrow::Cow;
use std::collections::HashSet;

use super::catalog::DATABASE_NAME;
use super::words::{Word, words};

/// The name of the only schema.
const SCHEMA: &str = "public";

/// The words before the name of a table. Elsewhere `public.v` may be a field of a column.
const BEFORE: [&str; 9] = [
    "from",
    "join",
    "into",
    "table",
    "view",
    "sink",
    "exists",
    "describe",
    "subscribe",
];

/// The text with blanks in place of the schema, so that places in it stay the same.
pub fn unqualified(text: &str) -> Cow<'_, str> {
    let is_there = |part: &[u8]| part.eq_ignore_ascii_case(SCHEMA.as_bytes());
    if !text.as_bytes().windows(SCHEMA.len()).any(is_there) {
        return Cow::Borrowed(text);
    }
    let words = words(text);
    let named = |at: usize, name: &str| words[at].name().is_some_and(|own| own == name);
    let is_dot = |at: usize| words.get(at).is_some_and(|word| word.is_sign("."));
    let schemas = (0..words.len()).filter(|&at| named(at, SCHEMA));
    let schemas = schemas.collect::<Vec<usize>>();
    if schemas.iter().any(|&at| !is_dot(at + 1)) {
        // A table, or an alias, has this name.
        return Cow::Borrowed(text);
    }
    // Where each begins, and the table that it stands before.
    let places = schemas.into_iter().filter_map(|at| {
        let name = words.get(at + 2)?.name()?;
        let with_database = at >= 2 && is_dot(at - 1) && named(at - 2, DATABASE_NAME);
        let first = if with_database { at - 2 } else { at };
        (first == 0 || !is_dot(first - 1)).then_some((first, at + 2, name))
    });
    let places = places.collect::<Vec<(usize, usize, String)>>();
    let of_table = |first: usize| {
        let before = first.checked_sub(1).map(|before: usize| &words[before]);
        before.is_some_and(|before: &Word<'_>| BEFORE.iter().any(|word| before.is(word)))
    };
    let tables = places.iter().filter(|(first, ..)| of_table(*first));
    let tables = tables.map(|(.., name)| name).collect::<HashSet<_>>();
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (first, table, name) in &places {
        if tables.contains(name) {
            let (from, to) = (words[*first].at, words[*table].at);
            out.push_str(&text[copied..from]);
            out.extend(text[from..to].chars().map(|_| ' '));
            copied = to;
        }
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::unqualified;

    #[test]
    fn the_schema_is_blanked() {
        let same = |text: &str, expected: &str| {
            let found = unqualified(text);
            assert_eq!(found.chars().count(), text.chars().count());
            assert_eq!(
                found.split_whitespace().collect::<Vec<_>>().join(" "),
                expected
            );
        };
        same("SELECT * FROM public.v", "SELECT * FROM v");
        same(
            "create view \"slackwater\".\"public\".\"Große\" as select 1",
            "create view \"Große\" as select 1",
        );
        same(
            "SELECT \"public\".\"v\".\"n\" FROM \"public\".\"v\" JOIN PUBLIC . w ON w.n = public.w.n",
            "SELECT \"v\".\"n\" FROM \"v\" JOIN w ON w.n = w.n",
        );
        same(
            "DROP VIEW IF EXISTS public.v CASCADE",
            "DROP VIEW IF EXISTS v CASCADE",
        );
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for text in [
            "SELECT n FROM v",
            "SELECT 'public.v' FROM v",
            "SELECT public.city FROM people",
            "SELECT public.n FROM v AS public",
            "SELECT public.n FROM public",
            "SELECT * FROM other.public.v",
            "SELECT * FROM other.v -- public.v",
            "SELECT * FROM public.",
        ] {
            assert_eq!(unqualified(text), text);
        }
    }
}
