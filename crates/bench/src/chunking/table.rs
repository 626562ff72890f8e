//! The figures as text.

use super::bench::DISTURBED_MIN;
use super::figures::{Figures, Level};
use super::order::Transport;
use super::sweep::Size;
use super::way::Way;
use crate::lab::{Table, bytes, distinct, number, time};

impl Figures {
    /// The figures as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "4 stages (source, filter, filter, viewer) of {} copies each, a process per stage on \
             cores {:?}; image of {}, partial updates of {}; up to {} blocks unacknowledged between \
             two copies\n",
            self.copies,
            self.cores,
            bytes(self.image_bytes),
            bytes(self.region_bytes),
            self.window,
        );
        text.push_str(&format!(
            "{} points in {:.0} s; other processes used more than {DISTURBED_MIN} cores during {} of \
             them, after {} were measured again\n",
            self.points.len(),
            self.seconds,
            self.disturbed,
            self.repeated,
        ));
        for level in &self.levels {
            text.push_str(&level.text(self.reserve));
        }
        text
    }
}

impl Level {
    fn text(&self, reserve: f64) -> String {
        let mut text = match self.ns_per_byte {
            0.0 => "\n## Without computing\n".to_string(),
            ns => format!("\n## {ns} ns of computing per byte in each filter\n"),
        };
        text.push_str(&format!(
            "points of {} s at least; medians of {} round(s), of {} for sizes and mixed queries\n",
            self.seconds, self.rounds, self.short_rounds
        ));
        text.push_str(&self.sizes());
        text.push_str(&format!(
            "\nTCP's best block is {}: {} complete updates a second (the smallest within 5 % of the \
             highest rate); a partial update alone takes {}. Planned blocks leave {:.0} % of the \
             bandwidth free.\n",
            bytes(self.sweep.block_bytes),
            number(self.sweep.best_per_s),
            time(self.sweep.alone_us),
            reserve * 100.0,
        ));
        if !self.latency.is_empty() {
            text.push_str(&self.latencies());
        }
        if !self.rate.is_empty() {
            text.push_str(&self.rates());
        }
        if !self.mixed.is_empty() {
            text.push_str(&self.mixes());
        }
        text
    }

    fn sizes(&self) -> String {
        let mut text =
            "\nAs many complete updates as possible, by size of block: updates per second; \
                        mean latency of partial ones; CPU time per complete update\n\n"
                .to_string();
        let blocks = distinct(self.sweep.sizes.iter().map(|size| size.block_bytes));
        let mut head = vec!["blocks of".to_string()];
        let transports = [Transport::Tcp, Transport::Shm];
        head.extend(transports.map(|transport| transport.to_string()));
        let cell = |size: &Size| {
            format!(
                "{}/s; {}; {} ms",
                number(size.complete_per_s),
                time(size.partial_us),
                number(size.cpu_ms_per_complete)
            )
        };
        let rows = blocks.into_iter().map(|block| {
            let of_link = |transport| {
                let mut sizes = self.sweep.sizes.iter();
                let found =
                    sizes.find(|size| size.block_bytes == block && size.transport == transport);
                found.map_or(String::new(), cell)
            };
            let mut row = vec![bytes(block)];
            row.extend(transports.map(of_link));
            row
        });
        let mut table = Table::new(head);
        rows.for_each(|cells| table.line(cells));
        text.push_str(&table.markdown());
        text
    }

    fn latencies(&self) -> String {
        let mut text = "\nGuaranteed rate of complete updates (of TCP's best): latency of partial \
                        ones, mean and p95; block; CPU per complete update. ! rate not kept\n\n"
            .to_string();
        let rates = distinct(self.latency.iter().map(|row| row.fraction));
        let ways = distinct(self.latency.iter().map(|row| row.way));
        let mut head = vec!["rate".to_string()];
        head.extend(ways.iter().map(Way::to_string));
        let rows = rates.into_iter().map(|fraction| {
            let at_rate = self.latency.iter().filter(|row| row.fraction == fraction);
            let at_rate = at_rate.collect::<Vec<_>>();
            let rate = at_rate.first().map_or(0.0, |row| row.complete_per_s);
            let mut cells = vec![format!("{}/s ({fraction})", number(rate))];
            cells.extend(ways.iter().map(|&way| {
                let row = at_rate.iter().find(|row| row.way == way);
                row.map_or(String::new(), |row| {
                    let cpu = match row.cpu_ms_per_complete {
                        0.0 => String::new(),
                        ms => format!("; {} ms", number(ms)),
                    };
                    format!(
                        "{}, {}; {}{cpu}{}",
                        time(row.mean_us),
                        time(row.p95_us),
                        bytes(row.block_bytes),
                        if row.kept { "" } else { " !" }
                    )
                })
            }));
            cells
        });
        let mut table = Table::new(head);
        rows.for_each(|cells| table.line(cells));
        text.push_str(&table.markdown());
        text
    }

