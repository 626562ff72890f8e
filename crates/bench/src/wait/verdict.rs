//! The goals, met or missed, from medians to lines. Pure.

use std::time::Duration;

use slackwater_engine::runtime::WaitMode;

use super::figures::{SHARE_MIN, Summary};
use super::oversleep::Oversleep;
use super::way::{Mode, Transport, Way};
use crate::lab::{Verdict, distinct, geometric_mean, rate};

/// The highest ratio: P1 saves up to 40 %.
const TCP_RATIO_MAX: f64 = 0.6;

/// The lowest rate that the goal refers to.
const TCP_RATE_MIN: f64 = 1e4;

/// The sleeps that the goal refers to.
const SLEEPS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];

/// The highest ratio of `auto` to the best fixed mode, in the geometric mean over the rates.
const AUTO_MEAN_MAX: f64 = 1.15;

/// The highest ratio at each rate, unless the difference is within [`AUTO_PERCENT_MAX`].
const AUTO_RATIO_MAX: f64 = 1.3;

/// Percent of a core that `auto` may always cost more.
const AUTO_PERCENT_MAX: f64 = 0.3;

/// Percent of a core below which measurements can't be distinguished: lower values count as this.
const PERCENT_MIN: f64 = 0.05;

/// All verdicts for these medians.
pub fn verdicts(summaries: &[Summary], oversleeps: &[Oversleep]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for sleep in SLEEPS {
        for transport in [Transport::Shm, Transport::Tcp] {
            for tcp in [Transport::Plain, Transport::Tcp] {
                verdicts.extend(against_tcp(summaries, sleep, transport, tcp));
            }
        }
    }
    let autos = summaries.iter().map(|summary| summary.way);
    let autos = distinct(autos.filter(|way| way.mode.is_auto())).into_iter();
    verdicts.extend(autos.filter_map(|way| auto(summaries, oversleeps, way)));
    verdicts
}

fn at(summaries: &[Summary], way: Way, rate_per_s: f64) -> Option<&Summary> {
    let mut summaries = summaries.iter();
    summaries.find(|summary| summary.way == way && summary.rate_per_s == rate_per_s)
}

fn net(summary: &Summary) -> f64 {
    summary.net_percent.max(PERCENT_MIN)
}

/// Sleeping compared with TCP and interrupts: the largest ratio of the rates counts.
fn against_tcp(
    summaries: &[Summary],
    sleep: Duration,
    transport: Transport,
    tcp: Transport,
) -> Option<Verdict> {
    let mode = Mode(WaitMode::Sleep(sleep));
    let interrupt = Way {
        transport: tcp,
        mode: Mode(WaitMode::Interrupt),
    };
    let sleeping = summaries.iter().filter(|summary| {
        summary.way == (Way { transport, mode }) && summary.rate_per_s >= TCP_RATE_MIN
    });
    let pairs = sleeping.filter_map(|summary| {
        let interrupted = at(summaries, interrupt, summary.rate_per_s)?;
        Some((summary, interrupted))
    });
    let pairs = pairs.collect::<Vec<_>>();
    if pairs.is_empty() {
        return None;
    }
    let (mut measured, mut raw, mut met) = (0.0f64, 0.0f64, true);
    let mut details = Vec::new();
    for (summary, interrupted) in pairs {
        let ratio = net(summary) / net(interrupted);
        measured = measured.max(ratio);
        raw = raw.max(summary.total_percent.median / interrupted.total_percent.median);
        // The throughput must not be lower: the messages that were due, or as many of them as TCP
        // delivered.
        let as_much = summary.received_share >= interrupted.received_share.min(SHARE_MIN);
        met &= ratio <= TCP_RATIO_MAX && as_much;
        details.push(format!(
            "{} {:.1} % / {:.1} % = {ratio:.2}{}",
            rate(summary.rate_per_s),
            summary.net_percent,
            interrupted.net_percent,
            if as_much { "" } else { " with less received" }
        ));
    }
    let goal = format!(
        "{mode} over {} against interrupts over {}, largest ratio from 10 k/s on",
        transport.title(),
        tcp.title()
    );
    let verdict = Verdict::at_most(goal, Some(measured), TCP_RATIO_MAX).only_if(met);
    let verdict = verdict.beside_unless(transport == Transport::Shm && tcp == Transport::Plain);
    Some(raw_beside(verdict, raw).details(details.join(", ")))
}

