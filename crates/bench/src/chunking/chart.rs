//! Charts of the experiments.

use super::figures::{Figures, Level};
use super::order::Transport;
use super::way::Way;
use crate::lab::chart::{Axis, Chart, Mark, Scale, Series};

/// Four charts of the measurements for each amount of computing.
pub fn charts(figures: &Figures) -> Vec<Chart> {
    let charts = figures.levels.iter().flat_map(|level| {
        let charts = [sizes(level), latencies(level), rates(level), mixes(level)];
        charts.into_iter().flatten()
    });
    charts.collect()
}

fn titled(title: &str, level: &Level) -> String {
    match level.ns_per_byte {
        0.0 => title.to_string(),
        ns => format!("{title}, {ns} ns of computing per byte"),
    }
}

fn color(way: Way) -> usize {
    match way {
        Way::TcpFixed => 1,
        Way::TcpPlanned => 2,
        Way::ShmSame => 4,
        Way::ShmPlanned => 5,
    }
}

/// A chart whose axes cover its values; `None` if there are none.
fn chart(title: String, x: (&str, Scale), y: (&str, Scale), series: Vec<Series>) -> Option<Chart> {
    let series = series.into_iter().filter(|series| !series.marks.is_empty());
    let series = series.collect::<Vec<_>>();
    let marks = series.iter().flat_map(|series| &series.marks);
    let marks = marks.collect::<Vec<_>>();
    if marks.is_empty() {
        return None;
    }
    let axis = |(label, scale): (&str, Scale), value: fn(&Mark) -> f64| {
        let values = marks.iter().map(|mark| value(mark));
        let max = values.clone().fold(0.0, f64::max);
        let positive = values.filter(|value| *value > 0.0);
        let min = positive.fold(f64::INFINITY, f64::min);
        let (min, max) = match scale {
            Scale::Linear => (0.0, if max > 0.0 { max * 1.05 } else { 1.0 }),
            // Whole powers of ten.
            Scale::Log if max > 0.0 => (
                10f64.powf(min.log10().floor()),
                10f64.powf((max * 1.001).log10().ceil()),
            ),
            Scale::Log => (0.1, 1.0),
        };
        Axis {
            label: label.to_string(),
            scale,
            min,
            max,
        }
    };
    let (x, y) = (axis(x, |mark| mark.x), axis(y, |mark| mark.y));
    Some(Chart {
        title,
        x,
        y,
        series,
    })
}

fn sizes(level: &Level) -> Option<Chart> {
    let of_link = |(transport, color): (Transport, usize)| {
        let sizes = level.sweep.sizes.iter();
        let of_it = sizes.filter(|size| size.transport == transport);
        let marks = of_it.map(|size| Mark {
            x: size.block_bytes as f64,
            y: size.complete_per_s,
            filled: true,
        });
        Series {
            name: transport.to_string(),
            color,
            dashed: false,
            marks: marks.collect(),
        }
    };
    chart(
        titled("Highest rate of complete updates", level),
        ("bytes of a block", Scale::Log),
        ("complete updates per second", Scale::Log),
        [(Transport::Tcp, 1), (Transport::Shm, 5)]
            .map(of_link)
            .to_vec(),
    )
}

fn by_way(marks: impl Fn(Way) -> Vec<Mark>) -> Vec<Series> {
    let series = Way::ALL.map(|way| Series {
        name: match way {
            Way::TcpFixed => "TCP, best",
            Way::ShmSame => "shm, the same",
            Way::ShmPlanned => "shm, planned",
            Way::TcpPlanned => "TCP, planned",
        }
        .to_string(),
        color: color(way),
        dashed: way == Way::TcpPlanned,
        marks: marks(way),
    });
    series.to_vec()
}

fn latencies(level: &Level) -> Option<Chart> {
    let marks = |way| {
        let rows = level.latency.iter().filter(|row| row.way == way);
        let marks = rows.map(|row| Mark {
            x: row.complete_per_s,
            y: row.mean_us,
            filled: row.kept,
        });
        marks.collect()
    };
    chart(
        titled("Latency of partial updates", level),
        (
            "guaranteed complete updates per second (hollow: not kept)",
            Scale::Linear,
        ),
        ("mean latency in us", Scale::Log),
        by_way(marks),
    )
}

fn rates(level: &Level) -> Option<Chart> {
    let marks = |way| {
        let rows = level.rate.iter().filter(|row| row.way == way);
        let marks = rows.map(|row| Mark {
            x: row.latency_us,
            y: row.complete_per_s,
            filled: row.complete_per_s > 0.0,
        });
        marks.collect()
    };
    chart(
        titled("Rate of complete updates", level),
        (
            "guaranteed mean latency of partial updates in us",
            Scale::Linear,
        ),
        ("complete updates per second", Scale::Linear),
        by_way(marks),
    )
}

fn mixes(level: &Level) -> Option<Chart> {
    let partitions = level.mixed.iter().map(|mix| mix.partitions).max()?;
    let marks = |way| {
        let mixes = level.mixed.iter();
        let of_it = mixes.filter(|mix| mix.way == way && mix.partitions == partitions);
        let marks = of_it.map(|mix| Mark {
            x: mix.complete_share,
            y: mix.mean_us / 1e3,
            filled: true,
        });
        marks.collect()
    };
    chart(
        titled(&format!("Mixed queries over {partitions} parts"), level),
        ("share of complete updates", Scale::Linear),
        ("mean response time in ms", Scale::Linear),
        by_way(marks),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunking::verdict::tests::level;

    #[test]
    fn only_measurements_are_drawn() {
        let mut level = level(18.0);
        assert!(sizes(&level).is_some() && mixes(&level).is_some());
        let latencies = latencies(&level).unwrap();
        assert_eq!(latencies.series.len(), 3);
        assert_eq!(latencies.series[0].marks.len(), 3);
        // 1 us to 4.8 ms.
        assert_eq!(
            (latencies.y.min.round(), latencies.y.max.round()),
            (1.0, 10_000.0)
        );
        assert!(latencies.title.ends_with("18 ns of computing per byte"));
        level.rate.clear();
        assert!(rates(&level).is_none());
        level.mixed.clear();
        assert!(mixes(&level).is_none());
    }
}
