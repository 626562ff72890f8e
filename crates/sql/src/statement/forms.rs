//! Calls with a special syntax, rewritten on the tokens to calls with a list of arguments:
//! `TIMESTAMPDIFF(DAY, a, b)`, `JSON_VALUE(json, '$.a' RETURNING INT NULL ON EMPTY)`, `FLOOR(ts TO HOUR)`.
//! Every token keeps its place.

use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Whitespace};

use crate::error::{Result, SqlError, nearest};
use crate::names::{CEIL, UNITS};

/// Rewrites all such calls.
pub(super) fn rewrite(tokens: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let mut rewritten = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while index < tokens.len() {
        let call = Call::at(tokens, index);
        let Some(call) = call else {
            rewritten.push(tokens[index].clone());
            index += 1;
            continue;
        };
        // Calls inside the arguments are rewritten first.
        let inside = rewrite(&tokens[call.open + 1..call.close])?;
        rewritten.extend(call.form.written(&tokens[index], &inside)?);
        index = call.close + 1;
    }
    Ok(rewritten)
}

/// A call of a function with a special syntax.
struct Call {
    form: Form,
    /// The index of the opening parenthesis.
    open: usize,
    close: usize,
}

#[derive(Clone, Copy)]
enum Form {
    /// The first argument is a unit of time.
    Unit,
    /// `FLOOR(ts TO unit)`.
    Floor,
    /// `CEIL(ts TO unit)`.
    Ceil,
    JsonValue,
    JsonQuery,
    JsonExists,
}

impl Call {
    fn at(tokens: &[TokenWithSpan], index: usize) -> Option<Call> {
        const FORMS: [(&str, Form); 8] = [
            ("TIMESTAMPDIFF", Form::Unit),
            ("TIMESTAMPADD", Form::Unit),
            ("FLOOR", Form::Floor),
            ("CEIL", Form::Ceil),
            ("CEILING", Form::Ceil),
            ("JSON_VALUE", Form::JsonValue),
            ("JSON_QUERY", Form::JsonQuery),
            ("JSON_EXISTS", Form::JsonExists),
        ];
        let (_, form) = FORMS
            .into_iter()
            .find(|(name, _)| is_word(&tokens[index], name))?;
        let open = (index + 1..tokens.len()).find(|&at| is_solid(&tokens[at]))?;
        if tokens[open].token != Token::LParen {
            return None;
        }
        // The parser reports parentheses that are not closed.
        let close = open + 1 + ends_at(&tokens[open + 1..])?;
        Some(Call { form, open, close })
    }
}

/// The index of the closing parenthesis around `tokens`.
fn ends_at(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth < 0
    })
}

fn is_solid(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

fn is_one_of(token: &TokenWithSpan, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| is_word(token, wanted))
}

/// The tokens outside of inner parentheses, with their indices.
fn outside(tokens: &[TokenWithSpan]) -> impl Iterator<Item = (usize, &TokenWithSpan)> {
    let mut depth = 0;
    tokens.iter().enumerate().filter(move |(_, token)| {
        let before = depth;
        match token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            _ => {}
        }
        before == 0 && depth == 0 && is_solid(token)
    })
}

/// Makes tokens, at the place of another one.
struct Made(Span);

impl Made {
    fn one(&self, token: Token) -> TokenWithSpan {
        TokenWithSpan::new(token, self.0)
    }

    fn text(&self, text: &str) -> TokenWithSpan {
        self.one(Token::SingleQuotedString(text.to_string()))
    }

    /// `, 'text'`
    fn next_text(&self, text: &str) -> [TokenWithSpan; 2] {
        [self.one(Token::Comma), self.text(text)]
    }

    fn word(&self, word: &str) -> TokenWithSpan {
        self.one(Token::make_word(word, None))
    }

    fn null(&self) -> TokenWithSpan {
        self.word("NULL")
    }
}

impl Form {
    fn written(self, name: &TokenWithSpan, inside: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
        let made = Made(name.span);
        let (name, arguments) = match self {
            Form::Unit => (name.clone(), with_unit(inside)?),
            Form::Floor => match floor(inside)? {
                Some(arguments) => (made.word("date_trunc"), arguments),
                None => (name.clone(), inside.to_vec()),
            },
            Form::Ceil => match floor(inside)? {
                Some(arguments) => (made.word(CEIL), arguments),
                None => (name.clone(), inside.to_vec()),
            },
            Form::JsonValue => (name.clone(), json_value(inside, &made)?),
            Form::JsonQuery => (name.clone(), json_query(inside, &made)?),
            Form::JsonExists => (name.clone(), json_exists(inside, &made)?),
        };
        let mut call = vec![name, made.one(Token::LParen)];
        call.extend(arguments);
        call.push(made.one(Token::RParen));
        Ok(call)
    }
}

