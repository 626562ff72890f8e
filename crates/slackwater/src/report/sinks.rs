//! The lines of the summary about single tables: late and bad rows, parsers, latencies and targets.

use super::{Report, SinkReport, SourceReport, count};

/// The late and bad rows of each table with any; `None` if there is only one table.
pub(super) fn by_table(sources: &[SourceReport]) -> Option<String> {
    let has_any = |source: &&SourceReport| source.rows_late + source.rows_bad > 0;
    let tables = sources.iter().filter(has_any).map(|source| {
        let numbers = [(source.rows_late, "late"), (source.rows_bad, "bad")].into_iter();
        let numbers = numbers.filter(|(number, _)| *number > 0);
        let numbers = numbers.map(|(number, what)| format!("{} {what}", count(number)));
        let numbers = numbers.collect::<Vec<_>>().join(" and ");
        format!("{numbers} of {} in {}", count(source.rows_in), source.table)
    });
    let tables = tables.collect::<Vec<_>>();
    (sources.len() > 1 && !tables.is_empty()).then(|| tables.join("; "))
}

fn name_of(sink: &SinkReport) -> &str {
    sink.table.as_deref().unwrap_or("the terminal")
}

/// How a sink met its target; `None` without a target.
fn kept(sink: &SinkReport) -> Option<String> {
    let target = sink.latency_target_ms?;
    let verdict = match sink.target_met {
        Some(true) => "met",
        Some(false) => "missed",
        None if sink.latency_target_changes > 0 => "changed while the query ran",
        None => {
            return Some(format!(
                "{target} ms for 99 of 100 rows: no rows to measure"
            ));
        }
    };
    Some(format!(
        "{target} ms for 99 of 100 rows: {verdict}, late in {:.1} of {:.1} s",
        sink.violated_s.unwrap_or(0.0),
        sink.active_s.unwrap_or(0.0)
    ))
}

/// The lines about sinks, and about what made rows late if a target was missed.
pub(super) fn lines(report: &Report) -> Vec<(&'static str, String)> {
    let parsers = report.sources.iter().filter_map(SourceReport::parsers_line);
    let mut lines = parsers.map(|line| ("parsers", line)).collect::<Vec<_>>();
    lines.extend(of_sinks(report));
    let tuning = report.plan.tuning.as_ref();
    if report.target_met == Some(false)
        && let Some(lateness) = tuning.and_then(|tuning| tuning.lateness)
    {
        lines.push(("late", lateness.line()));
    }
    lines.extend(tuning.and_then(|tuning| Some(("host", tuning.unseen()?))));
    lines
}

/// The lines about sinks: with several sinks, one for each and one for all.
fn of_sinks(report: &Report) -> Vec<(&'static str, String)> {
    let how = report
        .plan
        .tuning
        .as_ref()
        .filter(|tuning| tuning.chooses_wait)
        .map(|tuning| match tuning.delay_ms {
            0.0 => "with interrupts at the end".to_string(),
            ms => format!("with sleeps of up to {ms:.2} ms at the end"),
        });
    if let [sink] = &report.sinks[..] {
        let kept = kept(sink).map(|kept| match how {
            Some(how) => format!("{kept}, {how}"),
            None => kept,
        });
        return kept.map(|kept| ("target", kept)).into_iter().collect();
    }
    let of_each = report.sinks.iter().map(|sink| {
        let target = match kept(sink) {
            Some(kept) => format!("target {kept}"),
            None => "no target".to_string(),
        };
        let shown = match sink.rows_out {
            0 => "no rows".to_string(),
            rows => format!("{} rows, {}", count(rows), sink.latency_ms.shown()),
        };
        ("sink", format!("{}: {shown}; {target}", name_of(sink)))
    });
    let mut lines = of_each.collect::<Vec<_>>();
    if report.latency_target_ms.is_some() {
        let missed = report
            .sinks
            .iter()
            .filter(|sink| sink.target_met == Some(false));
        let missed = missed.map(name_of).collect::<Vec<_>>();
        let verdict = match missed.is_empty() {
            true => "met by every sink".to_string(),
            false => format!("missed by {}", missed.join(", ")),
        };
        let how = how.map_or(String::new(), |how| format!("; the tightest one {how}"));
        lines.push(("targets", format!("{verdict}{how}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latency;

    fn source(table: &str, rows_late: u64, rows_bad: u64) -> SourceReport {
        SourceReport {
            table: table.to_string(),
            connector: "file".to_string(),
            rows_in: 1_000,
            rows_late,
            rows_bad,
            bytes_read: 0,
            connections_lost: 0,
            parsers: None,
            dead_letter: None,
            event_time: None,
            partitions: Vec::new(),
        }
    }

    #[test]
    fn late_and_bad_rows_are_told_by_table_where_there_are_several() {
        let all = [source("a", 12, 1), source("b", 0, 0), source("c", 0, 3)];
        let shown = by_table(&all).unwrap();
        assert_eq!(
            shown,
            "12 late and 1 bad of 1,000 in a; 3 bad of 1,000 in c"
        );
        assert_eq!(by_table(&all[..1]), None);
        assert_eq!(by_table(&all[1..2]), None);
    }

    #[test]
    fn a_sink_says_how_it_kept_its_own_target() {
        let sink = SinkReport {
            table: Some("o".to_string()),
            connector: "blackhole".to_string(),
            rows_out: 5,
            connections_lost: 0,
            latency_target_ms: Some(20.0),
            latency_target_changes: 0,
            target_met: Some(false),
            active_s: Some(6.25),
            violated_s: Some(1.0),
            latency_ms: Latency {
                p50: Some(1.0),
                p99: Some(30.0),
                p999: Some(31.0),
                max: Some(32.0),
                count: 5,
            },
        };
        assert_eq!(
            kept(&sink).unwrap(),
            "20 ms for 99 of 100 rows: missed, late in 1.0 of 6.2 s"
        );
        let changed = SinkReport {
            latency_target_changes: 2,
            target_met: None,
            ..sink
        };
        assert_eq!(
            kept(&changed).unwrap(),
            "20 ms for 99 of 100 rows: changed while the query ran, late in 1.0 of 6.2 s"
        );
    }
}
