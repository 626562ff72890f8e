//! What will be measured, from the command line.

use clap::Args;

use super::disturber::Disturbance;
use super::order::{Order, Spec};
use super::query::Query;
use super::records::RATE_MAX;
use super::sender::TAIL_NS;
use super::setting::{Kind, Setting};
use crate::common::{parse_rate, parse_seconds};
use crate::lab::{Drawing, Files, REPEATED_SHARE_MAX};
use slackwater::calibrate;

const RATES: [u64; 5] = [100, 1_000, 10_000, 100_000, 500_000];
const TARGETS_US: [u64; 4] = [1_000, 5_000, 20_000, 100_000];

/// The points of `--quick`: those of the goals at 20 ms, and some of windows.
const QUICK: [(Query, u64, &[&str]); 8] = [
    (Query::Filter, 100, &["auto:20ms", "interrupt", "hand"]),
    (Query::Filter, 1_000, &["auto:20ms", "interrupt", "hand"]),
    (
        Query::Filter,
        10_000,
        &["auto:20ms", "sleep:10ms", "interrupt", "hand"],
    ),
    (Query::Wide, 1_000, &["auto:20ms", "hand"]),
    (Query::Wide, 10_000, &["auto:20ms", "interrupt", "hand"]),
    (Query::Filter, 100_000, &["auto:20ms", "sleep:10ms", "hand"]),
    (Query::Filter, 500_000, &["auto:20ms", "sleep:10ms", "hand"]),
    (Query::Window, 10_000, &["auto:20ms", "sleep:10ms"]),
];

/// The points of `--quick --disturb`: those that are compared with a program by hand.
const QUICK_DISTURBED: [(Query, u64, &[&str]); 4] = [
    (Query::Filter, 100, BESIDE),
    (Query::Filter, 1_000, BESIDE),
    (Query::Filter, 10_000, BESIDE),
    (Query::Filter, 100_000, BESIDE),
];
const BESIDE: &[&str] = &["auto:20ms", "interrupt", "hand"];

const SECONDS: f64 = 15.0;
const SECONDS_QUICK: f64 = 8.0;
const SECONDS_QUICK_DISTURBED: f64 = 5.0;

/// Time that a controller needs for some corrections before its choice is measured.
const WARM_UP_S: f64 = 3.0;
const WARM_UP_QUICK_S: f64 = 2.0;

/// What a point takes in addition to its records: starting and ending two processes.
const POINT_OVERHEAD_S: f64 = 0.4;

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// The 23 points that the goals at 20 ms need, 8 s each: about four minutes. With --rates,
    /// --targets, --queries or --settings: those points, 8 s each. With --disturb: 12 points, 5 s each under
    /// each disturbance
    #[arg(long)]
    quick: bool,
    /// Records per second, up to 2M [default: 100,1k,10k,100k,500k]
    #[arg(long, value_name = "RATE,..", value_delimiter = ',', value_parser = whole_rate)]
    rates: Option<Vec<u64>>,
    /// Targets in milliseconds [default: 1,5,20,100]
    #[arg(long, value_name = "MS,..", value_delimiter = ',', value_parser = target)]
    targets: Option<Vec<u64>>,
    /// filter (and project), wide (the same, three of ten columns), window (of a second, keyed) [default:
    /// all]
    #[arg(long, value_name = "QUERY,..", value_delimiter = ',')]
    queries: Option<Vec<Query>>,
    /// auto (the target is the engine's only setting), poll, interrupt, spin, sleep (at every hop, for
    /// half of each target), linger (100 ms), hand (no engine; filter and wide only) [default: all]
    #[arg(long, value_name = "SETTING,..", value_delimiter = ',')]
    settings: Option<Vec<Kind>>,
    /// Measure each point undisturbed and under these disturbances: bursts of 1 to 50 ms that take the
    /// query's cores for this share of the time, or stops of its process for 30 ms, about once a second
    #[arg(
        long,
        value_name = "1%,5%,20%,stop",
        value_delimiter = ',',
        conflicts_with = "svg"
    )]
    pub disturb: Option<Vec<Disturbance>>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each point is measured in each round, in seconds [default: 15]
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// How long records flow before they are counted, in seconds [default: 3]
    #[arg(long, value_parser = parse_seconds)]
    warm_up: Option<f64>,
    /// The core of the process that sends records and receives rows [default: a core other than that of
    /// the engine's first worker]
    #[arg(long)]
    core: Option<usize>,
    #[command(flatten)]
    pub files: Files,
    #[command(flatten)]
    pub drawing: Drawing,
}

