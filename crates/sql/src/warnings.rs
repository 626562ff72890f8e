//! What is no error, and most likely not what was meant.

use slackwater_engine::operator::window::{WindowKind, Windows};

use crate::explain;
use crate::settings::Settings;
use crate::specs::NodeSpec;

/// Windows between which rows fall through.
pub fn gaps(nodes: &[NodeSpec]) -> Vec<String> {
    let windows = nodes.iter().filter_map(|spec| match spec {
        NodeSpec::Window { windows, .. } => Some(windows),
        _ => None,
    });
    let mut found = windows
        .filter(|windows| windows.kind == WindowKind::Aligned && windows.slide > windows.size)
        .map(gap)
        .collect::<Vec<String>>();
    // One text may make the same windows over several tables.
    found.sort();
    found.dedup();
    found
}

fn gap(windows: &Windows) -> String {
    format!(
        "{}: the slide is longer than the size, so rows between two windows are in none; HOP has the slide \
         first, then the size",
        explain::windows(windows)
    )
}

/// `state_ttl` beside results that are emitted at the end of the input: what is to come out may not be forgotten.
pub fn final_state(nodes: &[NodeSpec], settings: &Settings) -> Option<String> {
    settings.state_ttl_us?;
    let is_at_end = |spec: &NodeSpec| match spec {
        NodeSpec::Final(_) => true,
        NodeSpec::Aggregate { spec, .. } => spec.window.is_none() && spec.is_final(),
        _ => false,
    };
    nodes.iter().any(is_at_end).then(|| {
        "'state_ttl' does not count for results that are emitted when the inputs have ended (ORDER BY, LIMIT, \
         'emit' = 'final'): they are kept until then"
            .to_string()
    })
}

/// `'emit' = 'every …'` where nothing is emitted by it.
pub fn idle_emit(nodes: &[NodeSpec], settings: &Settings) -> Option<String> {
    settings.emit_every_ns?;
    let emits = |spec: &NodeSpec| match spec {
        NodeSpec::Aggregate { spec, .. } => spec
            .refires
            .as_ref()
            .is_some_and(|refires| refires.every_ns.is_some()),
        _ => false,
    };
    if nodes.is_empty() || nodes.iter().any(emits) {
        return None;
    }
    Some(
        "'emit' = 'every …' changes nothing here: by it windows are emitted before they close, and no window is \
         aggregated; what has no window emits its changes as they come"
            .to_string(),
    )
}
