//! The figures as text.

use super::figures::Figures;
use super::measured::{PointFigures, WayFigures};
use super::plan::{Link, Way};
use crate::lab::{Table, minutes, rate, time};
use slackwater::report::count;

/// A line for each way at each point, then the published ordering.
pub fn text(figures: &Figures) -> String {
    let mut text = format!(
        "broadcasts: {} round(s), medians, {}; ratios are of serial over TCP\n",
        figures.rounds,
        minutes(figures.seconds),
    );
    let setting = |figures: &PointFigures| (figures.point.receivers, figures.point.processes);
    for points in figures
        .points
        .chunk_by(|one, other| setting(one) == setting(other))
    {
        let (receivers, processes) = setting(&points[0]);
        let head = ["bytes", "way", "p50", "p90", "ratio", "messages/s", "ratio"];
        let mut table = Table::new(head.into_iter().chain(["CPU us", "the model's choice"]));
        points.iter().for_each(|point| lines(point, &mut table));
        text.push_str(&format!(
            "\n{receivers} receivers in {processes} process(es)\n{}",
            table.columns()
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

fn lines(point: &PointFigures, table: &mut Table) {
    let serial = |figures: &&WayFigures| {
        let way = figures.way;
        way.link == Link::Tcp && way.algorithm == "serial" && way.segment_bytes.is_none()
    };
    let serial = point.ways.iter().find(serial);
    for figures in &point.ways {
        let choices = point
            .choices
            .iter()
            .find(|of_link| of_link.link == figures.way.link);
        let mut chosen = Vec::new();
        if choices.is_some_and(|choices| choices.latency == figures.way) {
            chosen.push("latency");
        }
        if choices.is_some_and(|choices| choices.throughput == figures.way) {
            chosen.push("throughput");
        }
        let ratio = |pick: fn(&WayFigures) -> f64| match serial {
            Some(serial) => format!("{:.2}", pick(figures) / pick(serial)),
            None => "-".to_string(),
        };
        table.line([
            count(point.point.size_bytes as u64),
            name(&figures.way),
            time(figures.latency_p50_us.median),
            time(figures.latency_p90_us.median),
            ratio(|figures| figures.latency_p50_us.median),
            count(figures.messages_per_s.median as u64),
            ratio(|figures| figures.messages_per_s.median),
            format!("{:.1}", figures.cpu_us_per_message.median),
            chosen.join(", "),
        ]);
    }
}

/// The name of a way, such as `shm flat_tree /64k`.
fn name(way: &Way) -> String {
    let segments = way
        .segment_bytes
        .map_or(String::new(), |bytes| format!(" /{}k", bytes >> 10));
    format!("{} {}{segments}", way.link.name(), way.algorithm)
}