/// The string with the unit that a word names, in lower case.
fn unit(token: &TokenWithSpan) -> Result<TokenWithSpan> {
    let name = match &token.token {
        Token::Word(word) => word.value.to_uppercase(),
        Token::SingleQuotedString(text) => text.to_uppercase(),
        other => other.to_string(),
    };
    let singular = name.strip_suffix('S').unwrap_or(&name);
    if UNITS.contains(&singular) {
        let text = Token::SingleQuotedString(singular.to_lowercase());
        return Ok(TokenWithSpan::new(text, token.span));
    }
    let error = SqlError::new(format!("'{}' is not a unit of time", token.token)).at(token.span);
    Err(match nearest(&name, &UNITS.map(String::from)) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("the units are: {}", UNITS.join(", "))),
    })
}

fn with_unit(inside: &[TokenWithSpan]) -> Result<Vec<TokenWithSpan>> {
    let mut arguments = inside.to_vec();
    if let Some(first) = arguments.iter_mut().find(|token| is_solid(token)) {
        *first = unit(first)?;
    }
    Ok(arguments)
}

/// `ts TO unit` as `'unit', ts`.
fn floor(inside: &[TokenWithSpan]) -> Result<Option<Vec<TokenWithSpan>>> {
    let words = outside(inside).collect::<Vec<_>>();
    let [.., (to, to_word), (_, unit_word)] = words.as_slice() else {
        return Ok(None);
    };
    if !is_word(to_word, "TO") {
        return Ok(None);
    }
    let mut arguments = vec![unit(unit_word)?, Made(to_word.span).one(Token::Comma)];
    arguments.extend_from_slice(&inside[..*to]);
    Ok(Some(arguments))
}

/// Splits the tokens before the first of `words` after the path.
fn clauses<'a>(
    inside: &'a [TokenWithSpan],
    words: &[&str],
) -> (&'a [TokenWithSpan], &'a [TokenWithSpan]) {
    let comma = outside(inside).find(|(_, token)| token.token == Token::Comma);
    let path = comma.map_or(inside.len(), |(comma, _)| comma + 1);
    // The path itself is not a clause, whatever its name is.
    let found = outside(inside).filter(|(at, _)| *at >= path).skip(1);
    let mut found = found.filter(|(_, token)| is_one_of(token, words));
    inside.split_at(found.next().map_or(inside.len(), |(at, _)| at))
}

/// What is returned instead of a value: a word, and the tokens of a default.
struct Instead<'a> {
    what: String,
    default: &'a [TokenWithSpan],
}

/// The clauses `… ON EMPTY` and `… ON ERROR`.
struct OnClauses<'a> {
    empty: Option<Instead<'a>>,
    error: Option<Instead<'a>>,
}

/// Reads `NULL ON EMPTY DEFAULT 1 ON ERROR`; `words` are the words that may come before ON.
fn on_clauses<'a>(mut rest: &'a [TokenWithSpan], words: &[&str]) -> Result<OnClauses<'a>> {
    let mut found = OnClauses {
        empty: None,
        error: None,
    };
    loop {
        let Some((_, first)) = outside(rest).next() else {
            return Ok(found);
        };
        let expected = || {
            SqlError::new(format!("unexpected {}", crate::error::shown(&first.token)))
                .at_token(first)
                .hint(format!(
                    "use {} with ON EMPTY or ON ERROR",
                    words.join(", ")
                ))
        };
        let on = outside(rest).find(|(_, token)| is_word(token, "ON"));
        let (on, _) = on.ok_or_else(expected)?;
        let said = outside(&rest[..on]).map(|(_, token)| token);
        let is_default = is_word(first, "DEFAULT") && words.contains(&"DEFAULT");
        let what = match is_default {
            true => "DEFAULT".to_string(),
            false => said
                .map(|token| token.token.to_string().to_uppercase())
                .collect::<Vec<_>>()
                .join(" "),
        };
        if !words.contains(&what.as_str()) {
            return Err(expected());
        }
        let start = rest.iter().position(is_solid).map_or(0, |start| start + 1);
        let default = if is_default { &rest[start..on] } else { &[] };
        let instead = Instead {
            what: what.to_lowercase(),
            default,
        };
        let event = outside(&rest[on + 1..]).next();
        let slot = match event {
            Some((_, token)) if is_word(token, "EMPTY") => &mut found.empty,
            Some((_, token)) if is_word(token, "ERROR") => &mut found.error,
            _ => return Err(expected()),
        };
        *slot = Some(instead);
        rest = &rest[on + 2 + event.map_or(0, |(at, _)| at)..];
    }
}

