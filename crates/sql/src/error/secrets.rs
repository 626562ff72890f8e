//! Lines of a text as messages show them: without passwords.

/// The line with a star for each character of a password: of the value of an option whose name ends so, and in
/// an address (`//user:password@host`). What stands behind keeps its column.
pub fn masked(line: &str) -> String {
    let mut shown = line.chars().collect::<Vec<char>>();
    let small = line.to_ascii_lowercase();
    let small = small.chars().collect::<Vec<char>>();
    for start in 0..small.len() {
        let rest = &small[start..];
        let secret = match rest {
            ['p', 'a', 's', 's', 'w', 'o', 'r', 'd', '\'', behind @ ..] => value(behind, 9),
            [':', '/', '/', behind @ ..] => of_user(behind, 3),
            _ => None,
        };
        if let Some((from, to)) = secret {
            shown[start + from..start + to].fill('*');
        }
    }
    shown.into_iter().collect()
}

/// Where the text behind `=` begins and ends; without the end of the line it goes on in the next.
fn value(behind: &[char], before: usize) -> Option<(usize, usize)> {
    let is_blank = |c: &&char| c.is_whitespace() || **c == '=';
    let blanks = behind.iter().take_while(is_blank).count();
    let text = behind[blanks..].strip_prefix(&['\''])?;
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

/// Where the password of an address begins and ends.
fn of_user(behind: &[char], before: usize) -> Option<(usize, usize)> {
    let is_part = |c: &&char| !c.is_whitespace() && !matches!(c, '\'' | '/' | '?');
    let length = behind.iter().take_while(is_part).count();
    let at = behind[..length].iter().rposition(|c| *c == '@')?;
    let colon = behind[..at].iter().position(|c| *c == ':')?;
    Some((before + colon + 1, before + at))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn passwords_are_not_shown() {
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
