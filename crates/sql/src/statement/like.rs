//! `CREATE TABLE … LIKE other (…)`: copies the declaration of another table.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::declaration::{
    CONSTRAINTS, ColumnKind, CreateTable, GENERATED, Like, METADATA, OPTIONS, PARTS, Rule,
    WATERMARKS,
};
use super::parsed;
use crate::error::{Result, SqlError, nearest, shown};

const RULES: [(&str, Rule); 3] = [
    ("INCLUDING", Rule::Including),
    ("EXCLUDING", Rule::Excluding),
    ("OVERWRITING", Rule::Overwriting),
];

fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    }
}

/// Parses what follows LIKE.
pub(super) fn parse(parser: &mut Parser) -> Result<Like> {
    let source = parsed(parser.parse_identifier())?;
    let mut given: [Option<Rule>; PARTS.len()] = [None; PARTS.len()];
    let mut all = None;
    if parser.consume_token(&Token::LParen) {
        loop {
            let next = parser.next_token();
            if next.token == Token::RParen {
                break;
            }
            let rule = RULES.iter().find(|(name, _)| *name == word(&next));
            let Some((_, rule)) = rule else {
                let error = format!("unexpected {}", shown(&next.token));
                return Err(SqlError::new(error)
                    .at_token(&next)
                    .hint("for example LIKE other (INCLUDING ALL EXCLUDING WATERMARKS OVERWRITING OPTIONS)"));
            };
            let part = parser.next_token();
            match (
                word(&part).as_str(),
                PARTS.iter().position(|name| *name == word(&part)),
            ) {
                ("ALL", _) => all = Some(*rule),
                // Tables have no partitions or distribution here.
                ("PARTITIONS" | "DISTRIBUTION", _) => {}
                (_, Some(index)) => given[index] = Some(*rule),
                (other, None) => return Err(no_part(other).at_token(&part)),
            }
        }
    }
    let mut rules = [all.unwrap_or(Rule::Including); PARTS.len()];
    if all.is_none() {
        rules[OPTIONS] = Rule::Overwriting;
    }
    for (rule, given) in rules.iter_mut().zip(given) {
        *rule = given.unwrap_or(*rule);
    }
    Ok(Like { source, rules })
}

fn no_part(name: &str) -> SqlError {
    let names = PARTS.map(String::from);
    let error = SqlError::new(format!("'{name}' is not a part of a table in LIKE"));
    match nearest(name, &names) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("the parts are: ALL, {}", PARTS.join(", "))),
    }
}

impl Like {
    /// The new table with what it copies from `other`: the copied columns come first.
    pub fn merged(&self, mut new: CreateTable, other: &CreateTable) -> Result<CreateTable> {
        let rule_of = |kind: &ColumnKind| match kind {
            ColumnKind::Physical(_) => Rule::Including,
            ColumnKind::Computed(_) => self.rules[GENERATED],
            ColumnKind::Metadata(..) => self.rules[METADATA],
        };
        let again = |what: String, place| {
            SqlError::new(format!("'{}' already declares {what}", self.source.value))
                .at(place)
                .hint("remove it, or use LIKE … (EXCLUDING …), or OVERWRITING to replace it")
        };
        let mut columns = Vec::new();
        for column in &other.columns {
            let name = &column.name.value;
            let own = new.columns.iter().find(|own| own.name.value == *name);
            match (rule_of(&column.kind), own) {
                (Rule::Excluding, _) => {}
                (Rule::Overwriting, Some(_)) => {}
                (Rule::Including, Some(own)) => {
                    return Err(again(format!("column '{name}'"), own.name.span));
                }
                (_, None) => columns.push(column.clone()),
            }
        }
        columns.append(&mut new.columns);
        new.columns = columns;
        new.watermark = match (new.watermark, &other.watermark, self.rules[WATERMARKS]) {
            (Some((name, _)), Some(_), Rule::Including) => {
                return Err(again("the WATERMARK".to_string(), name.span));
            }
            (None, Some(theirs), Rule::Including | Rule::Overwriting) => Some(theirs.clone()),
            (own, ..) => own,
        };
        if self.rules[CONSTRAINTS] != Rule::Excluding && !other.primary_key.is_empty() {
            if let Some(own) = new.primary_key.first() {
                return Err(again("the PRIMARY KEY".to_string(), own.span));
            }
            new.primary_key = other.primary_key.clone();
        }
        if self.rules[OPTIONS] != Rule::Excluding {
            for (name, value) in &other.options {
                if !new.options.contains_key(name) {
                    new.options.insert(name.clone(), value.clone());
                    if let Some(place) = other.option_places.get(name) {
                        new.option_places.insert(name.clone(), *place);
                    }
                } else if self.rules[OPTIONS] == Rule::Including {
                    let place = new.option_places.get(name);
                    let place = place.copied().unwrap_or(self.source.span);
                    return Err(again(format!("option '{name}'"), place));
                }
            }
        }
        new.comment = new.comment.or_else(|| other.comment.clone());
        Ok(new)
    }
}