fn whole_rate(text: &str) -> Result<u64, String> {
    let rate = parse_rate(text)?;
    match rate.fract() == 0.0 && rate <= RATE_MAX as f64 {
        true => Ok(rate as u64),
        false => Err("expected a whole number of records per second, at most 2M".to_string()),
    }
}

fn target(text: &str) -> Result<u64, String> {
    let number = text.trim().trim_end_matches("ms").trim();
    let us = number.parse::<f64>().ok().map(|ms| (ms * 1e3).round());
    us.filter(|us| (10.0..=1e7).contains(us))
        .map(|us| us as u64)
        .ok_or_else(|| "expected a number of milliseconds from 0.01 to 10000".to_string())
}

/// The plan of the experiment.
pub struct Plan {
    /// The points of a round, grouped by query and rate.
    pub groups: Vec<Vec<Spec>>,
    /// Number of rounds.
    pub rounds: u32,
    /// How long each point is measured in a round.
    pub seconds: f64,
    /// How long records flow before that.
    pub warm_up_s: f64,
    /// The generator's core.
    pub core: usize,
}

impl Plan {
    /// The plan for these arguments.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        let quick = arguments.quick;
        let chosen = arguments.rates.is_some()
            || arguments.targets.is_some()
            || arguments.queries.is_some()
            || arguments.settings.is_some();
        let is_disturbed = arguments.disturb.is_some();
        let groups = match (quick && !chosen, is_disturbed) {
            (true, true) => quick_groups(&QUICK_DISTURBED)?,
            (true, false) => quick_groups(&QUICK)?,
            (false, _) => groups(arguments),
        };
        if groups.is_empty() {
            return Err(
                "nothing is left to measure: hand only supports filter and wide".to_string(),
            );
        }
        let (seconds, warm_up_s) = match (quick, is_disturbed) {
            (true, true) => (SECONDS_QUICK_DISTURBED, WARM_UP_QUICK_S),
            (true, false) => (SECONDS_QUICK, WARM_UP_QUICK_S),
            (false, _) => (SECONDS, WARM_UP_S),
        };
        Ok(Plan {
            groups,
            rounds: arguments.rounds,
            seconds: arguments.seconds.unwrap_or(seconds),
            warm_up_s: arguments.warm_up.unwrap_or(warm_up_s),
            core: arguments
                .core
                .unwrap_or_else(|| calibrate::cores().follower),
        })
    }

    /// Number of points of a round.
    pub fn points_per_round(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Number of points of all rounds.
    pub fn points(&self) -> usize {
        self.points_per_round() * self.rounds as usize
    }

    /// Whether the hand-written program is among the settings.
    pub fn needs_hand(&self) -> bool {
        let mut specs = self.groups.iter().flatten();
        specs.any(|spec| spec.setting == Setting::Hand)
    }

    /// Expected duration.
    pub fn expected_s(&self) -> f64 {
        let flow_s = self.warm_up_s + self.seconds + TAIL_NS as f64 / 1e9;
        self.points() as f64 * (flow_s + POINT_OVERHEAD_S)
    }

    /// Duration with all repetitions.
    pub fn expected_max_s(&self) -> f64 {
        self.expected_s() * (1.0 + REPEATED_SHARE_MAX)
    }

    /// The order to the generator of a point.
    pub fn order(&self, spec: &Spec) -> Order {
        Order {
            query: spec.query,
            rate_per_s: spec.rate_per_s,
            warm_up_ns: (self.warm_up_s * 1e9) as u64,
            time_ns: (self.seconds * 1e9) as u64,
            core: self.core,
        }
    }
}

