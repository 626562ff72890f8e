//! A source of the program's own: a thousand ticks of each of three partitions, which resumes where a
//! checkpoint says.

use std::sync::Arc;
use std::thread;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use slackwater::embed::{Custom, Given, Offer, Outlet, Piece, Reader, Reading, Terms};

/// Ticks of each partition.
pub const TICKS: i64 = 1000;

/// Ticks that are handed on together.
const TOGETHER: i64 = 100;

/// Offers the source under the name `ticks`.
pub fn offer() -> Offer {
    let terms = Terms {
        partitions: 3,
        has_offsets: true,
        ends: true,
    };
    Offer::new("ticks", Custom::source(Box::new(Ticks), terms))
}

struct Ticks;

/// A thread that reads sees by its outlet that it should end.
struct Thread;

impl Reading for Thread {
    fn stop(&self) {}
}

impl Reader for Ticks {
    fn start(&self, outlet: Outlet) -> slackwater::embed::Result<Box<dyn Reading>> {
        thread::spawn(move || {
            let offset = outlet
                .offset()
                .and_then(|offset| offset.parse::<i64>().ok());
            let mut next = offset.unwrap_or(0);
            while next < TICKS {
                let end = (next + TOGETHER).min(TICKS);
                let piece = Piece {
                    rows: rows(outlet.partition(), next..end),
                    bad: Vec::new(),
                    offset: Some(end.to_string()),
                };
                // Waits while the query is behind.
                match outlet.push(piece, None) {
                    Ok(Given::Closed) => break,
                    Ok(_) => next = end,
                    Err(reason) => {
                        outlet.fail(slackwater::embed::SourceError::new("ticks", reason));
                        return;
                    }
                }
            }
            outlet.end();
        });
        Ok(Box::new(Thread))
    }
}

/// The columns are found by their names, and cast to those of the table.
fn rows(partition: u32, ticks: std::ops::Range<i64>) -> RecordBatch {
    let count = (ticks.end - ticks.start) as usize;
    let columns: [(&str, ArrayRef); 3] = [
        (
            "part",
            Arc::new(Int32Array::from(vec![partition as i32; count])),
        ),
        ("n", Arc::new(Int64Array::from_iter_values(ticks.clone()))),
        (
            "ms",
            Arc::new(Int64Array::from_iter_values(ticks.map(|tick| tick * 10))),
        ),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of the same length")
}
