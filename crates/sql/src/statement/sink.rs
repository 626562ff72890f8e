//! CREATE SINK: a table that is written by a query, and that nothing else uses.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{is_space, is_word};
use crate::error::{Result, SqlError, shown};

/// `CREATE SINK name [(PRIMARY KEY …)] AS query WITH (options)`, or with `FROM view` instead of the query, as
/// the CREATE TABLE … WITH (options) AS query that does the same. Every token keeps its place.
pub(super) fn as_table(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let sink = tokens.iter().position(|token| is_word(token, "SINK"));
    let sink = sink.expect("the caller has seen it");
    let begin = tokens[sink].span;
    tokens[sink] = word("TABLE", &tokens[sink]);
    let Some(query) = first_outside(&tokens, sink + 1, &["AS", "FROM"]) else {
        return Err(SqlError::new("CREATE SINK needs a query, or a view to write")
            .at(begin)
            .hint("use CREATE SINK name AS SELECT … WITH ('connector' = …), or CREATE SINK name FROM v …"));
    };
    let mut rest = tokens.split_off(query);
    // Options before AS are where CREATE TABLE wants them.
    let has_options = first_outside(&tokens, sink + 1, &["WITH"]).is_some();
    let options = match has_options {
        true => Vec::new(),
        false => options_at_the_end(&mut rest),
    };
    if options.is_empty() && !has_options {
        return Err(SqlError::new("CREATE SINK needs options")
            .at(begin)
            .hint("end it with WITH ('connector' = 'file', 'path' = 'out.csv')"));
    }
    tokens.extend(options);
    if !is_word(&rest[0], "FROM") {
        tokens.extend(rest);
        return Ok(tokens);
    }
    let at = rest[0].clone();
    tokens.push(word("AS", &at));
    tokens.push(word("SELECT", &at));
    tokens.push(like(Token::Mul, &at));
    let mut after = rest.iter().skip(1).filter(|token| !is_space(token));
    match (after.next(), after.next()) {
        (Some(name), None) if matches!(name.token, Token::Word(_)) => {}
        (Some(_), Some(token)) => {
            let error = format!(
                "unexpected {} after the name of a view",
                shown(&token.token)
            );
            return Err(SqlError::new(error)
                .at_token(token)
                .hint("for a query, use CREATE SINK name AS SELECT …"));
        }
        _ => return Err(SqlError::new("expected the name of a view after FROM").at(at.span)),
    }
    tokens.extend(rest);
    Ok(tokens)
}

/// The index of the first of these words outside of parentheses.
fn first_outside(tokens: &[TokenWithSpan], from: usize, words: &[&str]) -> Option<usize> {
    let mut depth = 0;
    (from..tokens.len()).find(|&at| {
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && words.iter().any(|wanted| is_word(&tokens[at], wanted))
    })
}

/// Takes `WITH (…)` from the end of a query; nothing if the query ends otherwise.
fn options_at_the_end(tokens: &mut Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = |tokens: &[TokenWithSpan]| tokens.iter().rposition(|token| !is_space(token));
    let Some(mut at) = solid(tokens).filter(|&at| tokens[at].token == Token::RParen) else {
        return Vec::new();
    };
    // An option's value may not contain parentheses outside of its quotes.
    while tokens[at].token != Token::LParen {
        let Some(before) = at.checked_sub(1) else {
            return Vec::new();
        };
        at = before;
    }
    match solid(&tokens[..at]) {
        Some(with) if is_word(&tokens[with], "WITH") => tokens.split_off(with),
        _ => Vec::new(),
    }
}

/// A word at the place of another token.
fn word(text: &str, place: &TokenWithSpan) -> TokenWithSpan {
    like(Token::make_keyword(text), place)
}

fn like(token: Token, place: &TokenWithSpan) -> TokenWithSpan {
    TokenWithSpan {
        token,
        span: place.span,
    }
}

#[cfg(test)]
mod tests {
    use crate::statement::{Statement, parse};

    fn options(text: &str) -> Vec<(String, String)> {
        let placed = parse(text).unwrap().remove(0);
        let Statement::CreateTable(table) = placed.statement else {
            panic!("not a table");
        };
        assert!(table.query.is_some());
        table.options.into_iter().collect()
    }

    #[test]
    fn options_stand_before_or_after_the_query() {
        let wanted = [("connector".to_string(), "blackhole".to_string())];
        for text in [
            "CREATE SINK s AS SELECT a FROM t WITH ('connector' = 'blackhole')",
            "CREATE SINK s WITH ('connector' = 'blackhole') AS SELECT a FROM t",
            "CREATE SINK IF NOT EXISTS s AS WITH c AS (SELECT 1 AS a) SELECT a FROM c
             WITH ('connector' = 'blackhole') -- done",
            "create sink s from v with ('connector' = 'blackhole')",
            "CREATE SINK s (PRIMARY KEY (a) NOT ENFORCED) AS SELECT a FROM t
             WHERE a IN (SELECT b FROM u) WITH ('connector' = 'blackhole')",
        ] {
            assert_eq!(options(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("CREATE SINK s AS SELECT (a) FROM t").contains("needs options"));
        assert!(error("CREATE SINK s WITH ('a' = 'b')").contains("needs a query"));
        assert!(
            error("CREATE SINK s FROM v x WITH ('a' = 'b')").contains("after the name of a view")
        );
    }
}
