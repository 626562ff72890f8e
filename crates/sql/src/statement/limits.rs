//! Limits the depth of statements.
//!
//! The parser, the planner, the optimizer and expressions are recursive, and a tree that is deep enough
//! overflows the stack, which is not a recoverable error. Parentheses make trees deep, and so do chains:
//! `a + b + c` is a tree as deep as the chain is long. Both are counted here, on the tokens, before anything
//! recurses.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError};

/// The maximum depth of parentheses: each level uses stack in every pass.
pub const NESTING_MAX: usize = 64;

/// The maximum number of operators in a chain. Twice as many are compiled on a worker's stack of 2 MiB
/// without optimization; three times as many were seen to overflow the 8 MiB of the main thread.
const CHAIN_MAX: usize = 1000;

/// The maximum number of tables in the joins and unions of a statement: a quarter of what can be compiled.
const TABLES_MAX: usize = 256;

/// Rejects a number that is directly followed by letters: `1_000` would be a 1 with the alias `_000`.
pub fn check_numbers(tokens: &[TokenWithSpan]) -> Result<()> {
    for pair in tokens.windows(2) {
        if let [number, name] = pair
            && let (Token::Number(digits, false), Token::Word(word)) = (&number.token, &name.token)
            && word.quote_style.is_none()
        {
            let error = format!("'{digits}{}' is not a valid number", word.value);
            let hint = match word.value.starts_with('_') {
                true => "write the digits without '_'",
                false => "add a space after the number",
            };
            return Err(SqlError::new(error).at(number.span).hint(hint));
        }
    }
    Ok(())
}

/// Rejects a statement that exceeds the limits.
pub fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    // The length of the current chain, for each open parenthesis.
    let mut chains = vec![0];
    let mut types = 0_usize;
    let mut tables = 0;
    let mut before = "";
    for TokenWithSpan { token, span } in tokens {
        let last = chains.len() - 1;
        let word = match token {
            Token::Whitespace(_) => continue,
            Token::Word(word) if word.quote_style.is_none() => word.value.as_str(),
            _ => "",
        };
        let is = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known));
        match token {
            Token::LParen => chains.push(0),
            Token::LBracket => {
                chains[last] += 1;
                chains.push(0);
            }
            Token::RParen | Token::RBracket if last > 0 => {
                chains.pop();
            }
            Token::Lt if ["ROW", "STRUCT", "ARRAY", "MAP"].contains(&&*before.to_uppercase()) => {
                types += 1;
            }
            Token::Gt => types = types.saturating_sub(1),
            Token::Comma => chains[last] = 0,
            _ if is(&[
                "SELECT", "FROM", "WHERE", "HAVING", "ON", "WHEN", "THEN", "ELSE",
            ]) =>
            {
                chains[last] = 0;
            }
            _ if is(&["UNION", "EXCEPT", "INTERSECT", "JOIN"]) => tables += 1,
            Token::Word(_) if !is(&["AND", "OR", "NOT", "IS", "COLLATE", "AT", "EXPLAIN"]) => {}
            Token::Number(..) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => {}
            // All other tokens count as operators.
            _ => chains[last] += 1,
        }
        before = word;
        let too = if chains.len() + types > NESTING_MAX {
            format!("the statement has more than {NESTING_MAX} levels of parentheses")
        } else if chains.iter().sum::<usize>() > CHAIN_MAX {
            format!("the statement has a chain of more than {CHAIN_MAX} operators")
        } else if tables > TABLES_MAX {
            format!("the statement joins or unites more than {TABLES_MAX} tables")
        } else {
            continue;
        };
        return Err(SqlError::new(too)
            .at(*span)
            .hint("use CREATE VIEW for a part of it, or IN (…) for many values"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn statements_that_would_overflow_the_stack_are_rejected() {
        for (part, between) in [
            ("a", " + "),
            ("a = 1", " OR "),
            ("a IS NULL", " AND "),
            ("'x'", "||"),
        ] {
            let chain = |length: usize| vec![part; length].join(between);
            let error = refused(&format!("SELECT {} FROM t", chain(100_000)));
            assert!(
                error.contains("a chain of more than 1000 operators"),
                "{error}"
            );
            parse(&format!("SELECT {} FROM t", chain(300))).unwrap();
        }
        for (open, close) in [("(", ")"), ("ABS(", ")"), ("a[", "]")] {
            let nested = |depth: usize| {
                let (open, close) = (open.repeat(depth), close.repeat(depth));
                format!("SELECT {open} 1 {close} FROM t")
            };
            let error = refused(&nested(100_000));
            assert!(
                error.contains("more than 64 levels of parentheses"),
                "{error}"
            );
            parse(&nested(20)).unwrap();
        }
        for prefix in ["NOT ", "- ", "+ ", "EXPLAIN ", "CASE WHEN ", "(SELECT "] {
            refused(&format!("SELECT {} 1 FROM t", prefix.repeat(100_000)));
            refused(&format!("{} SELECT 1 FROM t", prefix.repeat(100_000)));
        }
        for suffix in ["::INT", " IS NULL", "[1]", ".b", " COLLATE \"x\""] {
            refused(&format!("SELECT a{} FROM t", suffix.repeat(100_000)));
        }
        let united = vec!["SELECT a FROM t"; 1000].join(" UNION ALL ");
        assert!(refused(&united).contains("more than 256 tables"));
        let row = |depth: usize| {
            let (open, close) = ("ROW<a ".repeat(depth), ">".repeat(depth));
            format!("CREATE TABLE t (a {open} INT {close}) WITH ('connector' = 'print')")
        };
        assert!(refused(&row(10_000)).contains("more than 64 levels of parentheses"));
        assert!(refused(&row(10_000).replace('<', "(")).contains("more than 64 levels"));
        parse(&row(20)).unwrap();
    }

    #[test]
    fn long_statements_are_not_deep() {
        let columns = (0..5_000).map(|n| format!("a + {n} * b AS c{n}"));
        let columns = columns.collect::<Vec<String>>().join(", ");
        parse(&format!("SELECT {columns} FROM t")).unwrap();
        let cases = "WHEN a > 1 AND b < 2 THEN c - 1 ".repeat(2_000);
        parse(&format!("SELECT CASE {cases} ELSE 0 END FROM t")).unwrap();
        let values = (0..10_000)
            .map(|n| format!("'{n}'"))
            .collect::<Vec<String>>();
        parse(&format!(
            "SELECT a FROM t WHERE b IN ({})",
            values.join(", ")
        ))
        .unwrap();
    }
}
