//! The words of SQL strings: enough to divide a text into statements, to recognize the commands that clients
//! send on their own, and to reword queries of the catalog. It knows no grammar.

use std::ops::Range;

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A keyword or a name without quotes.
    Name,
    /// A name in `"` or backquotes.
    Quoted,
    /// A string in `'`, with an `E` before it perhaps; or between two `$$`.
    Text,
    Number,
    /// `$1`.
    Parameter,
    /// Anything else: an operator of several signs, or one sign.
    Sign,
}

/// A word, and its place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Word<'a> {
    /// Whether it is this keyword, in capital or small letters.
    pub fn is(&self, keyword: &str) -> bool {
        self.kind == Kind::Name && self.text.eq_ignore_ascii_case(keyword)
    }

    /// Whether it is this sign.
    pub fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }

    /// The name that it stands for; small letters, if it has no quotes.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            Kind::Name => Some(self.text.to_lowercase()),
            Kind::Quoted => {
                let quote = &self.text[..1];
                let inner = self.text[1..]
                    .strip_suffix(quote)
                    .unwrap_or(&self.text[1..]);
                Some(inner.replace(&quote.repeat(2), quote))
            }
            _ => None,
        }
    }

    /// The value of a string.
    pub fn string(&self) -> Option<String> {
        if self.kind != Kind::Text {
            return None;
        }
        if let Some(inner) = self.text.strip_prefix("$$") {
            return Some(inner.strip_suffix("$$").unwrap_or(inner).to_string());
        }
        let quote = self.text.find('\'')?;
        let inner = &self.text[quote + 1..];
        let inner = inner.strip_suffix('\'').unwrap_or(inner).replace("''", "'");
        Some(if quote == 0 { inner } else { unescaped(&inner) })
    }

    /// The bytes of the text that it takes.
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }
}

/// What `E'…'` means by its backslashes, for the letters that programs use.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let escaped = match character {
            '\\' => characters.next(),
            other => {
                out.push(other);
                continue;
            }
        };
        match escaped {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// The words of a text, without blanks and comments. A string or comment without an end goes to the end of
/// the text.
pub fn words(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let (kind, length) = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if rest.starts_with("--") => {
                at += memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with("/*") => {
                at += comment(rest.as_bytes());
                continue;
            }
            b'\'' => (Kind::Text, quoted(rest.as_bytes(), 0, false)),
            b'e' | b'E' if bytes.get(at + 1) == Some(&b'\'') => {
                (Kind::Text, quoted(rest.as_bytes(), 1, true))
            }
            b'"' | b'`' => (Kind::Quoted, quoted(rest.as_bytes(), 0, false)),
            b'$' if rest.starts_with("$$") => {
                let end = rest[2..].find("$$");
                (Kind::Text, end.map_or(rest.len(), |end| 2 + end + 2))
            }
            b'$' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => (
                Kind::Parameter,
                1 + span(&rest[1..], |character| character.is_ascii_digit()),
            ),
            byte if byte.is_ascii_digit() => (
                Kind::Number,
                span(rest, |character| {
                    character.is_ascii_alphanumeric() || character == '.'
                }),
            ),
            byte if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 => (
                Kind::Name,
                span(rest, |character| {
                    character.is_alphanumeric()
                        || matches!(character, '_' | '$')
                        || !character.is_ascii()
                }),
            ),
            byte => (Kind::Sign, sign(byte, rest)),
        };
        words.push(Word {
            kind,
            text: &rest[..length],
            at,
        });
        at += length;
    }
    words
}

fn span(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|character| !belongs(character))
        .unwrap_or(text.len())
}

/// The bytes of an operator: several of these signs, or any one sign.
fn sign(first: u8, rest: &str) -> usize {
    match first {
        b':' if rest.starts_with("::") => 2,
        b'<' | b'>' | b'=' | b'!' | b'~' | b'|' | b'&' | b'@' | b'#' | b'^' => {
            span(rest, |character| "<>=!~|&@#^*".contains(character))
        }
        _ => 1,
    }
}

/// The bytes of something in quotes, the quote itself being written twice inside.
fn quoted(bytes: &[u8], start: usize, escapes: bool) -> usize {
    let quote = bytes[start];
    let mut at = start + 1;
    while at < bytes.len() {
        if escapes && bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] != quote {
            at += 1;
        } else if bytes.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return at + 1;
        }
    }
    bytes.len()
}

