//! How EXPLAIN shows an aggregation.

use arrow_schema::SchemaRef;
use slackwater_engine::operator::aggregate::{AggregateSpec, Refires};
use slackwater_engine::operator::window::Windows;

use crate::explain::{self, duration, readable};

/// The node's description in EXPLAIN.
pub(super) fn detail(spec: &AggregateSpec, input: &SchemaRef) -> String {
    let name = |index: &usize| readable(input.field(*index).name());
    let mut keys = spec.keys.iter().map(name).collect::<Vec<_>>();
    let kind = match &spec.window {
        Some(window) => {
            keys.insert(0, "window".to_string());
            windowed(&window.windows, spec.refires.as_ref())
        }
        None if spec.is_final() => "when the input has ended".to_string(),
        None => "running".to_string(),
    };
    let first = spec.schema.fields().len() - spec.calls.len();
    let calls = spec.schema.fields()[first..]
        .iter()
        .map(|field| readable(field.name()));
    let calls = calls.collect::<Vec<_>>().join(", ");
    let by = if keys.is_empty() {
        String::new()
    } else {
        format!(" by {}", keys.join(", "))
    };
    format!(
        "{kind}: {}{by}",
        if calls.is_empty() { "distinct" } else { &calls }
    )
}

/// The description of windows, and of when they are emitted.
fn windowed(windows: &Windows, refires: Option<&Refires>) -> String {
    let mut shown = explain::windows(windows);
    let Some(refires) = refires else {
        return shown;
    };
    if let Some(every_ns) = refires.every_ns {
        let every = duration(every_ns.into());
        shown.push_str(&format!(", emitted {every} after a change"));
    }
    if refires.lateness_us > 0 {
        let lateness = duration(i128::from(refires.lateness_us) * 1000);
        shown.push_str(&format!(", {lateness} for late rows"));
    }
    shown
}