    fn rates(&self) -> String {
        let mut text =
            "\nGuaranteed mean latency of partial updates (of TCP's alone): highest rate \
                        of complete ones that kept it; block\n\n"
                .to_string();
        let multiples = distinct(self.rate.iter().map(|row| row.multiple));
        let ways = distinct(self.rate.iter().map(|row| row.way));
        let mut head = vec!["latency".to_string()];
        head.extend(ways.iter().map(Way::to_string));
        let rows = multiples.into_iter().map(|multiple| {
            let under = self.rate.iter().filter(|row| row.multiple == multiple);
            let under = under.collect::<Vec<_>>();
            let latency_us = under.first().map_or(0.0, |row| row.latency_us);
            let mut cells = vec![format!("{} ({multiple})", time(latency_us))];
            cells.extend(ways.iter().map(|&way| {
                let row = under.iter().find(|row| row.way == way);
                row.map_or(String::new(), |row| match row.complete_per_s {
                    0.0 => format!("less than {}/s", number(row.not_kept_per_s)),
                    rate => format!("{}/s; {}", number(rate), bytes(row.block_bytes)),
                })
            }));
            cells
        });
        let mut table = Table::new(head);
        rows.for_each(|cells| table.line(cells));
        text.push_str(&table.markdown());
        text
    }

    fn mixes(&self) -> String {
        let mut text =
            "\nMixed queries, which follow each other: mean response time (complete; part), \
                        by parts of the image and share of complete updates\n\n"
                .to_string();
        let cases = distinct(
            self.mixed
                .iter()
                .map(|mix| (mix.partitions, mix.complete_share)),
        );
        let ways = distinct(self.mixed.iter().map(|mix| mix.way));
        let mut head = vec!["parts".to_string(), "complete".to_string()];
        head.extend(ways.iter().map(Way::to_string));
        let rows = cases.into_iter().map(|(partitions, share)| {
            let mut cells = vec![partitions.to_string(), format!("{share}")];
            cells.extend(ways.iter().map(|&way| {
                let mut mixes = self.mixed.iter();
                let mix = mixes.find(|mix| {
                    (mix.way, mix.partitions, mix.complete_share) == (way, partitions, share)
                });
                mix.map_or(String::new(), |mix| {
                    let shown = |us: f64| match us {
                        0.0 => "-".to_string(),
                        us => time(us),
                    };
                    format!(
                        "{} ({}; {})",
                        shown(mix.mean_us),
                        shown(mix.complete_us),
                        shown(mix.partial_us)
                    )
                })
            }));
            cells
        });
        let mut table = Table::new(head);
        rows.for_each(|cells| table.line(cells));
        text.push_str(&table.markdown());
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::chunking::verdict::tests::level;

    #[test]
    fn tables_have_a_row_for_each_case_and_a_column_for_each_way() {
        let text = level(0.0).text(0.1);
        for part in [
            "| 128 KiB | 96.0/s; 500 us; 20.0 ms | 300/s; 500 us; 20.0 ms |",
            "| rate | TCP, its best block | shared memory, planned block | shared memory, the same block |",
            "| 50.0/s (0.5) | 2.00 ms, 4.00 ms; 4 KiB; 10.0 ms |",
            "| 1.80 ms (3) | 60.0/s; 4 KiB | 300/s; 4 KiB |",
            "| 64 | 0.6 | 6.00 ms (10.0 ms; 1.00 ms) |  |  |",
            "TCP's best block is 128 KiB: 96.0 complete updates a second",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
    }
}