/// The bytes of a comment, which may contain others.
fn comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                at += 2;
            }
            Some(b"*/") => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The statements of a text, divided at `;`. A set of statements (`STATEMENT SET … END`) is one.
pub fn statements(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut open, mut in_set) = (None::<Range<usize>>, false);
    let mut seen: Vec<Word<'_>> = Vec::new();
    for word in words(text) {
        if !word.is_sign(";") {
            seen.push(word);
            let start = open.as_ref().map_or(word.at, |range| range.start);
            open = Some(start..word.range().end);
            continue;
        }
        let first = |at: usize, keyword: &str| seen.get(at).is_some_and(|word| word.is(keyword));
        let begins_set = (0..2).any(|at| first(at, "statement") && first(at + 1, "set"));
        in_set |= begins_set && !(seen.len() > 3 && seen.last().is_some_and(|word| word.is("end")));
        in_set &= !(seen.len() == 1 && first(0, "end"));
        seen.clear();
        if !in_set {
            found.extend(open.take().map(|range| with_hint(text, range, word.at)));
        }
    }
    found.extend(open.map(|range| with_hint(text, range, text.len())));
    found
}

/// A statement with the hint at its end, which is a comment; it ends at `end`.
fn with_hint(text: &str, range: Range<usize>, end: usize) -> Range<usize> {
    match text[range.end..end].contains("/*+") {
        true => range.start..text[..end].trim_end().len(),
        false => range,
    }
}

/// The place of the parenthesis or bracket that ends what begins at `open`.
pub fn closing(words: &[Word<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(open) {
        if word.is_sign("(") || word.is_sign("[") {
            depth += 1;
        } else if word.is_sign(")") || word.is_sign("]") {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The words outside of parentheses, with their places.
pub fn top_level<'a, 'b>(words: &'b [Word<'a>]) -> impl Iterator<Item = (usize, &'b Word<'a>)> {
    let mut depth = 0_usize;
    words.iter().enumerate().filter(move |(_, word)| {
        let opens = word.is_sign("(") || word.is_sign("[");
        let closes = word.is_sign(")") || word.is_sign("]");
        depth += usize::from(opens);
        let outside = depth == 0;
        depth = depth.saturating_sub(usize::from(closes));
        outside
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings(text: &str) -> Vec<&str> {
        words(text).iter().map(|word| word.text).collect()
    }

    #[test]
    fn strings_become_words() {
        assert_eq!(
            strings(
                "SELECT a.\"b c\", 'it''s', E'\\'', $1::int -- x;\n/* /* ; */ */ FROM `t` WHERE x!~*'a'"
            ),
            [
                "SELECT", "a", ".", "\"b c\"", ",", "'it''s'", ",", "E'\\''", ",", "$1", "::",
                "int", "FROM", "`t`", "WHERE", "x", "!~*", "'a'"
            ]
        );
        assert_eq!(words("E'a\\n'")[0].string().unwrap(), "a\n");
        assert_eq!(words("$$it's$$")[0].string().unwrap(), "it's");
        assert_eq!(words("\"A\"\"b\"")[0].name().unwrap(), "A\"b");
        assert_eq!(words("größe")[0].name().unwrap(), "größe");
    }

    #[test]
    fn strings_are_divided_at_semicolons() {
        let divided = |text: &'static str| -> Vec<&str> {
            statements(text)
                .into_iter()
                .map(|range| &text[range])
                .collect()
        };
        assert_eq!(
            divided(" SELECT ';' ; ; -- ;\nSHOW x"),
            ["SELECT ';'", "SHOW x"]
        );
        assert_eq!(
            divided("CREATE FUNCTION f() AS $$ it's; $1 -- $$ ; SHOW x"),
            ["CREATE FUNCTION f() AS $$ it's; $1 -- $$", "SHOW x"]
        );
        assert_eq!(divided("  -- nothing"), [""; 0]);
        let set = "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END";
        assert_eq!(
            divided(
                "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; \
                            INSERT INTO b SELECT 2; END; BEGIN"
            ),
            [set, "BEGIN"]
        );
    }

    proptest! {
        #[test]
        fn any_text_has_words(text in "[ -~äß\n]{0,80}") {
            let mut end = 0;
            for word in words(&text) {
                prop_assert!(word.at >= end && !word.text.is_empty());
                prop_assert_eq!(&text[word.range()], word.text);
                end = word.range().end;
                word.name();
                word.string();
            }
            statements(&text);
        }
    }
}
