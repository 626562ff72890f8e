//! Charts of CPU time against rate.

use std::time::Duration;

use slackwater_engine::runtime::WaitMode;

use super::figures::{Figures, Summary};
use super::way::{Mode, Transport, Way};
use crate::lab::chart::{Axis, Chart, Mark, Scale, Series};
use crate::lab::distinct;

/// The lowest value shown, in percent of a core: below it the measurement is not significant.
const PERCENT_MIN: f64 = 0.1;

/// One core for each side.
const PERCENT_MAX: f64 = 200.0;

/// A chart for each kind of link, with plain TCP for comparison.
pub fn charts(figures: &Figures) -> Vec<Chart> {
    let links = [Transport::Shm, Transport::Tcp];
    let charts = links.map(|transport| chart(figures, transport));
    charts.into_iter().flatten().collect()
}

fn chart(figures: &Figures, transport: Transport) -> Option<Chart> {
    let ways = figures.summaries.iter().map(|summary| summary.way);
    let ways = distinct(ways.filter(|way| way.transport == transport || *way == Way::PLAIN));
    if !ways.iter().any(|way| way.transport == transport) {
        return None;
    }
    Some(Chart {
        title: format!(
            "CPU time of sender + receiver over {}, sender alone subtracted",
            transport.title()
        ),
        x: Axis::around(
            format!(
                "messages of {} bytes per second (hollow: less than 99 % received)",
                figures.message_bytes
            ),
            figures.baselines.iter().map(|base| base.rate_per_s),
        ),
        y: Axis {
            label: "% of a core".to_string(),
            scale: Scale::Log,
            min: PERCENT_MIN,
            max: PERCENT_MAX,
        },
        series: ways.iter().map(|&way| series(figures, way)).collect(),
    })
}

fn series(figures: &Figures, way: Way) -> Series {
    let summaries = figures.summaries.iter();
    let of_it = summaries.filter(|summary| summary.way == way);
    let mark = |summary: &Summary| Mark {
        x: summary.rate_per_s,
        y: summary.net_percent,
        filled: summary.keeps_up(),
    };
    Series {
        name: match way.transport {
            Transport::Plain => way.transport.title().to_string(),
            _ => way.mode.to_string(),
        },
        color: color(way),
        dashed: way.mode.is_auto(),
        marks: of_it.map(mark).collect(),
    }
}

/// `auto` has the color of the sleep that it may use, and is dashed.
fn color(way: Way) -> usize {
    if way.transport == Transport::Plain {
        return 0;
    }
    let Mode(mode) = way.mode;
    match mode {
        WaitMode::Poll => 1,
        WaitMode::Interrupt => 2,
        WaitMode::Sleep(time) | WaitMode::Auto { delay: time } => {
            if time < Duration::from_micros(100) {
                3
            } else if time < Duration::from_micros(500) {
                4
            } else if time < Duration::from_millis(5) {
                5
            } else {
                6
            }
        }
        WaitMode::SpinThenPark { .. } => 7,
        WaitMode::BackOff => 8,
    }
}
