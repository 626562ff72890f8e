//! Splits SQL into statements: at each `;` outside of strings, names and comments.

use slackwater_sql::statement::{closing, opening};

/// A statement of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The statement without its `;`, at its original lines and columns: everything before it is blank.
    pub placed: String,
    /// Whether a `;` follows the statement.
    pub ended: bool,
}

impl Piece {
    /// Whether there is nothing but comments.
    pub fn is_empty(&self) -> bool {
        let mut rest = Scanner::default();
        !self
            .placed
            .chars()
            .any(|c| rest.take(c) && !c.is_whitespace())
    }
}

impl Piece {
    /// The statement's first words, without comments and commands before it: as many as a STATEMENT SET
    /// starts with, and one more.
    pub fn words(&self) -> Vec<String> {
        let mut text = self.placed.trim_start();
        while text.starts_with('\\') {
            text = text
                .split_once('\n')
                .map_or("", |(_, rest)| rest.trim_start());
        }
        let mut rest = Scanner::default();
        let own = text.chars().filter(|&c| rest.take(c));
        let own = own.collect::<String>();
        own.split_whitespace().take(5).map(str::to_string).collect()
    }
}

/// What the current position is inside of.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    Quoted(char),
    /// The text of a function, between two `$$`.
    Dollars,
    LineComment,
    /// A comment, with its nesting depth.
    Comment(usize),
}

#[derive(Default)]
struct Scanner {
    inside: Inside,
    before: char,
}

impl Scanner {
    /// Takes a character and returns whether it belongs to a statement; so do the characters that start a
    /// comment.
    fn take(&mut self, c: char) -> bool {
        let is_own = !matches!(self.inside, Inside::LineComment | Inside::Comment(_));
        // The second character completes a pair.
        let mut before = c;
        self.inside = match (self.inside, self.before, c) {
            (Inside::Nothing, _, '\'' | '"' | '`') => Inside::Quoted(c),
            (Inside::Nothing, '$', '$') => {
                before = ' ';
                Inside::Dollars
            }
            (Inside::Dollars, '$', '$') => {
                before = ' ';
                Inside::Nothing
            }
            (Inside::Nothing, '-', '-') => Inside::LineComment,
            (Inside::Nothing, '/', '*') => {
                before = ' ';
                Inside::Comment(1)
            }
            // A doubled quote inside a string: the first ends the string, the second starts it again.
            (Inside::Quoted(quote), _, c) if c == quote => Inside::Nothing,
            (Inside::LineComment, _, '\n') => Inside::Nothing,
            (Inside::Comment(depth), '/', '*') => {
                before = ' ';
                Inside::Comment(depth + 1)
            }
            (Inside::Comment(depth), '*', '/') => {
                before = ' ';
                match depth {
                    1 => Inside::Nothing,
                    depth => Inside::Comment(depth - 1),
                }
            }
            (inside, ..) => inside,
        };
        self.before = before;
        // The first character of `--` and `/*` was counted as part of a statement.
        is_own
            && !matches!(self.inside, Inside::LineComment | Inside::Comment(_))
            && c != '/'
            && c != '-'
    }
}

/// The statements of a text, in order; the last one is unfinished and may be empty.
pub fn split(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut scanner = Scanner::default();
    let mut start = 0;
    let piece = |start: usize, end: usize, ended| {
        let blank = text[..start].chars();
        let blank = blank.map(|c| if c == '\n' || c == '\t' { c } else { ' ' });
        Piece {
            placed: blank.chain(text[start..end].chars()).collect(),
            ended,
        }
    };
    for (at, c) in text.char_indices() {
        scanner.take(c);
        if c == ';' && scanner.inside == Inside::Nothing {
            pieces.push(piece(start, at, true));
            start = at + 1;
        }
    }
    pieces.push(piece(start, text.len(), false));
    with_sets(pieces)
}

/// The pieces with each STATEMENT SET, from its start to END, as one piece.
fn with_sets(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined = Vec::new();
    let mut open: Option<Piece> = None;
    for piece in pieces {
        let words = piece.words();
        let words = words.iter().map(String::as_str).collect::<Vec<&str>>();
        match &mut open {
            None if opening(&words).is_some() => open = Some(piece),
            None => joined.push(piece),
            Some(set) => {
                // Each character before a piece is a blank in it.
                let before = set.placed.chars().count();
                let rest = piece.placed.chars().skip(before + 1);
                set.placed.push(';');
                set.placed.extend(rest);
                set.ended = piece.ended;
                if closing(&words) && piece.ended {
                    joined.extend(open.take());
                }
            }
        }
    }
    // The set is unfinished even if its last statement is complete.
    joined.extend(open.map(|set| Piece {
        ended: false,
        ..set
    }));
    joined
}

