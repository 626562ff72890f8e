//! Splitting rows by their keys.
//!
//! The chunks that one step of an instance sends are split together. Otherwise each of them would become one
//! for each receiver, and each of these again at the next subquery, although the work for a chunk has a fixed
//! part: at parallelism 2 a join followed by two aggregates had eight times as many chunks.
//!
//! Watermarks between these chunks are left out, except for the last one, which follows the rows. So what a
//! receiver gets is what it would get if the source had read larger chunks, on which no answer depends (I1).

use std::sync::Arc;

use arrow_array::cast::AsArray;

use super::{COUNTED_CHUNKS, first_owners};
use crate::barrier::Barrier;
use crate::chunk::{Chunk, KeyHashes, Message};
use crate::counters::StepCounters;
use crate::error::Result;
use crate::hash::bucket;
use crate::key::KeyColumns;
use crate::time::EventTime;

/// Rows that are split together, unless one chunk has more. For as many the fixed part of the work is small,
/// and they are still in the caches: with 8,192, Nexmark's q18, whose rows are wide, took more CPU time.
const HELD_ROWS_MAX: usize = 2048;

/// Splits chunks by the keys of their rows.
pub(super) struct Keyed {
    columns: Arc<[usize]>,
    keep_origin: bool,
    to: usize,
    /// Which links stay in this process. The others copy each part into their own memory anyway, and
    /// leave hashes out.
    stays: Vec<bool>,
    /// The link of each bucket.
    owners: Vec<u16>,
    chunks: u64,
    /// Chunks to be split together.
    held: Vec<Chunk>,
    held_rows: usize,
    /// The last watermark after `held`, and its `ingest_ns`.
    watermark: Option<(EventTime, u64)>,
}

impl Keyed {
    /// Splits by `columns`, for node `to` of the query graph, over a link for each item of `stays`: whether
    /// it stays in this process.
    pub fn new(columns: Vec<usize>, keep_origin: bool, to: usize, stays: Vec<bool>) -> Keyed {
        Keyed {
            columns: columns.into(),
            keep_origin,
            to,
            owners: first_owners(stays.len()),
            stays,
            chunks: 0,
            held: Vec::new(),
            held_rows: 0,
            watermark: None,
        }
    }

    /// Whether no chunk is kept.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps a chunk to be split with others. Returns it if what is kept has to be split before.
    pub fn hold(&mut self, mut chunk: Chunk) -> Option<Chunk> {
        if !self.keep_origin {
            chunk.origin = None;
        }
        let rows = chunk.rows();
        if let Some(last) = self.held.last()
            && (self.held_rows + rows > HELD_ROWS_MAX || !last.is_like(&chunk))
        {
            return Some(chunk);
        }
        self.held_rows += rows;
        self.held.push(chunk);
        None
    }

    /// Keeps a watermark for after the chunks that are kept, if there are any.
    pub fn hold_watermark(&mut self, message: &Message) -> bool {
        let Message::Watermark { time, ingest_ns } = *message else {
            return false;
        };
        if self.held.is_empty() {
            return false;
        }
        // What an earlier one completes has waited since then.
        let before_ns = self.watermark.map_or(u64::MAX, |(_, before_ns)| before_ns);
        self.watermark = Some((time, ingest_ns.min(before_ns)));
        true
    }

    /// The watermark to send after the chunks that were kept.
    pub fn take_watermark(&mut self) -> Option<Message> {
        let (time, ingest_ns) = self.watermark.take()?;
        Some(Message::Watermark { time, ingest_ns })
    }

    /// Splits the chunks that are kept into parts, each with its link.
    pub fn split(&mut self, counters: &StepCounters) -> Result<Vec<(usize, Chunk)>> {
        let chunks = std::mem::take(&mut self.held);
        self.held_rows = 0;
        let links = self.stays.len();
        // For each link, the rows of each chunk.
        let mut rows = vec![Vec::with_capacity(chunks.len()); links];
        let mut hashes = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            let keys = KeyColumns::of_batch(&chunk.batch, &self.columns)?;
            // Somewhat more than an even share, so that few lists have to grow.
            let share = chunk.rows() / links;
            let mut split = vec![Vec::<u32>::with_capacity(share + share / 8); links];
            for (row, &hash) in keys.hashes().iter().enumerate() {
                split[usize::from(self.owners[bucket(hash)])].push(row as u32);
            }
            if self.chunks.is_multiple_of(COUNTED_CHUNKS) {
                counters.count_buckets(keys.hashes(), COUNTED_CHUNKS);
            }
            self.chunks += 1;
            hashes.push(keys);
            for (rows, split) in rows.iter_mut().zip(split) {
                rows.push(split);
            }
        }
        let mut parts = Vec::with_capacity(links);
        for (link, rows) in rows.into_iter().enumerate() {
            if rows.iter().all(Vec::is_empty) {
                continue;
            }
            let stays = self.stays[link];
            let key_hashes = stays.then(|| KeyHashes {
                columns: Arc::clone(&self.columns),
                hashes: (rows.iter().zip(&hashes))
                    .flat_map(|(rows, keys)| rows.iter().map(|&row| keys.hashes()[row as usize]))
                    .collect(),
            });
            let count = rows.iter().map(Vec::len).sum::<usize>();
            let is_whole = chunks.len() == 1 && count == chunks[0].rows();
            let mut part = match is_whole {
                true => chunks[0].clone(),
                false => {
                    let part = Chunk::gather(&chunks, rows)?;
                    if stays { self.gathered(part)? } else { part }
                }
            };
            part.key_hashes = key_hashes;
            parts.push((link, part));
        }
        Ok(parts)
    }

    /// Returns the rows with the bytes of their string keys side by side. The receiver looks at each key,
    /// and would otherwise fetch a cache line for each from where the source has read it; here they have
    /// just been read.
    fn gathered(&self, chunk: Chunk) -> Result<Chunk> {
        let mut columns = chunk.batch.columns().to_vec();
        let mut has_strings = false;
        for &column in self.columns.iter() {
            if let Some(strings) = columns[column].as_string_view_opt() {
                columns[column] = Arc::new(strings.gc());
                has_strings = true;
            }
        }
        match has_strings {
            true => chunk.with_columns(chunk.batch.schema(), columns),
            false => Ok(chunk),
        }
    }

    /// Moves buckets to other links.
    pub fn change(&mut self, barrier: &Barrier) {
        for step in barrier.moves_of(self.to) {
            debug_assert_eq!(self.owners[usize::from(step.bucket)], step.from);
            self.owners[usize::from(step.bucket)] = step.to;
        }
    }
}
