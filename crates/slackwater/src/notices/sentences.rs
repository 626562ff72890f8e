//! The messages of notices.

use slackwater_connect::event_time_text;
use slackwater_engine::intake::{is_plausible, leaves};
use slackwater_sql::error::nearest;
use slackwater_sql::node::SourceSpec;

use super::{Kind, Moved, Noticed, Said};
use crate::report::{SourceReport, count};

/// The most names that a message shows.
const NAMES_SHOWN: usize = 20;

/// What is known about a source before it is read.
#[derive(Debug, Clone)]
pub(super) struct About {
    table: String,
    /// Columns that are matched by name in each record, with their numbers; empty if columns are matched by
    /// position.
    named: Vec<(usize, String)>,
    /// The table's columns in declaration order, if there is also a header that names them.
    placed: Vec<String>,
    event_time: Option<Time>,
}

#[derive(Debug, Clone)]
struct Time {
    column: String,
    delay_us: i64,
    /// The expression of the number from which the event time is computed, and the precision.
    counts: Option<(String, u32)>,
}

impl About {
    pub(super) fn of(source: &SourceSpec) -> About {
        let table = &source.table;
        let option = |name: &str| {
            table
                .options
                .get(name)
                .map(|value| value.to_ascii_lowercase())
        };
        let is_json = option("format").as_deref() == Some("json");
        let read = source.connector.schema().project(&source.projection);
        let named = read.map(|read| leaves(&read)).unwrap_or_default();
        let named = named
            .into_iter()
            .enumerate()
            .filter_map(|(number, (way, name))| {
                let is_metadata = table.metadata.contains_key(&source.projection[way[0]]);
                (is_json && !is_metadata).then_some((number, name))
            });
        let has_header = option("csv.header").as_deref() == Some("true");
        let placed = table.physical.fields().iter().filter(|_| has_header);
        let event_time = table.event_time.map(|(index, delay_us)| Time {
            column: table.schema.field(index).name().clone(),
            delay_us,
            counts: table.counted_time(),
        });
        About {
            table: table.name.clone(),
            named: named.collect(),
            placed: placed.map(|field| field.name().clone()).collect(),
            event_time,
        }
    }

    fn said(&self, kind: Kind, text: String) -> Said {
        Said {
            table: self.table.clone(),
            kind,
            text: format!("table '{}': {text}", self.table),
        }
    }

    /// Columns that were NULL in every row, because no record has a field of their name.
    pub(super) fn empty_columns(&self, noticed: &Noticed) -> Option<Said> {
        let is_field = |name: &str| noticed.fields.iter().any(|field| field == name);
        let mut missing: Vec<&str> = Vec::new();
        for (number, name) in &self.named {
            if noticed.filled.contains(number) {
                continue;
            }
            // If no record has a ROW, the ROW is reported and not each of its fields.
            let ends = name.match_indices('.').map(|(end, _)| &name[..end]);
            let missing_one = ends.chain([&name[..]]).find(|name| !is_field(name));
            if let Some(name) = missing_one.filter(|name| !missing.contains(name)) {
                missing.push(name);
            }
        }
        if missing.is_empty() || noticed.fields.is_empty() || noticed.rows == 0 {
            return None;
        }
        let columns = if missing.len() == 1 {
            "column"
        } else {
            "columns"
        };
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let quoted = |names: &[&str]| {
            let names = names.iter().map(|name| format!("'{name}'"));
            names.collect::<Vec<_>>().join(", ")
        };
        let near = missing.iter().filter_map(|name| {
            let other_case = |field: &&String| field.eq_ignore_ascii_case(name);
            let near = noticed.fields.iter().find(other_case).cloned();
            near.or_else(|| nearest(name, &noticed.fields))
        });
        let near = near.collect::<Vec<String>>();
        let near = near.iter().map(String::as_str).collect::<Vec<&str>>();
        let hint = match near.is_empty() {
            true => String::new(),
            false => format!("did you mean {}? ", quoted(&near)),
        };
        let text = format!(
            "{columns} {} {verb} NULL in all of the {} rows read: the records have no such field (names are \
             case-sensitive)\n  = {hint}the fields are: {}",
            quoted(&missing),
            count(noticed.rows),
            shortened(&noticed.fields),
        );
        Some(self.said(Kind::Columns, text))
    }

