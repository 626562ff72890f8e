//! The medians as people read them.

use super::figures::{DISTURBED_MAX, Figures, Summary, rate};
use super::order::tick_ns;
use super::way::{Mode, Transport, Way};
use crate::common::{time, wait_costs};

impl Figures {
    fn at(&self, way: Way, rate_per_s: f64) -> Option<&Summary> {
        let mut summaries = self.summaries.iter();
        summaries.find(|summary| summary.way == way && summary.rate_per_s == rate_per_s)
    }

    fn modes(&self, transport: Transport) -> Vec<Mode> {
        let mut modes = Vec::new();
        for summary in &self.summaries {
            if summary.way.transport == transport && !modes.contains(&summary.way.mode) {
                modes.push(summary.way.mode);
            }
        }
        modes
    }

    /// A Markdown table with a row for each mode of each transport and a column for each rate.
    fn table(&self, first: Option<String>, cell: impl Fn(&Summary) -> String) -> String {
        let columns = self.baselines.iter().map(|base| base.rate_per_s);
        let columns = columns.collect::<Vec<f64>>();
        let mut text = "| messages by | reader waits |".to_string();
        for &column in &columns {
            text.push_str(&format!(" {} |", rate(column)));
        }
        text.push_str(&format!("\n|---|---|{}\n", "---|".repeat(columns.len())));
        text.extend(first);
        for transport in Transport::ALL {
            for mode in self.modes(transport) {
                text.push_str(&format!("| {} | {mode} |", transport.title()));
                for &column in &columns {
                    let summary = self.at(Way { transport, mode }, column);
                    text.push_str(&format!(" {} |", summary.map_or(String::new(), &cell)));
                }
                text.push('\n');
            }
        }
        text
    }

    /// The medians as people read them.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}; load {:.2} before and {:.2} after\n",
            self.host.describe(),
            self.load_before[0],
            self.load_after[0],
        );
        text.push_str(&format!(
            "messages of {} bytes, {} arrivals; {} round(s) of {} s a point, medians; sender on core \
             {}, receiver on core {}\n",
            self.message_bytes,
            self.arrivals,
            self.rounds,
            self.seconds,
            self.cores.leader,
            self.cores.follower
        ));
        text.push_str(&format!(
            "auto takes {}\n",
            wait_costs(self.costs, self.costs_measured)
        ));
        for oversleep in &self.oversleeps {
            let late = oversleep.late;
            text.push_str(&format!(
                "a sleep of {} ends {} late (p50), {} (p99)\n",
                time(oversleep.sleep_us),
                time(late.p50_us),
                time(late.p99_us)
            ));
        }
        text.push_str(&format!(
            "in {} of {} points other processes held a side's core for more than {} % of the time, \
             after {} were measured again\n",
            self.disturbed,
            self.points.len(),
            DISTURBED_MAX * 100.0,
            self.repeated
        ));
        let ticks = self.baselines.iter().map(|base| tick_ns(base.rate_per_s));
        if let Some(tick_ns) = ticks.max().filter(|&tick_ns| tick_ns > 0) {
            text.push_str(&format!(
                "above 10 k/s the sender sends every {} what is due; latency counts from the due \
                 time\n",
                time(tick_ns as f64 / 1e3)
            ));
        }
        let alone = self
            .baselines
            .iter()
            .map(|base| format!(" {:.1}; {} |", base.percent.median, time(base.lag_p99_us)));
        let alone = format!(
            "| nothing | (sender alone) |{}\n",
            alone.collect::<String>()
        );
        text.push_str(
            "\nCPU time in % of a core, sender + receiver, nothing subtracted; p99 latency since \
             due. ! less than 99 % received\n\n",
        );
        text.push_str(&self.table(Some(alone), |summary| {
            format!(
                "{:.1} + {:.1}; {}{}",
                summary.sender_percent,
                summary.receiver_percent,
                time(summary.since_due.p99_us),
                if summary.keeps_up() { "" } else { " !" }
            )
        }));
        text.push_str(
            "\nCPU time in us per message, sender (less the sender alone) + receiver; in s per GB \
             of messages\n\n",
        );
        text.push_str(&self.table(None, |summary| {
            format!(
                "{:.2} + {:.2}; {:.1}",
                summary.sender_us_per_message,
                summary.receiver_us_per_message,
                summary.cpu_s_per_gb
            )
        }));
        text.push_str(
            "\nLatency since due, p50 and p99.9; times a second that the sender + the receiver went \
             to sleep\n\n",
        );
        text.push_str(&self.table(None, |summary| {
            format!(
                "{}, {}; {:.0} + {:.0}",
                time(summary.since_due.p50_us),
                time(summary.since_due.p999_us),
                summary.sender_switches_per_s,
                summary.receiver_switches_per_s
            )
        }));
        if !self.verdicts.is_empty() {
            text.push_str(
                "\nGoals, on CPU time of sender and receiver less the sender alone (raw: nothing \
                 subtracted)\n\n",
            );
        }
        for verdict in &self.verdicts {
            text.push_str(&format!("- {}\n", verdict.line()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::arrivals::Arrivals;
    use crate::wait::figures::Baseline;
    use crate::wait::figures::tests::point;
    use crate::wait::order::MESSAGE_BYTES;
    use slackwater::calibrate::{Host, WaitCosts};
    use slackwater::measure::Cores;

    #[test]
    fn tables_have_a_row_for_each_way() {
        let points = vec![
            point(Way::BASELINE, 0, 0.02, None),
            point(Way::PLAIN, 0, 0.06, Some(0.1)),
        ];
        let baseline = Baseline::of(1_000.0, &points).unwrap();
        let figures = Figures {
            host: Host::this(),
            load_before: [0.0; 3],
            load_after: [0.0; 3],
            costs: WaitCosts {
                wake_ns: 35_000,
                sleep_ns: 20_000,
                oversleep_p50_ns: 37_000,
                oversleep_p99_ns: 66_000,
            },
            costs_measured: false,
            cores: Cores {
                leader: 0,
                follower: 1,
            },
            arrivals: Arrivals::Poisson,
            seed: 1,
            message_bytes: MESSAGE_BYTES,
            rounds: 1,
            seconds: 2.0,
            oversleeps: Vec::new(),
            summaries: vec![Summary::of(Way::PLAIN, &baseline, &points).unwrap()],
            baselines: vec![baseline],
            verdicts: Vec::new(),
            repeated: 0,
            disturbed: 0,
            points,
        };
        let text = figures.text();
        assert!(text.contains("| 1 k/s |"), "{text}");
        assert!(
            text.contains("| plain TCP | interrupt | 3.0 + 5.0; 250 us |"),
            "{text}"
        );
        assert!(text.contains("20.00 + 50.00; 350.0"), "{text}");
    }
}
