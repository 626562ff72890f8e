//! The output of `\d`: tables and views, and the columns of one.

use slackwater_sql::session::Session;
use slackwater_sql::table::{Table, TableColumn};
use slackwater_sql::types::sql_name;

use crate::terminal::aligned;

/// `\d`: the list of tables and views.
pub fn list(session: &Session) -> String {
    let tables = session.tables.values().map(|table| {
        let connector = table.options.get("connector").map_or("", String::as_str);
        vec![
            table.name.clone(),
            "table".to_string(),
            connector.to_string(),
        ]
    });
    let views = session.view_names();
    let views = views.map(|name| vec![name.clone(), "view".to_string(), String::new()]);
    let mut rows = tables.chain(views).collect::<Vec<_>>();
    if rows.is_empty() {
        return "no tables yet: CREATE TABLE … declares one\n".to_string();
    }
    rows.sort();
    aligned(&["name", "kind", "connector"], &rows)
}

/// `\d name`: the description of a table or view.
pub fn describe(session: &Session, name: &str) -> Option<String> {
    if let Some(table) = session.tables.get(name) {
        return Some(table_described(table));
    }
    let columns = session.view_columns(name)?;
    let rows = columns
        .into_iter()
        .map(|(name, data_type)| vec![name, sql_name(&data_type)]);
    Some(aligned(&["column", "type"], &rows.collect::<Vec<_>>()))
}

fn table_described(table: &Table) -> String {
    let fields = table.schema.fields().iter().zip(&table.columns).enumerate();
    let rows = fields.map(|(index, (field, column))| {
        let mut notes = Vec::new();
        match column {
            TableColumn::Computed(_) => notes.push("computed".to_string()),
            TableColumn::Physical(physical) => {
                let key = table.metadata.get(physical);
                notes.extend(key.map(|key| format!("metadata '{key}'")));
            }
        }
        if let Some((time, delay_us)) = table.event_time
            && time == index
        {
            let delay_s = delay_us as f64 / 1e6;
            notes.push(format!("event time, watermark {delay_s} s behind"));
        }
        if let TableColumn::Physical(physical) = column
            && table.not_null.contains(physical)
        {
            notes.push("not null".to_string());
        }
        notes.extend(table.column_comments.get(&index).cloned());
        vec![
            field.name().clone(),
            sql_name(field.data_type()),
            notes.join(", "),
        ]
    });
    let mut text = aligned(&["column", "type", ""], &rows.collect::<Vec<_>>());
    if let Some(comment) = &table.comment {
        text.push_str(&format!("  {comment}\n"));
    }
    for (name, value) in &table.options {
        let is_secret = ["password", "secret", "token"]
            .iter()
            .any(|word| name.contains(word));
        let value = if is_secret { "…" } else { value };
        text.push_str(&format!("  '{name}' = '{value}'\n"));
    }
    text
}