    /// A header that names the table's columns in another order.
    pub(super) fn header(&self, header: &[String]) -> Option<Said> {
        let elsewhere = self.placed.iter().enumerate().find_map(|(number, column)| {
            let is_it = |name: &String| name.eq_ignore_ascii_case(column);
            let is_here = header.get(number).is_some_and(is_it);
            let there = header.iter().position(is_it)?;
            (!is_here).then_some((column, number, there))
        });
        let (column, number, there) = elsewhere?;
        let text = format!(
            "column '{column}' is number {} in the declaration and number {} in the header: columns are \
             read by \
             position, not by name\n  = declare them in this order: {}",
            number + 1,
            there + 1,
            shortened(header)
        );
        Some(self.said(Kind::Header, text))
    }

    /// The notice about an implausible event time.
    pub(super) fn odd_time(&self, place: &str, time_us: i64) -> Said {
        let column = self.event_time.as_ref().map_or("", |time| &time.column[..]);
        let side = match time_us < YEAR_2000_US {
            true => "before 1980",
            false => "after 2099",
        };
        let text = format!(
            "column '{column}': the event time {} at {place} is {side}",
            event_time_text(time_us)
        );
        let counts = self
            .event_time
            .as_ref()
            .and_then(|time| time.counts.as_ref());
        let hint = match counts {
            Some((number, precision)) => match counted(number, *precision, time_us) {
                Some((meant, us)) => format!(
                    "\n  = TO_TIMESTAMP_LTZ({number}, {precision}) reads {}: as {meant} it is {}",
                    unit(*precision),
                    event_time_text(us)
                ),
                None => format!(
                    "\n  = TO_TIMESTAMP_LTZ({number}, {precision}) reads {}; precision 0 reads seconds, 3 \
                     milliseconds",
                    unit(*precision)
                ),
            },
            None => "\n  = a wrong event time moves the watermark or makes the row late; a row whose event \
                     time is NULL \
                     is rejected and moves nothing"
                .to_string(),
        };
        self.said(Kind::Time, text + &hint)
    }

    /// The notice that explains why so many rows were late.
    fn late(&self, noticed: &Noticed, rows_late: u64, rows_in: u64) -> Said {
        let delay_us = self.event_time.as_ref().map_or(0, |time| time.delay_us);
        let column = self.event_time.as_ref().map_or("", |time| &time.column[..]);
        let percent = rows_late as f64 / rows_in.max(1) as f64 * 100.0;
        let mut text = match rows_late <= rows_in {
            true => format!(
                "{} of {} rows were late ({percent:.0} %)",
                count(rows_late),
                count(rows_in)
            ),
            // Rows are counted once for each window function.
            false => format!(
                "{} rows were late {} times",
                count(rows_in),
                count(rows_late)
            ),
        };
        let behind_us = noticed.behind_us.saturating_add(delay_us);
        let jump = noticed.jump.as_ref();
        // The cause is one row that was far ahead, or many rows that were out of order. A jump can be the
        // cause only if it is about as long as the latest row was late.
        let is_one = jump.is_some_and(|jump| jump.by_us() >= behind_us / 10 * 9);
        let one = match (jump, &noticed.first) {
            (Some(jump), _) if is_one => Some(jump),
            (None, Some(first)) => Some(first),
            _ => None,
        };
        let longer = span(round_up(behind_us));
        match one {
            Some(Moved {
                place,
                from_us: Some(from_us),
                to_us,
            }) => text.push_str(&format!(
                ": the watermark jumped by {} at {place}, from {} to {}",
                span(to_us - from_us),
                event_time_text(from_us - delay_us),
                event_time_text(to_us - delay_us)
            )),
            Some(Moved { place, to_us, .. }) => text.push_str(&format!(
                ": the first row, at {place}, has the largest event time, {}",
                event_time_text(*to_us)
            )),
            None => text.push_str(&format!(
                ": rows came up to {longer} after rows with larger event times, but the watermark waits \
                 only {}",
                span(delay_us)
            )),
        }
        let far = one.filter(|one| !is_plausible(one.to_us) || behind_us > FAR_US);
        text.push_str(&match far {
            Some(_) => format!(
                "\n  = if that time is wrong, make it NULL, so that the row is rejected and moves nothing: \
                 {column} \
                 AS CASE WHEN … THEN … END"
            ),
            None => format!(
                "\n  = a longer delay keeps them: WATERMARK FOR {column} AS {column} - INTERVAL {}",
                interval(round_up(behind_us))
            ),
        });
        self.said(Kind::Late, text)
    }
}

