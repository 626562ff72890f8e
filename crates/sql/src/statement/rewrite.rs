//! What `sqlparser` does not read, rewritten on tokens into what it does: every token keeps its line
//! and column.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Brings window table functions into a form that `sqlparser` reads: `TABLE(TUMBLE(…))` loses its
/// outer call, `TABLE t` inside the call its keyword; `ROW<…>>` gets its brackets one by one.
pub fn rewrite(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let solid = |from: usize| -> Vec<usize> {
        (from..tokens.len())
            .filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_)))
            .take(3)
            .collect()
    };
    let word = |index: usize, wanted: &[&str]| match &tokens[index].token {
        Token::Word(word) => {
            word.quote_style.is_none() && wanted.iter().any(|w| w.eq_ignore_ascii_case(&word.value))
        }
        _ => false,
    };
    let mut rewritten = Vec::with_capacity(tokens.len());
    // For each open parenthesis: is it the outer call of TABLE(…), is it a window function's.
    let mut open: Vec<(bool, bool)> = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let token = &tokens[index];
        let ahead = solid(index);
        if let [_, paren, function] = ahead[..]
            && word(index, &["TABLE"])
            && tokens[paren].token == Token::LParen
            && word(function, WINDOW_FUNCTIONS)
        {
            open.push((true, false));
            index = paren + 1;
            continue;
        }
        let inside_window = open.last().is_some_and(|(_, window)| *window);
        if inside_window && word(index, &["TABLE"]) {
            index += 1;
            continue;
        }
        match token.token {
            Token::LParen => {
                let before = rewritten
                    .iter()
                    .rev()
                    .find(|token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_)));
                let window = before.is_some_and(|token| match &token.token {
                    Token::Word(word) => WINDOW_FUNCTIONS
                        .iter()
                        .any(|name| name.eq_ignore_ascii_case(&word.value)),
                    _ => false,
                });
                open.push((false, window));
            }
            Token::RParen if open.pop().is_some_and(|(outer, _)| outer) => {
                index += 1;
                continue;
            }
            _ => {}
        }
        rewritten.push(token.clone());
        index += 1;
    }
    rewritten
}

/// Table functions that assign windows.
pub const WINDOW_FUNCTIONS: &[&str] = &["TUMBLE", "HOP", "SESSION", "CUMULATE"];

/// `>>` as two `>`, for nested ROW types.
pub fn split_shift(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    tokens
        .into_iter()
        .flat_map(|token| match token.token {
            Token::ShiftRight => vec![TokenWithSpan::new(Token::Gt, token.span); 2],
            _ => vec![token],
        })
        .collect()
}
