//! Parts of CREATE that other dialects have, and what to write instead.

use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError};

/// What may follow a column's type elsewhere.
pub(super) fn behind_column(token: &TokenWithSpan) -> Result<()> {
    let mend = match word(token).as_str() {
        "DEFAULT" => "leave it out; COALESCE(column, value) in the query gives a value for NULL",
        "COMMENT" => "leave it out; -- begins a comment in the text",
        "CHECK" | "UNIQUE" | "REFERENCES" | "CONSTRAINT" => {
            "leave it out: rows are not checked; WHERE in the query leaves rows out"
        }
        "GENERATED" => "write a computed column: name AS expression",
        _ => return Ok(()),
    };
    Err(not_known(token).mend(mend))
}

/// What may follow the list of columns elsewhere.
pub(super) fn behind_columns(token: &TokenWithSpan) -> Result<()> {
    let mend = match word(token).as_str() {
        "COMMENT" => "leave it out; -- begins a comment in the text",
        "PARTITIONED" => "leave it out; a path with * reads the files of all folders",
        "DISTRIBUTED" => "leave it out: 'parallelism' says how many instances read and write",
        "LIKE" => "write the columns and options out",
        "AS" => {
            "declare the columns, then INSERT INTO the table SELECT …; CREATE VIEW names a query"
        }
        _ => return Ok(()),
    };
    Err(not_known(token).mend(mend))
}

/// `CREATE OR REPLACE …`.
pub(super) fn or_replace(or: &TokenWithSpan) -> SqlError {
    SqlError::new("CREATE OR REPLACE is not known here")
        .at(or.span)
        .mend("leave OR REPLACE out: a name is declared once in a text; \\drop name forgets it in the shell")
}

/// `CREATE VIEW IF NOT EXISTS`.
pub(super) fn unless_known(parser: &mut Parser) -> Result<()> {
    let start = parser.peek_token();
    if !parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]) {
        return Ok(());
    }
    Err(
        SqlError::new("IF NOT EXISTS is known for tables, not for views")
            .at(start.span)
            .mend("leave it out: a name is declared once in a text"),
    )
}

fn not_known(token: &TokenWithSpan) -> SqlError {
    SqlError::new(format!("{} is not known here", word(token))).at(token.span)
}

fn word(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    }
}
