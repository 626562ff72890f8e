//! The figures as text.

use slackwater::measure::order::{Pattern, Waiting};
use slackwater::report::count;

use super::figures::{Figures, Measured};
use crate::lab::Table;

/// Medians over rounds: one line for each size and kind, polling and by interrupt.
pub fn text(figures: &Figures) -> String {
    let floor = &figures.floor;
    let (line, copy) = (floor.line_one_way_ns, floor.copy_gb_per_s);
    let mut text = format!(
        "links: sender on core {}, receiver on core {}; {} round(s), {} ms a point, medians\n\
         floor: a cache line one way {:.0} ns ({:.0} to {:.0}), \
         a copy in memory {:.2} GB/s ({:.2} to {:.2}), one reading of the clock {:.0} ns\n",
        figures.cores.leader,
        figures.cores.follower,
        figures.rounds,
        figures.point_ms,
        line.median,
        line.min,
        line.max,
        copy.median,
        copy.min,
        copy.max,
        floor.clock_ns.median,
    );
    for (waiting, title) in [
        (Waiting::Poll, "both sides poll"),
        (Waiting::Interrupt, "both sides wait by interrupt"),
    ] {
        text.push_str(&format!("\n{title}\n{}", table(figures, waiting).columns()));
    }
    text.push_str(
        "\nLatencies are one way: half of a round trip, each timed separately, one reading of the clock\n\
         included. The receiver reads every cache line. CPU time (ns per message, s per GB) and\n\
         throughput are those of the stream, one way.\n",
    );
    text
}

fn table(figures: &Figures, waiting: Waiting) -> Table {
    let latency = ["bytes", "kind", "p50 us", "p99 us", "p99.9 us"];
    let flow = [
        "messages/s",
        "GB/s",
        "send ns",
        "receive ns",
        "send s",
        "recv s",
    ];
    let mut table = Table::new(latency.into_iter().chain(flow));
    let points_of = |pattern| {
        let points = figures.points.iter();
        points.filter(move |measured: &&Measured| {
            (measured.point.waiting, measured.point.pattern) == (waiting, pattern)
        })
    };
    let mut last = 0;
    for (round_trip, stream) in points_of(Pattern::PingPong).zip(points_of(Pattern::Stream)) {
        let size = round_trip.point.size_bytes;
        if last != size {
            table.gap();
        }
        last = size;
        table.line(cells(round_trip, stream));
    }
    table
}

fn cells(round_trip: &Measured, stream: &Measured) -> Vec<String> {
    let point = &round_trip.point;
    let mut cells = vec![count(point.size_bytes as u64), point.kind.clone()];
    match &round_trip.latency {
        Some(latency) => {
            let quantiles = [latency.p50_ns, latency.p99_ns, latency.p999_ns];
            cells.extend(quantiles.map(|spread| format!("{:.3}", spread.median / 1e3)));
        }
        None => cells.extend(["-"; 3].map(str::to_string)),
    }
    match &stream.flow {
        Some(flow) => cells.extend([
            count(flow.messages_per_s.median as u64),
            format!("{:.3}", flow.gb_per_s.median),
            count(flow.sender_cpu_ns_per_message.median as u64),
            count(flow.receiver_cpu_ns_per_message.median as u64),
            format!("{:.3}", flow.sender_cpu_s_per_gb.median),
            format!("{:.3}", flow.receiver_cpu_s_per_gb.median),
        ]),
        None => {
            let reason = stream.unsupported.as_deref().unwrap_or("not measured");
            cells.extend(["-"; 6].map(str::to_string));
            cells.push(reason.to_string());
        }
    }
    cells
}
