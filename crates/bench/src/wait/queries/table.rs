//! The figures of the queries as tables.

use super::{Figures, Point, QueryWay, rows_per_s, ways};
use crate::lab::{Table, distinct, median, rate};

/// The figures as text.
pub fn text(figures: &Figures) -> String {
    let mut text = format!(
        "{} round(s) of {} s a point, medians; in {} of {} points other processes held a core that a worker \
         needed for more than 1 % of the time\n",
        figures.rounds,
        figures.seconds,
        figures.disturbed,
        figures.points.len()
    );
    let processes = figures.points.iter().map(|point| point.processes);
    for processes in distinct(processes) {
        let own = figures.points.iter();
        let own = own.filter(|point| point.processes == processes);
        let own = own.collect::<Vec<_>>();
        let mut rates = distinct(own.iter().map(|point| point.rate_per_s));
        rates.sort_by(f64::total_cmp);
        let ways = ways(figures, processes);
        text += &format!(
            "\n{processes} processes: CPU time of each in % of a core; p99 latency; seconds of sending + \
             receiving per second of the run\n\n"
        );
        let head = rates.iter().map(|&rate_per_s| rate(rate_per_s));
        let head = ["way".to_string()].into_iter().chain(head);
        let mut table = Table::new(head.chain(["as fast as possible".to_string()]));
        for way in ways {
            let cells = rates.iter().map(|&rate_per_s| cell(&own, way, rate_per_s));
            let most = rows_per_s(figures, processes, way);
            let most = most.map_or("-".to_string(), |rows| format!("{:.2} M/s", rows / 1e6));
            let cells = [way.name()].into_iter().chain(cells).chain([most]);
            table.line(cells);
        }
        text += &table.markdown();
    }
    text
}

fn cell(points: &[&Point], way: QueryWay, rate_per_s: f64) -> String {
    let points = points.iter();
    let points = points.filter(|point| (point.way, point.rate_per_s) == (way, rate_per_s));
    let points = points.collect::<Vec<_>>();
    let Some(first) = points.first() else {
        return "-".to_string();
    };
    let processes = 0..first.ran.cpu_percent.len();
    let cpu = processes.map(|process| {
        let percent = median(&points, |point| point.ran.cpu_percent[process]);
        format!("{percent:.1}")
    });
    let p99_ms = median(&points, |point| point.p99_ms().unwrap_or(f64::NAN));
    let side = |receives: bool| {
        median(&points, |point| {
            let report = &point.ran.report;
            let links = report.plan.remote_links.iter();
            let busy_s = links.map(|link| match receives {
                true => link.receive.busy_s,
                false => link.send.busy_s,
            });
            busy_s.sum::<f64>() * report.rows_per_s / report.rows_in.max(1) as f64
        })
    };
    format!(
        "{} %; {p99_ms:.2} ms; {:.4} + {:.4}",
        cpu.collect::<Vec<_>>().join(" + "),
        side(false),
        side(true)
    )
}
