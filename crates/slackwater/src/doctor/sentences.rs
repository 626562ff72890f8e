//! What the figures mean: which partition holds the others back, and which settings would have kept rows.

use std::collections::BTreeSet;

use slackwater_connect::event_time_text;
use slackwater_engine::intake::State;
use slackwater_engine::time::EventTime;

use super::sources::{Examined, Source};
use super::spans::span;
use crate::report::{EventTimeReport, ProposalReport, count};

/// A partition that is silent for longer than this is worth a hint: a second.
const SILENT_NS: u64 = 1_000_000_000;

/// A delay is too long if one of this share of it would keep nearly all rows: a half.
const MUCH_SHORTER: u64 = 2;

/// Where a partition stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The source's number, and the partition's.
    at: (usize, usize),
    state: State,
    /// `None` before its first row, which is before all others.
    watermark: Option<EventTime>,
}

/// Where the partitions of sources stand that wait for each other.
pub struct Standing<'a> {
    sources: &'a [Source<'a>],
    group: &'a BTreeSet<usize>,
    places: Vec<Place>,
    now_ns: u64,
}

impl<'a> Standing<'a> {
    /// Where the partitions of the sources of `group` stand.
    pub(super) fn of(
        sources: &'a [Source<'a>],
        group: &'a BTreeSet<usize>,
        now_ns: u64,
    ) -> Standing<'a> {
        let mut places = Vec::new();
        for &number in group {
            let source = &sources[number];
            if source.spec.event_time.is_none() {
                continue;
            }
            let seen = source.seen.iter().enumerate();
            let seen = seen.filter(|(_, partition)| partition.partition.is_some());
            places.extend(seen.map(|(at, partition)| Place {
                at: (number, at),
                state: partition.state,
                watermark: partition.watermark,
            }));
        }
        Standing {
            sources,
            group,
            places,
            now_ns,
        }
    }

    /// The active partition whose watermark is the least; of several, the one that was silent for longest.
    fn least(&self) -> Option<Place> {
        let active = self
            .places
            .iter()
            .filter(|place| place.state == State::Active);
        let least = active.min_by_key(|place| (place.watermark, u64::MAX - self.silent_ns(place)));
        least.copied()
    }

    /// The partition that holds others back: the source's number, and the partition's.
    pub fn holder(&self) -> Option<(usize, usize)> {
        let least = self.least()?;
        self.next_ahead(&least).map(|_| least.at)
    }

    /// Of the partitions that are ahead, the least.
    fn next_ahead(&self, least: &Place) -> Option<Place> {
        let ahead = self
            .places
            .iter()
            .filter(|place| place.watermark > least.watermark);
        ahead.min_by_key(|place| place.watermark).copied()
    }

    fn silent_ns(&self, place: &Place) -> u64 {
        let seen = &self.sources[place.at.0].seen[place.at.1];
        let since_ns = seen.last_row_ns.unwrap_or(seen.since_ns);
        self.now_ns.saturating_sub(since_ns)
    }

    /// How a partition is called.
    fn name(&self, place: &Place) -> String {
        let source = &self.sources[place.at.0];
        let table = &source.spec.table.name;
        let (partition, of) = (&source.seen[place.at.1], source.seen.len());
        match (of, partition.name.as_str(), partition.partition) {
            (1, ..) => format!("table '{table}'"),
            (_, "", Some(number)) => format!("partition {number} of table '{table}'"),
            (_, name, _) => format!("partition '{name}' of table '{table}'"),
        }
    }

    /// Why no window closes now; `None` if there is nothing to say: the inputs have ended, or the query has
    /// no event time.
    pub fn sentence(&self) -> Option<String> {
        let Some(least) = self.least() else {
            return self.of_nobody();
        };
        let name = self.name(&least);
        let seen = &self.sources[least.at.0].seen[least.at.1];
        let silent_ns = self.silent_ns(&least);
        let silent = span(silent_ns / 1_000);
        let last = match seen.last_row_ns {
            Some(_) => format!("its last row came {silent} ago"),
            None => format!("no row has come from it for {silent}"),
        };
        let equals = self.places.iter();
        let equals = equals
            .filter(|place| place.state == State::Active && place.watermark == least.watermark);
        let more = match equals.count() - 1 {
            0 => String::new(),
            1 => " (and another one like it)".to_string(),
            more => format!(" (and {more} others like it)"),
        };
        let mut text = match (least.watermark, self.next_ahead(&least)) {
            (None, Some(_)) => format!(
                "{name}{more} holds the others back: no row has come from it for {silent}, so no window \
                 closes"
            ),
            (None, None) => format!(
                "no row has come from {name}{more} for {silent}: without rows there is no watermark, and \
                 no window closes"
            ),
            (Some(time), Some(next)) => {
                let by_us = next.watermark.map_or(0, |next| next.saturating_sub(time));
                format!(
                    "{name}{more} holds the others back: its watermark, {}, is {} behind the next one; \
                     {last}",
                    event_time_text(time),
                    span(by_us.unsigned_abs()),
                )
            }
            (Some(time), None) => {
                let delay_us = self.delay_us(&least);
                format!(
                    "{name}{more}: the watermark is {}, and windows that end later wait for a row of {} or \
                     later; {last}",
                    event_time_text(time),
                    event_time_text(time.saturating_add(delay_us)),
                )
            }
        };
        let is_hinted = silent_ns >= SILENT_NS && self.next_ahead(&least).is_some();
        let table = &self.sources[least.at.0].spec.table;
        if is_hinted && !table.options.contains_key("idle_timeout") {
            text.push_str(&format!(
                "\n  = with 'idle_timeout' = '5 s' in the options of '{}' the others go on without it after \
                 5 s",
                table.name
            ));
        }
        Some(text)
    }

    fn delay_us(&self, place: &Place) -> i64 {
        let spec = self.sources[place.at.0].spec.event_time;
        spec.map_or(0, |spec| spec.delay_us)
    }

    /// The sentence if no partition is active.
    fn of_nobody(&self) -> Option<String> {
        let mut own = self.group.iter().map(|&number| &self.sources[number]);
        let silent = own.find(|source| {
            source.has_begun && source.seen.is_empty() && source.spec.event_time.is_some()
        });
        if let Some(source) = silent {
            let (table, connector) = (&source.spec.table.name, source.spec.connector.describe());
            return Some(format!(
                "nothing has come from table '{table}' ({}): it has no connection and no partition yet",
                connector.connector
            ));
        }
        let mut idle = self
            .places
            .iter()
            .filter(|place| place.state == State::Idle);
        let first = idle.next()?;
        let table = &self.sources[first.at.0].spec.table;
        let timeout = table.options.get("idle_timeout").map_or("", String::as_str);
        Some(format!(
            "no partition holds the others back: those that have not ended were silent for longer than \
             'idle_timeout' ('{timeout}' of table '{}'), and no window closes before a row comes",
            table.name
        ))
    }
}

