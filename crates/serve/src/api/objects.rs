//! `/v1/views` and `/v1/tables`: what has a name, and rows that are pushed.

use serde_json::{Value, json};

use crate::backend::{Kind, Object, ObjectKind, Pushed, Refusal};
use crate::http::{Asked, Reply};

use super::query::Query;
use super::rows::sql_type;
use super::{Api, Refused, answer};

/// The views.
pub(super) fn views(api: &Api, asked: Asked, reply: Reply) {
    let kinds = [ObjectKind::View, ObjectKind::MaterializedView];
    answer(reply, list(api, &asked, &kinds));
}

/// The tables.
pub(super) fn tables(api: &Api, asked: Asked, reply: Reply) {
    answer(reply, list(api, &asked, &[ObjectKind::Table]));
}

/// Rows for a table. They are accepted, all of them, when this answers.
pub(super) fn push(api: &Api, asked: Asked, reply: Reply) {
    let push = || {
        let mut query = Query::of(asked.query.as_deref())?;
        let (producer, sequence) = (query.take("producer"), query.number("sequence")?);
        query.end("producer and sequence")?;
        let producer = producer_of(producer, sequence)?;
        let table = &asked.parts[0];
        let objects = api.backend.objects();
        let of_name = |object: &Object| object.name == *table && object.kind == ObjectKind::Table;
        if !objects.iter().any(of_name) {
            let message = format!("there is no table '{table}'");
            let refusal = Refusal::new(Kind::Undefined, message);
            let hint = "GET /v1/tables lists the tables; one with 'connector' = 'http' takes rows";
            return Err(Refused::missing(refusal.hint(hint)));
        }
        Ok(accepted(api.backend.push(table, &asked.body, producer)?))
    };
    answer(reply, push());
}

fn accepted(pushed: Pushed) -> Value {
    let mut answer = json!({ "rows": pushed.rows });
    if pushed.rejected > 0 {
        answer["rejected"] = pushed.rejected.into();
    }
    if pushed.repeated {
        answer["repeated"] = true.into();
    }
    answer
}

/// Who pushes, and the number of the push.
fn producer_of(
    producer: Option<String>,
    sequence: Option<u64>,
) -> Result<Option<(String, u64)>, Refusal> {
    match (producer, sequence) {
        (None, None) => Ok(None),
        (Some(producer), Some(sequence)) => Ok(Some((producer, sequence))),
        _ => {
            let refusal = Refusal::new(Kind::Value, "producer and sequence belong together");
            Err(refusal.hint("for example ?producer=sensor-7&sequence=42"))
        }
    }
}

fn list(api: &Api, asked: &Asked, kinds: &[ObjectKind]) -> Result<Value, Refused> {
    Query::of(asked.query.as_deref())?.end("no parameters")?;
    let objects = api.backend.objects();
    let objects = objects.iter().filter(|object| kinds.contains(&object.kind));
    Ok(Value::from(objects.map(object).collect::<Vec<_>>()))
}

fn object(object: &Object) -> Value {
    let kind = match object.kind {
        ObjectKind::Table => "table",
        ObjectKind::View => "view",
        ObjectKind::MaterializedView => "materialized view",
        ObjectKind::Sink => "sink",
    };
    let columns = object.columns.iter().map(|column| {
        json!({
            "name": column.name,
            "type": sql_type(&column.data_type),
            "nullable": column.nullable,
            "key": column.is_key,
        })
    });
    json!({
        "name": object.name,
        "kind": kind,
        "columns": columns.collect::<Vec<_>>(),
        "definition": object.definition,
    })
}
