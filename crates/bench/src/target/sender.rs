//! The sender: an open loop over absolute deadlines, one write for all that is due.

use std::io::Write;

use super::order::{Order, Sent};
use super::records::{RECORD_BYTES, RecordWriter, is_kept, reading};
use crate::common::{Interval, Latency, histogram, sleep_until};

/// Time for which records continue after the interval, so that its last records are not the last ones of
/// the stream, which the end of the stream would flush.
pub const TAIL_NS: u64 = 300_000_000;

/// Bytes of a write, at most, after the sender was held up: what a socket accepts at once.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// A sender that is this far behind after the last deadline stops.
const BEHIND_MAX_NS: u64 = 2_000_000_000;

/// Sends what the order requests from `start_ns` on, and returns how late it was.
pub fn send(
    order: &Order,
    start_ns: u64,
    interval: Interval,
    stream: &mut impl Write,
) -> Result<(Sent, Latency), String> {
    let schedule = order.schedule();
    let stop_ns = interval.end_ns + TAIL_NS;
    let mut writer = RecordWriter::new(order.query);
    let mut batch = Vec::with_capacity(WRITE_BYTES_MAX + RECORD_BYTES);
    let mut lags = histogram();
    let mut sent = Sent {
        records: 0,
        unsent: 0,
        kept: 0,
        kept_stamps: 0,
    };
    let mut due_ns = start_ns;
    while due_ns < stop_ns {
        let now_ns = sleep_until(due_ns);
        if now_ns >= stop_ns + BEHIND_MAX_NS {
            break;
        }
        while due_ns <= now_ns && due_ns < stop_ns && batch.len() < WRITE_BYTES_MAX {
            let reading = reading(sent.records);
            let offset_ns = due_ns - start_ns;
            writer.append(sent.records, offset_ns, reading, &mut batch);
            if is_kept(reading) {
                sent.kept += 1;
                let stamp = super::records::STAMP_BASE + offset_ns;
                sent.kept_stamps = sent.kept_stamps.wrapping_add(stamp);
            }
            if interval.contains(due_ns) {
                lags.saturating_record(now_ns - due_ns);
            }
            sent.records += 1;
            due_ns = start_ns + schedule.offset_ns(sent.records);
        }
        stream
            .write_all(&batch)
            .map_err(|error| format!("can't send record {}: {error}", sent.records))?;
        batch.clear();
    }
    sent.unsent = schedule
        .first_at(stop_ns - start_ns)
        .saturating_sub(sent.records);
    Ok((sent, Latency::of(&lags)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::query::Query;
    use slackwater_engine::time::now_ns;

    /// Counts writes and bytes.
    #[derive(Default)]
    struct Counting(Vec<usize>);

    impl Write for Counting {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn order(rate_per_s: u64) -> Order {
        Order {
            query: Query::Filter,
            rate_per_s,
            warm_up_ns: 0,
            time_ns: 20_000_000,
            core: 0,
        }
    }

    fn run(start_ns: u64) -> (Sent, Vec<usize>) {
        let order = order(5_000);
        let interval = Interval {
            begin_ns: start_ns,
            end_ns: start_ns + order.time_ns,
        };
        let mut writes = Counting::default();
        let (sent, _) = send(&order, start_ns, interval, &mut writes).unwrap();
        assert_eq!(writes.0.iter().sum::<usize>() as u64, sent.records * 200);
        (sent, writes.0)
    }

    #[test]
    fn everything_due_is_sent_in_whole_ticks() {
        let (sent, writes) = run(now_ns());
        assert_eq!((sent.records, sent.unsent), (1_600, 0));
        assert!(
            writes
                .iter()
                .all(|bytes| bytes.is_multiple_of(5 * RECORD_BYTES))
        );
    }

    #[test]
    fn a_sender_that_is_far_behind_stops_and_counts_what_is_missing() {
        // All records were due three seconds ago.
        let (sent, writes) = run(now_ns() - 3_000_000_000);
        assert_eq!((sent.records, sent.unsent), (0, 1_600));
        assert!(writes.is_empty());
        // Records that were due less than a second ago are still sent, as fast as they are accepted.
        let (sent, writes) = run(now_ns() - 400_000_000);
        assert_eq!((sent.unsent, writes), (0, vec![1_600 * RECORD_BYTES]));
    }
}
