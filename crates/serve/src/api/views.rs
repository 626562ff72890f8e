//! `/v1/views/{name}`: the rows of a materialized view, and their changes.

use crate::backend::{Kind, Object, ObjectKind, Refusal};
use crate::http::{Asked, Reply};

use super::forms::Form;
use super::output::Output;
use super::query::Query;
use super::statements::{self, Statements};
use super::{Api, Refused, quoted};

/// The forms of rows that are read.
const FORMS: [Form; 5] = [Form::Json, Form::Lines, Form::Arrow, Form::Csv, Form::Text];

/// The forms of changes.
const CHANGE_FORMS: [Form; 3] = [Form::Events, Form::Lines, Form::Arrow];

/// The rows of a view: `?column=value`, `?where=…`, `?order=a,-b`, `?limit=…`, `?offset=…`.
pub(super) fn read(api: &Api, asked: Asked, reply: Reply) {
    match select(api, &asked) {
        Ok((select, form)) => {
            let output = Output::new(form, asked.cancelled.clone(), reply);
            let condition = select.condition;
            statements::run(&*api.backend, &select.statements, output, |refusal| {
                within(refusal, condition)
            });
        }
        Err(refused) => reply.send(refused.into_answer()),
    }
}

/// The changes of a view, from its rows now on.
pub(super) fn follow(api: &Api, asked: Asked, reply: Reply) {
    let read = || -> Result<(Statements, Form), Refused> {
        let mut query = Query::of(asked.query.as_deref())?;
        let form = Form::wanted(&asked, &mut query, &CHANGE_FORMS)?;
        query.end("format=events")?;
        let view = view(api, &asked.parts[0])?;
        let statements = Statements {
            text: format!("SUBSCRIBE {}", quoted(&view.name)),
            parameters: Vec::new(),
            settings: Vec::new(),
        };
        Ok((statements, form))
    };
    match read() {
        Ok((statements, form)) => {
            let output = Output::new(form, asked.cancelled.clone(), reply);
            statements::run(&*api.backend, &statements, output, |refusal| {
                within(refusal, None)
            });
        }
        Err(refused) => reply.send(refused.into_answer()),
    }
}

/// A read of a view.
struct Select {
    statements: Statements,
    /// The characters of the condition that the client has written.
    condition: Option<(usize, usize)>,
}

fn select(api: &Api, asked: &Asked) -> Result<(Select, Form), Refused> {
    let mut query = Query::of(asked.query.as_deref())?;
    let form = Form::wanted(asked, &mut query, &FORMS)?;
    let view = view(api, &asked.parts[0])?;
    let condition = query.take("where");
    let order = query.take("order");
    let (limit, offset) = (query.number("limit")?, query.number("offset")?);
    let mut text = format!("SELECT * FROM {}", quoted(&view.name));
    let mut parameters = Vec::new();
    let mut conditions = Vec::new();
    for (name, value) in query.rest() {
        let column = column(&view, &name)?;
        parameters.push(Some(value));
        conditions.push(format!("{column} = ${}", parameters.len()));
    }
    if !conditions.is_empty() || condition.is_some() {
        text.push_str(" WHERE ");
    }
    text.push_str(&conditions.join(" AND "));
    let mut place = None;
    if let Some(condition) = condition {
        if !conditions.is_empty() {
            text.push_str(" AND ");
        }
        text.push('(');
        let begin = text.chars().count();
        place = Some((begin, begin + condition.chars().count()));
        text.push_str(&condition);
        // Its last line may be a comment.
        text.push_str("\n)");
    }
    if let Some(order) = order {
        let columns = order.split(',').map(|name| match name.strip_prefix('-') {
            Some(name) => Ok(format!("{} DESC", column(&view, name)?)),
            None => column(&view, name),
        });
        let columns = columns.collect::<Result<Vec<String>, Refusal>>()?;
        text.push_str(&format!(" ORDER BY {}", columns.join(", ")));
    }
    if let Some(limit) = limit {
        text.push_str(&format!(" LIMIT {limit}"));
    }
    if let Some(offset) = offset {
        text.push_str(&format!(" OFFSET {offset}"));
    }
    let statements = Statements {
        text,
        parameters,
        settings: Vec::new(),
    };
    let select = Select {
        statements,
        condition: place,
    };
    Ok((select, form))
}

fn view(api: &Api, name: &str) -> Result<Object, Refused> {
    let objects = api.backend.objects();
    let of_kind =
        |object: &Object| matches!(object.kind, ObjectKind::MaterializedView | ObjectKind::View);
    let mut views = objects.into_iter().filter(of_kind);
    views.find(|view| view.name == name).ok_or_else(|| {
        let message = format!("there is no view '{name}'");
        let refusal = Refusal::new(Kind::Undefined, message);
        Refused::missing(refusal.hint("GET /v1/views lists the views"))
    })
}

fn column(view: &Object, name: &str) -> Result<String, Refusal> {
    if view.columns.iter().any(|column| column.name == name) {
        return Ok(quoted(name));
    }
    let columns = view.columns.iter().map(|column| column.name.as_str());
    let columns = columns.collect::<Vec<_>>().join(", ");
    let message = format!("view '{}' has no column '{name}'", view.name);
    let hint =
        format!("its columns are {columns}; use also where, order, limit, offset and format");
    Err(Refusal::new(Kind::Undefined, message).hint(hint))
}

/// A refusal with its place within what the client has written, if it is there.
fn within(mut refusal: Refusal, condition: Option<(usize, usize)>) -> Refusal {
    refusal.position = refusal.position.and_then(|position| {
        let (begin, end) = condition?;
        (begin..=end).contains(&position).then(|| position - begin)
    });
    refusal
}
