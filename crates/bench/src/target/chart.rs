//! Charts of CPU time against rate.

use super::comparison::targets_us;
use super::figures::Figures;
use super::query::Query;
use super::setting::{Setting, duration};
use super::summary::Summary;
use super::table::belongs;
use crate::lab::chart::{Axis, Chart, Mark, Scale, Series};
use crate::lab::distinct;

/// The lowest value shown, in percent of a core.
const PERCENT_MIN: f64 = 0.05;

/// Two cores: what a plan may use on a small machine.
const PERCENT_MAX: f64 = 200.0;

/// A chart for each target of each query; a point that misses the target is hollow.
pub fn charts(figures: &Figures) -> Vec<Chart> {
    let mut charts = Vec::new();
    for query in Query::ALL {
        for target_us in targets_us(&figures.summaries) {
            charts.extend(chart(figures, query, target_us));
        }
    }
    charts
}

fn chart(figures: &Figures, query: Query, target_us: u64) -> Option<Chart> {
    let summaries = figures
        .summaries
        .iter()
        .filter(|summary| summary.spec.query == query && belongs(summary.spec.setting, target_us));
    let summaries = summaries.collect::<Vec<_>>();
    let auto = Setting::Auto { target_us };
    if !summaries.iter().any(|summary| summary.spec.setting == auto) {
        return None;
    }
    let settings = distinct(summaries.iter().map(|summary| summary.spec.setting));
    Some(Chart {
        title: format!("{}, target {}", query.title(), duration(target_us)),
        x: Axis::around(
            format!(
                "records of {} bytes per second (hollow: p99 misses the target)",
                figures.record_bytes
            ),
            summaries
                .iter()
                .map(|summary| summary.spec.rate_per_s as f64),
        ),
        y: Axis {
            label: "% of a core".to_string(),
            scale: Scale::Log,
            min: PERCENT_MIN,
            max: PERCENT_MAX,
        },
        series: settings
            .into_iter()
            .map(|setting| series(&summaries, setting, target_us))
            .collect(),
    })
}

fn series(summaries: &[&Summary], setting: Setting, target_us: u64) -> Series {
    let of_it = summaries
        .iter()
        .filter(|summary| summary.spec.setting == setting);
    let marks = of_it.map(|summary| Mark {
        x: summary.spec.rate_per_s as f64,
        y: summary.percent.median,
        filled: setting.can_meet(target_us) && summary.meets(target_us),
    });
    let mut marks = marks.collect::<Vec<_>>();
    marks.sort_by(|one, other| one.x.total_cmp(&other.x));
    let (color, name) = match setting {
        Setting::Auto { .. } => (5, "auto".to_string()),
        Setting::Poll => (1, setting.to_string()),
        Setting::Interrupt => (2, setting.to_string()),
        Setting::Sleep { .. } => (4, setting.to_string()),
        Setting::Spin => (7, setting.to_string()),
        Setting::Linger => (8, "linger 100 ms".to_string()),
        Setting::Hand => (0, "written by hand".to_string()),
    };
    Series {
        name,
        color,
        dashed: matches!(setting, Setting::Auto { .. }),
        marks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::summary::tests::summary;
    use crate::target::table::tests::figures;

    #[test]
    fn each_target_has_a_chart_whose_hollow_points_miss_it() {
        let figures = figures(vec![
            summary("auto:20ms", Query::Filter, 10_000, 1.5, 19_000.0),
            summary("auto:20ms", Query::Filter, 1_000, 0.5, 19_000.0),
            summary("auto:1ms", Query::Filter, 10_000, 9.0, 1_100.0),
            summary("sleep:10ms", Query::Filter, 10_000, 2.0, 10_000.0),
            summary("sleep:500us", Query::Filter, 10_000, 5.0, 700.0),
        ]);
        assert!(chart(&figures, Query::Window, 20_000).is_none());
        let twenty = chart(&figures, Query::Filter, 20_000).unwrap();
        let names = twenty.series.iter().map(|series| series.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["auto", "sleep:10ms"]);
        let auto = &twenty.series[0].marks;
        assert!(auto[0].x < auto[1].x && auto.iter().all(|mark| mark.filled));
        let one = chart(&figures, Query::Filter, 1_000).unwrap();
        assert!(!one.series[0].marks[0].filled && one.series[1].marks[0].filled);
        let titles = charts(&figures).into_iter().map(|chart| chart.title);
        let titles = titles.collect::<Vec<String>>();
        assert_eq!(titles[0], "filter and project, target 20ms");
    }
}
