//! The limits of the host: moving a cache line between two cores, and copying memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slackwater::measure::side::Aligned;
use slackwater::measure::{Cores, RING_BYTES, median, pin};

/// Round trips in one timed batch.
const BATCH: u64 = 1_000;

/// Bytes per copy.
const COPY_BYTES: usize = 1 << 20;

/// Alone in its pair of cache lines.
#[repr(align(128))]
struct Line(AtomicU64);

/// Half of the round trip of one cache line between two threads that poll it: the shortest possible time
/// of a message from core to core. The median over batches.
pub fn line_one_way_ns(cores: Cores, time: Duration) -> Result<f64, String> {
    let (to, fro) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        let following = scope.spawn(|| {
            let pinned = pin(cores.follower);
            // Zero means nothing, and MAX means the end.
            let mut last = 0;
            while last != u64::MAX {
                let number = to.0.load(Ordering::Acquire);
                if number != last {
                    last = number;
                    fro.0.store(number, Ordering::Release);
                }
            }
            pinned
        });
        let leading = scope.spawn(|| {
            let pinned = pin(cores.leader);
            let mut halves = Vec::new();
            let mut number = 0;
            let begin = Instant::now();
            while halves.is_empty() || begin.elapsed() < time {
                let batch = Instant::now();
                for _ in 0..BATCH {
                    number += 1;
                    to.0.store(number, Ordering::Release);
                    while fro.0.load(Ordering::Acquire) != number {}
                }
                halves.push(batch.elapsed().as_nanos() as f64 / BATCH as f64 / 2.0);
            }
            to.0.store(u64::MAX, Ordering::Release);
            pinned.map(|()| median(halves))
        });
        let half = leading.join().map_err(|_| "a measuring thread panicked")?;
        let followed: Result<(), String> = following
            .join()
            .map_err(|_| "a measuring thread panicked")?;
        followed.and(half)
    })
}

/// Bandwidth of copying buffers as large as a ring on one core, one mebibyte at a time, in 10^9 bytes per
/// second; the median over copies of the whole buffer.
pub fn copy_bandwidth_gb_per_s(core: usize, time: Duration) -> Result<f64, String> {
    let copying = std::thread::spawn(move || -> Result<f64, String> {
        pin(core)?;
        let source = Aligned::new(RING_BYTES);
        let mut target = Aligned::new(RING_BYTES);
        let mut rates = Vec::new();
        let begin = Instant::now();
        while rates.len() < 3 || begin.elapsed() < time {
            let lap = Instant::now();
            let pieces = source.chunks(COPY_BYTES).zip(target.chunks_mut(COPY_BYTES));
            for (from, to) in pieces {
                to.copy_from_slice(from);
                std::hint::black_box(&*to);
            }
            rates.push(RING_BYTES as f64 / lap.elapsed().as_nanos() as f64);
        }
        Ok(median(rates))
    });
    copying.join().map_err(|_| "a measuring thread panicked")?
}
