//! The medians as text.

use super::figures::{Figures, Summary};
use super::order::tick_ns;
use super::way::{Mode, Transport, Way};
use crate::common::DISTURBED_MAX;
use crate::lab::{Table, distinct, rate, time};

impl Figures {
    fn at(&self, way: Way, rate_per_s: f64) -> Option<&Summary> {
        let mut summaries = self.summaries.iter();
        summaries.find(|summary| summary.way == way && summary.rate_per_s == rate_per_s)
    }

    fn modes(&self, transport: Transport) -> Vec<Mode> {
        let ways = self.summaries.iter().map(|summary| summary.way);
        let ways = ways.filter(|way| way.transport == transport);
        distinct(ways.map(|way| way.mode))
    }

    /// A table with a row for each mode of each transport and a column for each rate.
    fn table(&self, first: Option<Vec<String>>, cell: impl Fn(&Summary) -> String) -> String {
        let rates = self.baselines.iter().map(|base| base.rate_per_s);
        let names = ["messages by", "reader waits"].map(str::to_string);
        let mut table = Table::new(names.into_iter().chain(rates.clone().map(rate)));
        first.into_iter().for_each(|cells| table.line(cells));
        for transport in Transport::ALL {
            for mode in self.modes(transport) {
                let names = [transport.title().to_string(), mode.to_string()];
                let cells = rates.clone().map(|rate_per_s| {
                    let summary = self.at(Way { transport, mode }, rate_per_s);
                    summary.map_or(String::new(), &cell)
                });
                table.line(names.into_iter().chain(cells));
            }
        }
        table.markdown()
    }

    /// The medians as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "messages of {} bytes, {} arrivals; {} round(s) of {} s a point, medians; sender on core \
             {}, receiver on core {}\nauto takes {}\n",
            self.message_bytes,
            self.arrivals,
            self.rounds,
            self.seconds,
            self.cores.leader,
            self.cores.follower,
            self.assumed.describe()
        );
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
        let alone = ["nothing", "(sender alone)"].map(str::to_string);
        let of_rates = self.baselines.iter();
        let of_rates = of_rates.map(|base| {
            let lag = time(base.lag_p99_us);
            format!("{:.1}; {lag}", base.percent.median)
        });
        let alone = alone.into_iter().chain(of_rates).collect();
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
            "\nLatency since due, p50 and p99.9; how often per second the sender + the receiver \
             went to sleep\n\n",
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
        text.push_str(
            "\nGoals refer to CPU time of sender and receiver less the sender alone; raw: nothing \
             subtracted\n",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Assumed;
    use crate::wait::arrivals::Arrivals;
    use crate::wait::figures::Baseline;
    use crate::wait::figures::tests::point;
    use crate::wait::order::MESSAGE_BYTES;
    use slackwater::measure::Cores;

    #[test]
    fn tables_have_a_row_for_each_way() {
        let points = vec![
            point(Way::BASELINE, 0, 0.02, None),
            point(Way::PLAIN, 0, 0.06, Some(0.1)),
        ];
        let baseline = Baseline::of(1_000.0, &points).unwrap();
        let figures = Figures {
            assumed: Assumed::here(),
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