const YEAR_2000_US: i64 = 946_684_800_000_000;

/// A larger delay of the watermark is not suggested: 30 days.
const FAR_US: i64 = 30 * DAY_US;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// Units of time spans, with their names in INTERVAL.
const UNITS: [(i64, &str, &str); 6] = [
    (365 * DAY_US, "years", "DAY"),
    (DAY_US, "days", "DAY"),
    (3_600 * SECOND_US, "hours", "HOUR"),
    (60 * SECOND_US, "minutes", "MINUTE"),
    (SECOND_US, "s", "SECOND"),
    (1_000, "ms", "SECOND"),
];

fn span(us: i64) -> String {
    let unit = UNITS.iter().find(|(unit_us, ..)| us >= *unit_us);
    let Some((unit_us, name, _)) = unit else {
        return format!("{us} us");
    };
    let value = format!("{:.1}", us as f64 / *unit_us as f64);
    let value = value.trim_end_matches(".0");
    let name = if value == "1" {
        name.trim_end_matches('s')
    } else {
        name
    };
    // The name of the second is one letter.
    let name = if name.is_empty() { "s" } else { name };
    format!("{value} {name}")
}

/// The span rounded up to a whole number of a unit.
fn round_up(us: i64) -> i64 {
    let units = UNITS[1..].iter();
    let mut units = units.filter(|(unit_us, ..)| us >= *unit_us);
    let unit_us = units.next().map_or(1_000, |(unit_us, ..)| *unit_us);
    us.saturating_add(unit_us - 1) / unit_us * unit_us
}

fn interval(us: i64) -> String {
    let mut units = UNITS[1..].iter().filter(|(unit_us, ..)| us >= *unit_us);
    match units.next() {
        Some((unit_us, _, name)) if *unit_us >= SECOND_US => {
            format!("'{}' {name}", us / unit_us)
        }
        _ => format!("'{}' SECOND", us as f64 / SECOND_US as f64),
    }
}

fn shortened(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMES_SHOWN)].join(", ");
    if names.len() > NAMES_SHOWN {
        text.push_str(", …");
    }
    text
}

fn unit(precision: u32) -> &'static str {
    match precision {
        0 => "seconds",
        3 => "milliseconds",
        6 => "microseconds",
        _ => "nanoseconds",
    }
}

/// The most likely meaning of the number behind an implausible time: how to write it, and the resulting time.
fn counted(number: &str, precision: u32, time_us: i64) -> Option<(String, i64)> {
    let count = i128::from(time_us) * 10i128.pow(precision) / 1_000_000;
    [0, 3, 6, 9].into_iter().find_map(|meant| {
        let us = i64::try_from(count * 1_000_000 / 10i128.pow(meant)).ok()?;
        let is_meant = meant != precision && is_plausible(us);
        is_meant.then(|| (format!("TO_TIMESTAMP_LTZ({number}, {meant})"), us))
    })
}

/// The notice about columns without a field, for a source that has ended.
pub fn empty_columns(source: &SourceSpec, noticed: &Noticed) -> Option<Said> {
    About::of(source).empty_columns(noticed)
}

/// Late rows are explained if they are at least one in this many.
const LATE_ONE_IN: u64 = 10;

/// Fewer late rows than this are not explained.
const LATE_LEAST: u64 = 3;

/// The notice about late rows of a source; `None` if there were few.
pub fn late(source: &SourceSpec, noticed: &Noticed, report: &SourceReport) -> Option<Said> {
    let is_many =
        report.rows_late >= LATE_LEAST && report.rows_late * LATE_ONE_IN >= report.rows_in;
    is_many.then(|| About::of(source).late(noticed, report.rows_late, report.rows_in))
}

#[cfg(test)]
mod tests;