/// The verdict with the figure if nothing were subtracted.
fn raw_beside(verdict: Verdict, raw: f64) -> Verdict {
    verdict.note(format!("raw {raw:.2}"))
}

/// `auto` compared with the cheapest fixed mode that keeps its delay.
fn auto(summaries: &[Summary], oversleeps: &[Oversleep], way: Way) -> Option<Verdict> {
    let WaitMode::Auto { delay } = way.mode.0 else {
        return None;
    };
    let delay_us = delay.as_nanos() as f64 / 1e3;
    let oversleep = oversleeps.iter().find(|late| late.sleep_us == delay_us)?;
    // Since the beginning of sending, because the reader does not cause the sender's delays.
    let keeps = |summary: &Summary| {
        summary.since_sent.p99_us <= delay_us + oversleep.late.p99_us && summary.keeps_up()
    };
    let mut ratios = Vec::new();
    let mut raws = Vec::new();
    let mut details = Vec::new();
    let mut met = true;
    for chosen in summaries.iter().filter(|summary| summary.way == way) {
        let rate_per_s = chosen.rate_per_s;
        let fixed = summaries.iter().filter(|summary| {
            summary.way.transport == way.transport
                && summary.rate_per_s == rate_per_s
                && !summary.way.mode.is_auto()
                && keeps(summary)
        });
        let by_cost =
            |one: &&Summary, other: &&Summary| one.net_percent.total_cmp(&other.net_percent);
        let Some(best) = fixed.min_by(by_cost) else {
            continue;
        };
        let ratio = net(chosen) / net(best);
        ratios.push(ratio);
        raws.push(chosen.total_percent.median / best.total_percent.median);
        let cheap = chosen.net_percent <= best.net_percent + AUTO_PERCENT_MAX;
        let bounded = ratio <= AUTO_RATIO_MAX || cheap;
        met &= bounded && chosen.keeps_up();
        details.push(format!(
            "{} {:.2} % / {:.2} % ({}) = {ratio:.2}{}{}",
            rate(rate_per_s),
            chosen.net_percent,
            best.net_percent,
            best.way.mode,
            if bounded { "" } else { " too much" },
            if keeps(chosen) {
                ""
            } else {
                ", itself too late"
            }
        ));
    }
    if ratios.is_empty() {
        return None;
    }
    let goal = format!(
        "{} over {} against the best fixed mode within {:.0} us (p99), mean over the rates",
        way.mode,
        way.transport.title(),
        delay_us + oversleep.late.p99_us
    );
    let mean = geometric_mean(&ratios);
    let verdict = Verdict::at_most(goal, Some(mean), AUTO_MEAN_MAX).only_if(met);
    Some(raw_beside(verdict, geometric_mean(&raws)).details(details.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Latency;
    use slackwater::measure::Spread;

    fn summary(transport: Transport, mode: &str, rate_per_s: f64, net_percent: f64) -> Summary {
        let latency = Latency {
            p99_us: 100.0,
            ..Latency::default()
        };
        Summary {
            way: Way {
                transport,
                mode: mode.parse().unwrap(),
            },
            rate_per_s,
            sender_percent: 1.0,
            receiver_percent: net_percent,
            total_percent: Spread::of(vec![net_percent + 1.0]),
            net_percent,
            sender_us_per_message: 0.0,
            receiver_us_per_message: 0.0,
            cpu_s_per_gb: 0.0,
            sender_switches_per_s: 0.0,
            receiver_switches_per_s: 0.0,
            received_share: 1.0,
            disturbed: 0.0,
            since_due: latency,
            since_sent: latency,
            changes_per_s: 0.0,
        }
    }

    fn shm(mode: &str, rate_per_s: f64, net_percent: f64) -> Summary {
        summary(Transport::Shm, mode, rate_per_s, net_percent)
    }

    fn oversleeps() -> Vec<Oversleep> {
        let late = Latency {
            p99_us: 50.0,
            ..Latency::default()
        };
        vec![Oversleep {
            sleep_us: 200.0,
            late,
        }]
    }

    fn is_met(verdict: &Verdict) -> bool {
        verdict.met == Some(true)
    }

    fn measured(verdict: &Verdict) -> f64 {
        verdict.measured.unwrap()
    }

    fn only(verdicts: Vec<Verdict>) -> Verdict {
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
        verdicts.into_iter().next().unwrap()
    }

    #[test]
    fn the_most_expensive_rate_decides_against_tcp_and_lower_rates_do_not_count() {
        let mut summaries = vec![
            shm("sleep:200us", 1e3, 9.0),
            summary(Transport::Plain, "interrupt", 1e3, 9.0),
            shm("sleep:200us", 1e4, 2.0),
            summary(Transport::Plain, "interrupt", 1e4, 10.0),
            shm("sleep:200us", 1e5, 5.0),
            summary(Transport::Plain, "interrupt", 1e5, 10.0),
        ];
        let verdict = only(verdicts(&summaries, &[]));
        assert!(is_met(&verdict) && verdict.is_goal, "{verdict:?}");
        assert!((measured(&verdict) - 0.5).abs() < 1e-9);
        assert_eq!(verdict.note, "raw 0.55");
        assert!(
            verdict
                .line()
                .starts_with("met: sleep:200us over shared memory")
        );
        // Receiving less is not a saving.
        summaries[4].received_share = 0.9;
        assert!(!is_met(&only(verdicts(&summaries, &[]))));
        // Unless TCP receives no more.
        summaries[5].received_share = 0.8;
        assert!(is_met(&only(verdicts(&summaries, &[]))));
        summaries[4].net_percent = 7.0;
        let verdict = only(verdicts(&summaries, &[]));
        assert!(!is_met(&verdict) && verdict.line().starts_with("MISSED"));
    }

    #[test]
    fn auto_is_compared_with_the_cheapest_mode_that_keeps_the_delay() {
        let mut late = shm("sleep:10ms", 1e4, 0.1);
        late.since_sent.p99_us = 251.0;
        let mut slow = shm("backoff", 1e4, 0.1);
        slow.received_share = 0.98;
        let mut summaries = vec![
            late,
            slow,
            shm("poll", 1e4, 100.0),
            shm("sleep:200us", 1e4, 8.0),
            shm("auto:200us", 1e4, 8.8),
            summary(Transport::Tcp, "poll", 1e4, 0.2),
        ];
        let verdict = only(verdicts(&summaries, &oversleeps()));
        assert!(is_met(&verdict), "{verdict:?}");
        assert!((measured(&verdict) - 1.1).abs() < 1e-9);
        assert!(verdict.details.contains("(sleep:200us)"), "{verdict:?}");
        // The sleep is cheap, but the mean is above its limit: 0.3 % excuses a single rate, not the mean.
        summaries[3].net_percent = 1.0;
        summaries[4].net_percent = 1.29;
        let verdict = only(verdicts(&summaries, &oversleeps()));
        assert!(!is_met(&verdict) && !verdict.details.contains("too much"));
        // Without oversleeps there is no verdict.
        assert!(verdicts(&summaries, &[]).is_empty());
    }

    #[test]
    fn one_bad_rate_is_too_much_even_if_the_mean_is_kept() {
        let mut summaries = Vec::new();
        for (rate_per_s, best, chosen) in [(1e2, 10.0, 10.0), (1e3, 10.0, 10.0), (1e4, 10.0, 14.0)]
        {
            summaries.push(shm("interrupt", rate_per_s, best));
            summaries.push(shm("auto:200us", rate_per_s, chosen));
        }
        let verdict = only(verdicts(&summaries, &oversleeps()));
        assert!(measured(&verdict) < AUTO_MEAN_MAX && !is_met(&verdict));
        assert!(verdict.details.contains("1.40 too much"), "{verdict:?}");
    }

    #[test]
    fn a_cost_near_zero_is_not_a_divisor() {
        let summaries = [shm("interrupt", 1e2, -0.2), shm("auto:200us", 1e2, 0.01)];
        let verdict = only(verdicts(&summaries, &oversleeps()));
        assert_eq!((verdict.measured, verdict.met), (Some(1.0), Some(true)));
    }
}
