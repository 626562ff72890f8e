//! Hides passwords in the lines of SQL that messages show.

/// The line with passwords replaced by one `*` per character: the values of options whose name ends in
/// `password`, and the password in an address (`//user:password@host`). The columns of the rest don't change.
pub fn masked(line: &str) -> String {
    let mut shown = line.chars().collect::<Vec<char>>();
    let small = line.to_ascii_lowercase();
    let small = small.chars().collect::<Vec<char>>();
    for start in 0..small.len() {
        let rest = &small[start..];
        let secret = match rest {
            ['p', 'a', 's', 's', 'w', 'o', 'r', 'd', '\'', after @ ..] => value(after, 9),
            [':', '/', '/', after @ ..] => of_user(after, 3),
            _ => None,
        };
        if let Some((from, to)) = secret {
            shown[start + from..start + to].fill('*');
        }
    }
    shown.into_iter().collect()
}

/// Where the value after `=` starts and ends; without an end it continues on the next line.
fn value(after: &[char], before: usize) -> Option<(usize, usize)> {
    let is_blank = |c: &&char| c.is_whitespace() || **c == '=';
    let blanks = after.iter().take_while(is_blank).count();
    let text = after[blanks..].strip_prefix(&['\''])?;
    let from = before + blanks + 1;
    let mut end = 0;
    while end < text.len() {
        match &text[end..] {
            ['\'', '\'', ..] => end += 2,
            ['\'', ..] => break,
            _ => end += 1,
        }
    }
    Some((from, from + end))
}

/// Where the password of an address starts and ends.
fn of_user(after: &[char], before: usize) -> Option<(usize, usize)> {
    let is_part = |c: &&char| !c.is_whitespace() && !matches!(c, '\'' | '/' | '?');
    let length = after.iter().take_while(is_part).count();
    let at = after[..length].iter().rposition(|c| *c == '@')?;
    let colon = after[..at].iter().position(|c| *c == ':')?;
    Some((before + colon + 1, before + at))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn passwords_are_hidden() {
        for (line, shown) in [
            (
                "WITH ('Password' = 'it''s é', 'a' = 'b')",
                "WITH ('Password' = '*******', 'a' = 'b')",
            ),
            (
                "'properties.sasl.password'='x' --",
                "'properties.sasl.password'='*' --",
            ),
            ("'password' = 'open", "'password' = '****"),
            (
                "'url' = 'postgresql://u:p:q@h:5432/d'",
                "'url' = 'postgresql://u:***@h:5432/d'",
            ),
            (
                "http://host:80/a@b é://u@h:1",
                "http://host:80/a@b é://u@h:1",
            ),
            (
                "SELECT password FROM t WHERE password = 'x'",
                "SELECT password FROM t WHERE password = 'x'",
            ),
            ("'password'", "'password'"),
        ] {
            assert_eq!(masked(line), shown);
        }
    }
}
