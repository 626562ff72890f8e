//! The figures as a table.

use super::sources::Examined;
use super::spans::span;
use crate::report::{BehindReport, PartitionReport, count};
use crate::terminal::aligned;

/// The most partitions of a table that are shown: a screen.
const PARTITIONS_SHOWN: usize = 20;

const TITLES: [&str; 8] = [
    "partition",
    "state",
    "rows",
    "late",
    "last row",
    "watermark",
    "behind (p50, p99, p99.9, max)",
    "",
];

/// The sentences and the figures of each table.
pub fn text<'a>(diagnosis: &[String], sources: impl Iterator<Item = &'a Examined>) -> String {
    let mut text = String::new();
    for sentence in diagnosis {
        text.push_str(&format!("{sentence}\n"));
    }
    for source in sources {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&of_source(source));
    }
    text
}

fn of_source(source: &Examined) -> String {
    let mut text = format!("table '{}'", source.table);
    if let Some(time) = &source.event_time {
        let delay = span(time.delay_us.unsigned_abs());
        text.push_str(&format!(
            ": the watermark is {delay} behind {}",
            time.column
        ));
        if let Some(timeout) = &time.idle_timeout {
            text.push_str(&format!(", idle after {timeout}"));
        }
    }
    text.push('\n');
    let mut shown = source.partitions.iter().collect::<Vec<&PartitionReport>>();
    shown.sort_by_key(|partition| (!partition.holds_back, u64::MAX - partition.rows_late));
    let rows = shown
        .iter()
        .take(PARTITIONS_SHOWN)
        .map(|partition| row(partition, source.event_time.is_some()));
    match shown.is_empty() {
        true => text.push_str("  no partition yet\n"),
        false => text.push_str(&aligned(&TITLES, &rows.collect::<Vec<_>>())),
    }
    if shown.len() > PARTITIONS_SHOWN {
        let more = count((shown.len() - PARTITIONS_SHOWN) as u64);
        text.push_str(&format!("  and {more} more partitions\n"));
    }
    for late in source.event_time.iter().flat_map(|time| &time.late_for) {
        if late.rows_late == 0 {
            continue;
        }
        let edges = match (&late.first, &late.last) {
            (Some(first), Some(last)) => format!(", between {first} and {last}"),
            _ => String::new(),
        };
        text.push_str(&format!(
            "  {} rows late for {}{edges}: {} would have kept all\n",
            count(late.rows_late),
            late.operator,
            span(late.delay_max_us.unsigned_abs())
        ));
    }
    text
}

fn quantiles(behind: &BehindReport) -> String {
    let us = [
        behind.p50_us,
        behind.p99_us,
        behind.p999_us,
        behind.max_us.unsigned_abs(),
    ];
    match behind.rows {
        0 => "0".to_string(),
        _ => us.map(span).join(", "),
    }
}

fn row(partition: &PartitionReport, has_time: bool) -> Vec<String> {
    let name = match (&partition.name[..], partition.partition) {
        (_, None) => "all that have ended".to_string(),
        ("", Some(number)) => number.to_string(),
        (name, _) => name.to_string(),
    };
    let (behind, late) = match &partition.behind {
        None if has_time => ("not counted".to_string(), String::new()),
        None => (String::new(), String::new()),
        Some(behind) => (quantiles(behind), count(partition.rows_late)),
    };
    let last = match (&partition.last_row, partition.silent_s) {
        (Some(at), _) => at.clone(),
        (None, Some(silent_s)) => format!("none for {}", span((silent_s * 1e6) as u64)),
        (None, None) => String::new(),
    };
    vec![
        name,
        partition.state.clone(),
        count(partition.rows),
        late,
        last,
        partition.watermark.clone().unwrap_or("none".to_string()),
        behind,
        if partition.holds_back {
            "holds the others back"
        } else {
            ""
        }
        .to_string(),
    ]
}