fn quick_groups(quick: &[(Query, u64, &[&str])]) -> Result<Vec<Vec<Spec>>, String> {
    let group = |&(query, rate_per_s, settings): &(Query, u64, &[&str])| {
        let spec = |text: &&str| -> Result<Spec, String> {
            Ok(Spec {
                setting: text.parse()?,
                query,
                rate_per_s,
            })
        };
        settings.iter().map(spec).collect()
    };
    quick.iter().map(group).collect()
}

fn groups(arguments: &Arguments) -> Vec<Vec<Spec>> {
    fn or<'a, T>(given: &'a Option<Vec<T>>, all: &'a [T]) -> &'a [T] {
        given.as_deref().unwrap_or(all)
    }
    let targets_us = or(&arguments.targets, &TARGETS_US);
    let mut settings = Vec::new();
    for kind in or(&arguments.settings, &Kind::ALL) {
        for setting in kind.settings(targets_us) {
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
    }
    let mut groups = Vec::new();
    for &rate_per_s in or(&arguments.rates, &RATES) {
        for &query in or(&arguments.queries, &Query::ALL) {
            let settings = settings.iter();
            let fitting = settings
                .filter(|&&setting| setting != Setting::Hand || query.is_by_hand())
                .map(|&setting| Spec {
                    setting,
                    query,
                    rate_per_s,
                });
            let group = fitting.collect::<Vec<_>>();
            if !group.is_empty() && !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(arguments: &[&str]) -> Result<Plan, String> {
        let line = ["target", "--core", "0"]
            .into_iter()
            .chain(arguments.iter().copied());
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        Plan::of(&line.arguments)
    }

    #[test]
    fn a_full_run_has_every_setting_and_a_quick_one_the_points_of_the_goals() {
        let all = plan(&[]).unwrap();
        // Four autos, four sleeps, four others; the hand-written program for two of the queries.
        assert_eq!(all.points(), 5 * (12 + 13 + 13));
        assert!(all.needs_hand());
        assert!((15.0..=4_800.0).contains(&all.expected_max_s()));
        let quick = plan(&["--quick"]).unwrap();
        assert_eq!(quick.points(), 23);
        assert_eq!((quick.seconds, quick.warm_up_s), (8.0, 2.0));
        assert!(quick.expected_max_s() < 300.0);
        let disturbed = plan(&["--quick", "--disturb", "5%,stop"]).unwrap();
        assert_eq!((disturbed.points(), disturbed.seconds), (12, 5.0));
        // Undisturbed, and under each of the two.
        assert!(disturbed.expected_s() * 3.0 < 300.0);
    }

    #[test]
    fn the_requested_points_are_measured() {
        let line = "--quick --rates 500,2k --targets 20,0.5 --queries window --settings auto,poll \
                    --rounds 2 --warm-up 0.5";
        let some = plan(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!((some.points_per_round(), some.points()), (6, 12));
        assert!(!some.needs_hand());
        let names = some.groups[1].iter().map(|spec| spec.setting.to_string());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["auto:20ms", "auto:500us", "poll"]
        );
        let order = some.order(&some.groups[1][0]);
        assert_eq!((order.rate_per_s, order.query), (2_000, Query::Window));
        assert_eq!(
            (order.warm_up_ns, order.time_ns),
            (500_000_000, 8_000_000_000)
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--rates 0",
            "--rates 1.5",
            "--rates 3M",
            "--targets soon",
            "--targets 0",
            "--queries join",
            "--settings fast",
            "--rounds 0",
            "--seconds 0",
            "--settings hand --queries window",
        ] {
            let refused = plan(&line.split(' ').collect::<Vec<_>>());
            assert!(refused.is_err(), "{line}");
        }
    }
}