/// Whether the text's last statement has ended, or there is none.
pub fn is_complete(text: &str) -> bool {
    split(text).last().is_none_or(Piece::is_empty)
}

/// The position after the opening quote, if the text ends inside a string.
pub fn open_quote(text: &str) -> Option<usize> {
    let mut scanner = Scanner::default();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let before = scanner.inside;
        scanner.take(c);
        // A doubled quote inside a string is a character of the string.
        let goes_on = c == '\'' && text[..at].ends_with('\'');
        if before == Inside::Nothing && !goes_on {
            start = at + c.len_utf8();
        }
    }
    (scanner.inside == Inside::Quoted('\'')).then_some(start)
}

/// Whether the text ends inside quotes or a block comment, so the next line continues it.
pub fn ends_inside(text: &str) -> bool {
    let mut scanner = Scanner::default();
    for c in text.chars() {
        scanner.take(c);
    }
    matches!(scanner.inside, Inside::Quoted(_) | Inside::Comment(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_of_their_own() {
        let text = "SELECT ';' -- ;\n, \"a;b\" /* ; /* ; */ ; */ FROM t;\n SELECT 'it''s;' FROM u";
        let pieces = split(text);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].placed, &text[..text.find(" FROM t").unwrap() + 7]);
        assert!(pieces[0].ended && !pieces[1].ended);
        assert_eq!(pieces[1].placed.trim_start(), "SELECT 'it''s;' FROM u");
        assert_eq!(pieces[1].placed.find("SELECT"), text.rfind("SELECT"));
        assert_eq!(pieces[1].placed.matches('\n').count(), 2);
    }

    #[test]
    fn the_text_of_a_function_is_one_piece() {
        let text = "CREATE FUNCTION f() RETURNS INT LANGUAGE python AS $$\ndef f(): # it's; -- /*\n  \
            return '$' + 'a'; return 1\n$$ WITH ('mode' = 'rows');SELECT f() FROM t";
        let pieces = split(text);
        assert_eq!(pieces.len(), 2);
        assert!(
            pieces[0].placed.ends_with("'rows')"),
            "{}",
            pieces[0].placed
        );
        assert!(!is_complete("CREATE FUNCTION f() AS $$ x;"));
    }

    #[test]
    fn a_statement_set_is_one_piece() {
        let text = "SELECT 1;\n-- é\nEXECUTE STATEMENT SET\nBEGIN\nINSERT INTO a SELECT 'ü;' FROM \
                    t;\nINSERT INTO b \
                    SELECT 2 FROM t;\nEND;\nSELECT 3";
        let pieces = split(text);
        assert_eq!(pieces.len(), 3);
        let set = &pieces[1].placed;
        assert!(pieces[1].ended && set.ends_with("FROM t;\nEND"), "{set}");
        assert_eq!(set.lines().nth(4), text.lines().nth(4));
        assert_eq!(set.lines().nth(5), text.lines().nth(5));
        assert_eq!(pieces[2].placed.trim(), "SELECT 3");
        let behind = "\\d a\nBEGIN STATEMENT SET;\nINSERT INTO a SELECT 1 FROM t;\nEND;";
        assert_eq!(split(behind).len(), 2);
        assert!(!is_complete("BEGIN STATEMENT SET;"));
        assert!(!is_complete(
            "begin statement set; INSERT INTO a SELECT 1 FROM t;"
        ));
        assert!(is_complete(
            "BEGIN STATEMENT SET; INSERT INTO a SELECT 1 FROM t; END;"
        ));
        assert!(is_complete("SELECT CASE WHEN a THEN b END FROM t;"));
    }

    #[test]
    fn comments_say_nothing() {
        assert!(is_complete(""));
        assert!(is_complete("SELECT 1; -- the end\n /* of it */ "));
        assert!(!is_complete("SELECT 1 -- ;"));
        assert!(!is_complete("SELECT 'a;"));
        assert!(!is_complete("SELECT 1; SELECT 2"));
        assert_eq!(open_quote("SET 'par"), Some(5));
        assert_eq!(open_quote("SET 'par' = 'it''s"), Some(13));
        assert_eq!(open_quote("SET 'par'"), None);
        assert!(ends_inside("SELECT /* a\n") && ends_inside("SELECT \"a"));
        assert!(!ends_inside("SELECT 1 -- a"));
    }
}
