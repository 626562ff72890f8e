//! The figures as people read them.

use super::figures::{Figures, PointFigures, WayFigures};
use super::plan::{Link, Way};
use crate::common::{minutes, rate, time};
use slackwater::report::count;

/// A line for each way at each point, then the goals and the published ordering.
pub fn table(figures: &Figures) -> String {
    let host = figures.host.as_ref().map(|host| host.describe());
    let mut text = format!(
        "broadcasts: {}\n{} round(s), medians, {}; ratios are of serial over TCP\n",
        host.unwrap_or_default(),
        figures.rounds,
        minutes(figures.seconds),
    );
    let mut setting = (0, 0);
    for point in &figures.points {
        let own = (point.point.receivers, point.point.processes);
        if setting != own {
            setting = own;
            text.push_str(&format!(
                "\n{} receivers in {} process(es)\n{:>9}  {:<22} {:>10} {:>10} {:>7} {:>11} {:>7} {:>9}  {}\n",
                own.0, own.1, "bytes", "way", "p50", "p90", "ratio", "messages/s", "ratio", "CPU us",
                "the model's choice"
            ));
        }
        lines(point, &mut text);
    }
    text.push('\n');
    for goal in &figures.goals {
        text.push_str(&format!(
            "goal {:<68} {:.2} ({:.2} to {:.2}; {} of {} points), limit {}: {}\n",
            goal.goal,
            goal.measured.median,
            goal.measured.min,
            goal.measured.max,
            goal.points.0,
            goal.points.1,
            goal.limit,
            if goal.met { "met" } else { "missed" },
        ));
    }
    text.push_str("\nP2's ordering (ring: throughput, tree: latency), whole messages:\n");
    for ordering in &figures.orderings {
        let latency = ordering.by_latency.iter();
        let latency = latency.map(|(name, us)| format!("{name} {}", time(*us)));
        let throughput = ordering.by_throughput.iter();
        let throughput = throughput.map(|(name, per_s)| format!("{name} {}", rate(per_s.round())));
        text.push_str(&format!(
            "{:>9}  {}: latency {}; throughput {}\n",
            count(ordering.size_bytes as u64),
            ordering.link.name(),
            latency.collect::<Vec<_>>().join(" < "),
            throughput.collect::<Vec<_>>().join(" > "),
        ));
    }
    text
}

fn lines(point: &PointFigures, text: &mut String) {
    let serial = |of: &&WayFigures| {
        let way = of.way;
        way.link == Link::Tcp && way.algorithm == "serial" && way.segment_bytes.is_none()
    };
    let serial = point.ways.iter().find(serial);
    for of in &point.ways {
        let choices = point
            .choices
            .iter()
            .find(|of_link| of_link.link == of.way.link);
        let mut chosen = Vec::new();
        if choices.is_some_and(|choices| choices.latency == of.way) {
            chosen.push("latency");
        }
        if choices.is_some_and(|choices| choices.throughput == of.way) {
            chosen.push("throughput");
        }
        let ratio = |pick: fn(&WayFigures) -> f64| match serial {
            Some(serial) => format!("{:.2}", pick(of) / pick(serial)),
            None => "-".to_string(),
        };
        text.push_str(&format!(
            "{:>9}  {:<22} {:>10} {:>10} {:>7} {:>11} {:>7} {:>9.1}  {}\n",
            count(point.point.size_bytes as u64),
            name(&of.way),
            time(of.latency_p50_us.median),
            time(of.latency_p90_us.median),
            ratio(|of| of.latency_p50_us.median),
            count(of.messages_per_s.median as u64),
            ratio(|of| of.messages_per_s.median),
            of.cpu_us_per_message.median,
            chosen.join(", "),
        ));
    }
}

/// `shm flat_tree /64k`.
fn name(way: &Way) -> String {
    let segments = way
        .segment_bytes
        .map_or(String::new(), |bytes| format!(" /{}k", bytes >> 10));
    format!("{} {}{segments}", way.link.name(), way.algorithm)
}
