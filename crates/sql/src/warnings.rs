//! Warnings about queries that are valid, but most likely not as intended.

use std::collections::{BTreeMap, BTreeSet};

use slackwater_engine::operator::window::{WindowKind, Windows};
use slackwater_engine::runtime::WaitMode;
use slackwater_engine::time::parse_duration_ns;
use sqlparser::tokenizer::Span;

use crate::error::{Place, SqlError};
use crate::explain;
use crate::node::{Emission, NodeSpec};
use crate::settings::Settings;
use crate::table::Table;

/// Windows with gaps between them, into which rows fall.
pub fn gaps(nodes: &[NodeSpec]) -> Vec<String> {
    let windows = nodes.iter().filter_map(|spec| spec.facts().assigns);
    let mut found = windows
        .filter(|windows| windows.kind == WindowKind::Aligned && windows.slide > windows.size)
        .map(|windows| gap(&windows))
        .collect::<Vec<String>>();
    // Several tables may have the same windows.
    found.sort();
    found.dedup();
    found
}

fn gap(windows: &Windows) -> String {
    format!(
        "{}: the slide is longer than the size, so rows between two windows are in no window; the first \
        argument of HOP is the slide, the second is the size",
        explain::windows(windows)
    )
}

/// A warning about `state_ttl` and results that are emitted at the end of the input, which must not be
/// discarded.
pub fn final_state(nodes: &[NodeSpec], settings: &Settings) -> Option<String> {
    settings.state_ttl_us?;
    let is_at_end = |spec: &NodeSpec| spec.facts().emission == Emission::AtEnd;
    nodes.iter().any(is_at_end).then(|| {
        "'state_ttl' has no effect on results that are emitted when the inputs have ended (ORDER BY, LIMIT, \
        'emit' = 'final'): they are kept until then"
            .to_string()
    })
}

/// A warning about `'emit' = 'every …'` without any window that it applies to.
pub fn idle_emit(nodes: &[NodeSpec], settings: &Settings) -> Option<String> {
    settings.emit_every_ns?;
    let emits = |spec: &NodeSpec| spec.facts().emission == Emission::OnTimer;
    if nodes.is_empty() || nodes.iter().any(emits) {
        return None;
    }
    Some(
        "'emit' = 'every …' has no effect: it applies to aggregates in windows, and there are none; other \
        results are emitted when they change"
            .to_string(),
    )
}

/// Two parts of a program that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// The message, with `{0}` and `{1}` for the two places.
    pub text: String,
    /// The two places; `None` for the command line.
    pub places: [Option<Place>; 2],
}

/// The latency target of a sink, and its place.
#[derive(Debug, Clone)]
pub struct Target {
    /// The target in nanoseconds.
    pub target_ns: u64,
    place: Option<Place>,
}

/// The places where settings are set; those of the command line are not included.
pub type SetAt = BTreeMap<String, Span>;

fn place(span: Option<&Span>) -> Option<Place> {
    SqlError::new("").at(*span?).place
}

impl Target {
    /// Where the target of a sink is set: [`Settings::target_of_sink`] looks in the same order.
    pub fn of(
        target_ns: u64,
        settings: &Settings,
        set_at: &SetAt,
        table: Option<&Table>,
        views: &BTreeSet<String>,
    ) -> Target {
        let setting = |name: &str| place(set_at.get(&format!("latency_target.{name}")));
        let is_of = |name: &&String| settings.latency_targets.get(*name) == Some(&Some(target_ns));
        let own = table.filter(|table| settings.latency_targets.contains_key(&table.name));
        let option = table.and_then(|table| table.option_places.get("latency_target"));
        let place = match (own, option, views.iter().find(is_of)) {
            (Some(table), ..) => setting(&table.name),
            (None, Some(option), _) => place(Some(option)),
            (None, None, Some(view)) => setting(view),
            (None, None, None) => place(set_at.get("latency_target")),
        };
        Target { target_ns, place }
    }
}

fn ms(ns: u64) -> String {
    format!("{} ms", ns as f64 / 1e6)
}

/// Settings that let rows wait longer than a latency target allows, or that have no effect with a target.
pub fn conflicts_with_targets(
    nodes: &[NodeSpec],
    targets: &[Target],
    settings: &Settings,
    set_at: &SetAt,
) -> Vec<Clash> {
    let Some(tightest) = targets.iter().min_by_key(|target| target.target_ns) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut clash = |own: Option<Place>, target: &Target, text: String| {
        let places = [own, target.place];
        found.push(Clash { text, places });
    };
    // A tenth of the target is left for the processing itself.
    let breaks = |ns: u64, target: &Target| ns as f64 > target.target_ns as f64 * 0.9;
    let setting = |name: &str| place(set_at.get(name));
    let too_long = |what: &str, ns: u64, target: &Target| {
        format!(
            "{what} at {{0}} lets rows wait for up to {}, so the latency target of {} at {{1}} can't be met",
            ms(ns),
            ms(target.target_ns)
        )
    };
    if settings.linger_set && breaks(settings.linger_ns, tightest) {
        let text = too_long("'linger'", settings.linger_ns, tightest)
            + "\n  = remove 'linger': the target decides how long sources collect rows";
        clash(setting("linger"), tightest, text);
    }
    if let WaitMode::Sleep(time) = settings.wait
        && breaks(time.as_nanos() as u64, tightest)
    {
        let text = too_long("'wait'", time.as_nanos() as u64, tightest)
            + "\n  = remove 'wait': the target decides how workers wait";
        clash(setting("wait"), tightest, text);
    }
    let sinks = nodes.iter().filter(|node| node.is_sink());
    let has_delay = settings.wait_delay_set && matches!(settings.wait, WaitMode::Auto { .. });
    if has_delay && sinks.count() == targets.len() {
        let text = format!(
            "'wait_delay' = '{}' at {{0}} has no effect: the latency target of {} at {{1}} decides how long \
            workers wait",
            ms(settings.wait_delay_ns),
            ms(tightest.target_ns)
        );
        clash(setting("wait_delay"), tightest, text);
    }
    for sink in nodes.iter().filter_map(NodeSpec::as_sink) {
        let (Some(table), Some(target_ns)) = (&sink.table, sink.latency_target_ns) else {
            continue;
        };
        for &name in sink.connector.capabilities().client_waits_ms {
            let value = table.options.get(name);
            let ns = value.and_then(|value| parse_duration_ns(&format!("{value} ms")));
            let own = targets.iter().find(|target| target.target_ns == target_ns);
            if let (Some(ns), Some(target)) = (ns, own)
                && breaks(ns, target)
            {
                let text = format!(
                    "table '{}': '{name}' at {{0}} lets rows wait in the producer for {}, longer than the \
                    latency \
                    target of {} at {{1}}: this wait is not part of the measured latency",
                    table.name,
                    ms(ns),
                    ms(target_ns)
                );
                clash(place(table.option_places.get(name)), target, text);
            }
        }
    }
    found
}