fn json_value(inside: &[TokenWithSpan], made: &Made) -> Result<Vec<TokenWithSpan>> {
    let (front, rest) = clauses(inside, &["RETURNING", "NULL", "ERROR", "DEFAULT"]);
    let mut arguments = front.to_vec();
    if rest.is_empty() {
        return Ok(arguments);
    }
    let (returning, rest) = match is_word(&rest[0], "RETURNING") {
        false => (None, rest),
        true => {
            let end =
                outside(rest).find(|(_, token)| is_one_of(token, &["NULL", "ERROR", "DEFAULT"]));
            let (default, rest) = rest.split_at(end.map_or(rest.len(), |(end, _)| end));
            (Some(&default[1..]), rest)
        }
    };
    let on = on_clauses(rest, &["NULL", "ERROR", "DEFAULT"])?;
    let space = || made.one(Token::Whitespace(Whitespace::Space));
    arguments.push(made.one(Token::Comma));
    match returning {
        Some(default) => {
            arguments.extend([
                made.word("CAST"),
                made.one(Token::LParen),
                made.null(),
                space(),
            ]);
            arguments.extend([made.word("AS"), space()]);
            arguments.extend_from_slice(default);
            arguments.push(made.one(Token::RParen));
        }
        None => arguments.push(made.null()),
    }
    for instead in [on.empty, on.error] {
        let what = instead
            .as_ref()
            .map_or("null", |instead| instead.what.as_str());
        arguments.extend(made.next_text(what));
        arguments.push(made.one(Token::Comma));
        match instead {
            Some(Instead { default, .. }) if !default.is_empty() => {
                arguments.extend_from_slice(default)
            }
            _ => arguments.push(made.null()),
        }
    }
    Ok(arguments)
}

fn json_exists(inside: &[TokenWithSpan], made: &Made) -> Result<Vec<TokenWithSpan>> {
    const WORDS: [&str; 4] = ["TRUE", "FALSE", "UNKNOWN", "ERROR"];
    let (front, rest) = clauses(inside, &WORDS);
    let mut arguments = front.to_vec();
    if let Some(error) = on_clauses(rest, &WORDS)?.error {
        arguments.extend(made.next_text(&error.what));
    }
    Ok(arguments)
}

fn json_query(inside: &[TokenWithSpan], made: &Made) -> Result<Vec<TokenWithSpan>> {
    const WORDS: [&str; 4] = ["NULL", "ERROR", "EMPTY ARRAY", "EMPTY OBJECT"];
    let (front, rest) = clauses(inside, &["WITH", "WITHOUT", "NULL", "ERROR", "EMPTY"]);
    let mut arguments = front.to_vec();
    if rest.is_empty() {
        return Ok(arguments);
    }
    let wrapper = outside(rest).find(|(_, token)| is_word(token, "WRAPPER"));
    let (said, rest) = rest.split_at(wrapper.map_or(0, |(at, _)| at + 1));
    let said = outside(said).map(|(_, token)| token.token.to_string().to_uppercase());
    let said = said
        .filter(|word| word != "ARRAY")
        .collect::<Vec<String>>()
        .join(" ");
    let wrapper = match said.as_str() {
        "" | "WITHOUT WRAPPER" => "without",
        "WITH WRAPPER" | "WITH UNCONDITIONAL WRAPPER" => "unconditional",
        "WITH CONDITIONAL WRAPPER" => "conditional",
        other => {
            let error = format!("'{other}' is not a supported clause of JSON_QUERY");
            return Err(SqlError::new(error).near("WRAPPER").hint(
                "use WITHOUT WRAPPER, WITH CONDITIONAL WRAPPER or WITH UNCONDITIONAL WRAPPER",
            ));
        }
    };
    let on = on_clauses(rest, &WORDS)?;
    let what =
        |instead: Option<Instead<'_>>| instead.map_or("null".to_string(), |instead| instead.what);
    arguments.extend(made.next_text(wrapper));
    arguments.extend(made.next_text(&what(on.empty)));
    arguments.extend(made.next_text(&what(on.error)));
    Ok(arguments)
}
