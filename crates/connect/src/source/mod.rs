//! Sources: where rows come from.

pub(crate) mod arrivals;
pub(crate) mod datagen;
pub(crate) mod file;
pub(crate) mod helpers;
pub(crate) mod http;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod memory;
pub(crate) mod mqtt;
pub(crate) mod readiness;
pub(crate) mod stdin;
pub(crate) mod stream;
pub(crate) mod tcp;

use slackwater_engine::source::{SourceRequest, SourceRows};

use crate::format::DecodedRows;

/// Names the partition of decoded rows.
fn source_rows(rows: DecodedRows, partition: u32, ingest_ns: u64) -> SourceRows {
    let DecodedRows {
        batch,
        positions,
        mut rejected,
    } = rows;
    for rejected in &mut rejected {
        rejected.partition = Some(partition);
    }
    SourceRows {
        batch,
        partition,
        positions,
        ingest_ns,
        rejected,
    }
}

/// Counts bytes for the progress line.
pub(crate) fn count_bytes(request: &SourceRequest, bytes: usize) {
    // Relaxed: only a statistic, which orders nothing.
    request
        .bytes_read
        .fetch_add(bytes as u64, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(test)]
mod datagen_tests;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
pub(crate) mod resume_tests;
#[cfg(test)]
mod stream_tests;

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use arrow_array::RecordBatch;
    use arrow_cast::display::array_value_to_string;
    use slackwater_engine::link::{Sources, Waiter};
    use slackwater_engine::source::{Rejected, Source, SourcePoll, SourceRequest, Tuning};
    use slackwater_engine::time::now_ns;

    /// A request for the columns, without linger.
    pub(crate) fn request(projection: &[usize]) -> SourceRequest {
        SourceRequest {
            projection: projection.to_vec(),
            instance: 0,
            instances: 1,
            here: Arc::new([0]),
            parsers: 1,
            tuning: Arc::new(Tuning::new(0, 1_000)),
            unit_per_partition: false,
            bytes_read: Arc::new(AtomicU64::new(0)),
            resume: Arc::new([]),
            saved: false,
        }
    }

    /// Everything that a source returned.
    #[derive(Debug, Default)]
    pub(crate) struct Drained {
        /// `partition:position:value|value…` of each row.
        pub(crate) strings: Vec<String>,
        pub(crate) rejected: Vec<Rejected>,
        pub(crate) chunks: usize,
        pub(crate) started: Vec<u32>,
        pub(crate) ended: Vec<u32>,
        pub(crate) units: usize,
        /// Connections lost.
        pub(crate) lost: usize,
        /// Ingest times of the chunks.
        pub(crate) ingest_ns: Vec<u64>,
    }

    /// The values of a row, NULL as `NULL`.
    pub(crate) fn row_text(batch: &RecordBatch, row: usize) -> String {
        let values = batch.columns().iter().map(|column| {
            if column.is_null(row) {
                return "NULL".to_string();
            }
            array_value_to_string(column, row).unwrap()
        });
        values.collect::<Vec<_>>().join("|")
    }

    impl Drained {
        /// Takes one poll result of a source; returns whether it was the last.
        pub(crate) fn take(&mut self, poll: SourcePoll) -> bool {
            match poll {
                SourcePoll::Rows(rows) => {
                    assert!(
                        rows.rejected
                            .iter()
                            .all(|r| r.partition == Some(rows.partition))
                    );
                    for row in 0..rows.batch.num_rows() {
                        let position = rows.positions.at(row);
                        let text = row_text(&rows.batch, row);
                        self.strings
                            .push(format!("{}:{position}:{text}", rows.partition));
                    }
                    self.rejected.extend(rows.rejected);
                    self.ingest_ns.push(rows.ingest_ns);
                    self.chunks += 1;
                }
                SourcePoll::PartitionStarted { partition, .. } => self.started.push(partition),
                SourcePoll::PartitionEnded { partition } => self.ended.push(partition),
                SourcePoll::EndOfWork => self.units += 1,
                SourcePoll::ConnectionLost => self.lost += 1,
                SourcePoll::End => return true,
                SourcePoll::Pending | SourcePoll::NotBefore { .. } => {}
            }
            false
        }
    }

    /// Polls an opened source as a worker does, until it ends or `enough` says so.
    pub(crate) fn drain_until(
        source: &mut dyn Source,
        waiter: &mut Waiter,
        enough: impl Fn(&Drained) -> bool,
    ) -> Drained {
        let mut drained = Drained::default();
        let begin = Instant::now();
        loop {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "stuck after {} rows in {} chunks, the last {:?}; {} partitions started, {} ended",
                drained.strings.len(),
                drained.chunks,
                drained.strings.last(),
                drained.started.len(),
                drained.ended.len(),
            );
            let mut poll = source.poll().unwrap();
            if matches!(poll, SourcePoll::Pending) {
                // Announce the wait, poll once more, sleep.
                waiter.announce(slackwater_link::Listen::Everything);
                poll = source.poll().unwrap();
                if matches!(poll, SourcePoll::Pending) {
                    waiter
                        .wait(Some(Duration::from_secs(10)), Sources::All)
                        .unwrap();
                    continue;
                }
                waiter.retract();
            } else {
                // A source that always has something must hear of others, too.
                waiter.look();
            }
            if let SourcePoll::NotBefore { time_ns } = poll {
                let wait_ns = time_ns.saturating_sub(now_ns());
                std::thread::sleep(Duration::from_nanos(wait_ns));
                waiter.look();
            }
            if drained.take(poll) || enough(&drained) {
                return drained;
            }
        }
    }

    /// Polls an opened source to its end.
    pub(crate) fn drain(source: &mut dyn Source, waiter: &mut Waiter) -> Drained {
        drain_until(source, waiter, |_| false)
    }

    /// Opens a source and polls it to its end.
    pub(crate) fn read_all(source: &mut dyn Source) -> Drained {
        let mut waiter = Waiter::new().unwrap();
        source.open(&mut waiter).unwrap();
        let drained = drain(source, &mut waiter);
        source.close();
        drained
    }
}
