//! `POST /v1/sql`: statements, and what they answer.

use hyper::header::CONTENT_TYPE;
use serde_json::Value;

use crate::backend::{Answer, Backend, Kind, Parameter, Refusal, Statement};
use crate::http::{Asked, Reply};

use super::forms::Form;
use super::output::{Output, Stop};
use super::query::Query;
use super::{Api, Refused, literal};

const FORMS: [Form; 6] = [
    Form::Lines,
    Form::Json,
    Form::Arrow,
    Form::Csv,
    Form::Text,
    Form::Events,
];

/// Statements to run.
pub struct Statements {
    /// Their text.
    pub text: String,
    /// The values for `$1`, `$2`, …, if there is one statement.
    pub parameters: Vec<Parameter>,
    /// What is set before: keys and values.
    pub settings: Vec<(String, String)>,
}

/// Runs the statements of the body.
pub(super) fn sql(api: &Api, asked: Asked, reply: Reply) {
    match read(&asked) {
        Ok((statements, form)) => {
            let output = Output::new(form, asked.cancelled.clone(), reply);
            run(&*api.backend, &statements, output, |refusal| refusal);
        }
        Err(refused) => reply.send(refused.into_answer()),
    }
}

fn read(asked: &Asked) -> Result<(Statements, Form), Refused> {
    let mut query = Query::of(asked.query.as_deref())?;
    let form = Form::wanted(asked, &mut query, &FORMS)?;
    query.end("format=lines")?;
    let text = std::str::from_utf8(&asked.body).map_err(|error| {
        let message = format!("the text is not UTF-8 at byte {}", error.valid_up_to());
        Refusal::new(Kind::Syntax, message)
    })?;
    let content_type = asked.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let is_json = content_type.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    });
    let statements = match is_json {
        true => from_json(text)?,
        false => Statements {
            text: text.to_string(),
            parameters: Vec::new(),
            settings: Vec::new(),
        },
    };
    Ok((statements, form))
}

/// Reads `{"query": "…", "parameters": […], "settings": {…}}`.
fn from_json(text: &str) -> Result<Statements, Refusal> {
    let hint = r#"send {"query": "SELECT …", "parameters": ["a", 1, null]}, or SQL as text/plain"#;
    let refuse = |message: String| Refusal::new(Kind::Value, message).hint(hint);
    let value = serde_json::from_str::<Value>(text);
    let value = value.map_err(|error| refuse(format!("the body is not valid JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err(refuse("the body is not an object".to_string()));
    };
    let Some(Value::String(text)) = fields.remove("query") else {
        return Err(refuse("the body has no text 'query'".to_string()));
    };
    let given = match fields.remove("parameters") {
        None => Vec::new(),
        Some(Value::Array(given)) => given,
        Some(_) => return Err(refuse("'parameters' is not an array".to_string())),
    };
    let set = match fields.remove("settings") {
        None => serde_json::Map::new(),
        Some(Value::Object(set)) => set,
        Some(_) => return Err(refuse("'settings' is not an object".to_string())),
    };
    if let Some(name) = fields.keys().next() {
        return Err(refuse(format!("the field '{name}' is not supported")));
    }
    let parameters = given.into_iter().map(|value| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Bool(_) | Value::Number(_) => Ok(Some(value.to_string())),
        Value::Array(_) | Value::Object(_) => {
            Err(refuse("a parameter is an array or an object".to_string()))
        }
    });
    let settings = set.into_iter().map(|(key, value)| match value {
        Value::String(value) => Ok((key, value)),
        Value::Bool(_) | Value::Number(_) => Ok((key, value.to_string())),
        _ => Err(refuse(format!("the setting '{key}' is not a string"))),
    });
    Ok(Statements {
        parameters: parameters.collect::<Result<Vec<Parameter>, Refusal>>()?,
        settings: settings.collect::<Result<Vec<(String, String)>, Refusal>>()?,
        text,
    })
}

/// Runs statements one after the other, in a session of their own. `tell` changes what is told of a refusal.
pub fn run(
    backend: &dyn Backend,
    statements: &Statements,
    mut output: Output,
    tell: impl Fn(Refusal) -> Refusal,
) {
    match run_all(backend, statements, &mut output) {
        Ok(()) => output.end(),
        Err(Stop::Gone) => {}
        Err(Stop::Refused(refused)) => output.refuse(Refused {
            status: refused.status,
            refusal: tell(refused.refusal),
        }),
    }
}

fn run_all(
    backend: &dyn Backend,
    statements: &Statements,
    output: &mut Output,
) -> Result<(), Stop> {
    let mut session = backend.session();
    for (key, value) in &statements.settings {
        let set = format!("SET {} = {}", literal(key), literal(value));
        let set = Statement {
            text: set.into(),
            begin: 0,
        };
        session
            .run(&set, &[], output.cancelled())
            .map_err(|refusal| Refusal {
                // It is not in the text.
                position: None,
                ..refusal
            })?;
    }
    let parsed = session.parse(&statements.text)?;
    if !statements.parameters.is_empty() && parsed.len() != 1 {
        let message = format!("there are parameters, and {} statements", parsed.len());
        let refusal = Refusal::new(Kind::Value, message);
        return Err(refusal.hint("send one statement at a time").into());
    }
    for (number, statement) in parsed.iter().enumerate() {
        if output.cancelled().is_set() {
            return Err(Stop::Gone);
        }
        let is_last = number + 1 == parsed.len();
        let answer = session.run(statement, &statements.parameters, output.cancelled());
        let answer = answer.map_err(|refusal| refusal.moved(statement.begin))?;
        match answer {
            Answer::Done { tag, notices } => output.done(&tag, &notices, is_last)?,
            Answer::Rows(rows) => output.rows(rows, is_last)?,
        }
    }
    Ok(())
}
