//! The figures as people read them.

use super::figures::{Figures, Goal, Measured};
use slackwater::measure::order::{Pattern, Waiting};
use slackwater::report::count;

/// Medians over rounds: one line for each size and kind, polling and by interrupt.
pub fn table(figures: &Figures) -> String {
    let loads = |loads: [f64; 3]| loads.map(|load| format!("{load:.2}")).join(" ");
    let mut text = format!(
        "links: {}\nsender on core {}, receiver on core {}; {} round(s), {} ms a point, medians; \
         load before {}, after {}\n",
        figures.host.describe(),
        figures.cores.leader,
        figures.cores.follower,
        figures.rounds,
        figures.point_ms,
        loads(figures.load_before),
        loads(figures.load_after),
    );
    let floor = &figures.floor;
    text.push_str(&format!(
        "floor: a cache line one way {:.0} ns ({:.0} to {:.0}), a copy in memory {:.2} GB/s ({:.2} \
         to {:.2}), one reading of the clock {:.0} ns\n",
        floor.line_one_way_ns.median,
        floor.line_one_way_ns.min,
        floor.line_one_way_ns.max,
        floor.copy_gb_per_s.median,
        floor.copy_gb_per_s.min,
        floor.copy_gb_per_s.max,
        floor.clock_ns.median,
    ));
    for (waiting, title) in [
        (Waiting::Poll, "both sides poll"),
        (Waiting::Interrupt, "both sides wait by interrupt"),
    ] {
        text.push_str(&format!(
            "\n{title:<30}    one way us                        throughput         CPU ns/message    \
             CPU s/GB\n\
             {:>9} {:<15} {:>9} {:>9} {:>10} {:>12} {:>8} {:>9} {:>9} {:>6} {:>6}\n",
            "bytes", "kind", "p50", "p99", "p99.9", "messages/s", "GB/s", "send", "receive", "send",
            "recv"
        ));
        let of = |pattern| {
            let points = figures.points.iter();
            points.filter(move |measured: &&Measured| {
                (measured.point.waiting, measured.point.pattern) == (waiting, pattern)
            })
        };
        let mut last = 0;
        for (round_trip, stream) in of(Pattern::PingPong).zip(of(Pattern::Stream)) {
            let size = round_trip.point.size_bytes;
            if last != 0 && last != size {
                text.push('\n');
            }
            last = size;
            text.push_str(&line(round_trip, stream));
        }
    }
    text.push_str(
        "\nOne way is half of a round trip, each timed by itself, one reading of the clock included. \
         Whoever\nreceives reads every cache line. CPU time and throughput are those of the stream, \
         one way.\n\n",
    );
    for goal in &figures.goals {
        text.push_str(&verdict(goal));
    }
    text
}

fn line(round_trip: &Measured, stream: &Measured) -> String {
    let point = &round_trip.point;
    let mut text = format!("{:>9} {:<15}", count(point.size_bytes as u64), point.kind);
    match &round_trip.latency {
        Some(latency) => {
            let us = |spread: slackwater::measure::Spread| spread.median / 1e3;
            text.push_str(&format!(
                " {:>9.3} {:>9.3} {:>10.3}",
                us(latency.p50_ns),
                us(latency.p99_ns),
                us(latency.p999_ns)
            ));
        }
        None => text.push_str(&format!(" {:>9} {:>9} {:>10}", "-", "-", "-")),
    }
    match &stream.flow {
        Some(flow) => text.push_str(&format!(
            " {:>12} {:>8.3} {:>9} {:>9} {:>6.3} {:>6.3}\n",
            count(flow.messages_per_s.median as u64),
            flow.gb_per_s.median,
            count(flow.sender_cpu_ns_per_message.median as u64),
            count(flow.receiver_cpu_ns_per_message.median as u64),
            flow.sender_cpu_s_per_gb.median,
            flow.receiver_cpu_s_per_gb.median,
        )),
        None => {
            let reason = stream.unsupported.as_deref().unwrap_or("not measured");
            text.push_str(&format!(" {reason}\n"));
        }
    }
    text
}

fn verdict(goal: &Goal) -> String {
    let (measured, verdict) = match (&goal.measured, goal.met) {
        (Some(spread), Some(met)) => (
            format!(
                "{:.2} ({:.2} to {:.2})",
                spread.median, spread.min, spread.max
            ),
            if met { "met" } else { "missed" },
        ),
        _ => ("-".to_string(), "not measured"),
    };
    format!(
        "goal {:<62} {measured} {unit}, limit {} {unit}: {verdict}\n",
        goal.goal,
        goal.limit,
        unit = goal.unit,
    )
}