/// The settings that would have kept most of the rows that were late, or that would be enough.
pub(super) fn of_late_rows(source: &Examined) -> Vec<String> {
    let Some(time) = &source.event_time else {
        return Vec::new();
    };
    let late = by_delay(&source.table, time);
    late.into_iter()
        .chain(by_silence(&source.table, time))
        .collect()
}

fn by_delay(table: &str, time: &EventTimeReport) -> Option<String> {
    let delay_us = time.delay_us.unsigned_abs();
    let by_delay = time.rows_late - time.rows_late_by_start;
    let enough = time.proposals.last()?;
    if by_delay == 0 {
        let is_shorter = enough.us.saturating_mul(MUCH_SHORTER) <= delay_us && delay_us > 0;
        return is_shorter.then(|| {
            format!(
                "table '{table}': no row was late by the watermark's delay of {}; {} would have kept {} % of \
                 the rows ({} late), and results would come {} of event time earlier",
                span(delay_us),
                enough.setting,
                enough.keep_percent,
                count(enough.rows_late),
                span(delay_us - enough.us),
            )
        });
    }
    let said = time
        .proposals
        .iter()
        .map(|proposal| match proposal.us <= delay_us {
            true => format!("{} % are kept as it is", proposal.keep_percent),
            false => would_have_kept(proposal),
        });
    let percent = by_delay as f64 / time.rows.max(1) as f64 * 100.0;
    Some(format!(
        "table '{table}': {} of {} rows ({percent:.2} %) were late, with a delay of {}: {}",
        count(by_delay),
        count(time.rows),
        span(delay_us),
        said.collect::<Vec<String>>().join("; ")
    ))
}

fn would_have_kept(proposal: &ProposalReport) -> String {
    format!(
        "{} would have kept {} % ({} late)",
        proposal.setting,
        proposal.keep_percent,
        count(proposal.rows_late)
    )
}

fn by_silence(table: &str, time: &EventTimeReport) -> Option<String> {
    if time.rows_late_by_start == 0 {
        return None;
    }
    let rows = count(time.rows_late_by_start);
    let text = format!(
        "table '{table}': {rows} rows were late because their partition appeared, or returned after a \
         silence, when the others had gone on"
    );
    let kept = time.idle_proposals.iter().map(would_have_kept);
    let kept = kept.collect::<Vec<String>>();
    Some(match kept.is_empty() {
        true => text,
        false => format!("{text}: {}", kept.join("; ")),
    })
}
