//! Demand-driven dealing: a chunk goes to the instance that has the fewest rows waiting.
//!
//! A receiver acknowledges a chunk when it takes it from its link to process it; the sender gives the
//! next chunk to the receiver with the fewest unacknowledged rows (DataCutter's demand-driven scheduling,
//! `papers.md` P4). Rows are counted, not chunks, so that small chunks weigh little.
//!
//! No receiver has more than [`UNACKNOWLEDGED_MAX`] chunks waiting. When all have that many, the chunk
//! stays here and the instance takes no input. So a slow receiver holds few chunks, and the receiver of a
//! chunk is chosen as late as possible.

use std::collections::VecDeque;

use crate::exchange::LinkSender;

/// The most chunks that may wait at one receiver: one to process while the next is on its way. A receiver
/// that has become slow holds these and the one that it works on, and no more.
pub const UNACKNOWLEDGED_MAX: usize = 2;

/// The chunks on one link that its receiver has not begun to process.
#[derive(Debug, Default)]
struct Unacknowledged {
    /// The position after each chunk, and its number of rows.
    chunks: VecDeque<(u64, u64)>,
    rows: u64,
}

/// Which receiver has how many rows waiting.
#[derive(Debug)]
pub struct Demand {
    links: Vec<Unacknowledged>,
    /// Whose turn it is among equals.
    turn: usize,
}

impl Demand {
    /// No chunks waiting on any of `links` links.
    pub fn new(links: usize) -> Demand {
        Demand {
            links: (0..links).map(|_| Unacknowledged::default()).collect(),
            turn: 0,
        }
    }

    /// The link that a chunk goes to now, among those that `may_take` one; `None` while all have enough.
    /// Their receivers wake this side when they have taken something.
    pub fn choose(
        &mut self,
        senders: &mut [LinkSender],
        may_take: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let chosen = self.least_waiting(senders, &may_take);
        if chosen.is_some() {
            return chosen;
        }
        let mut taken = false;
        for (waiting, sender) in self.links.iter().zip(senders.iter_mut()) {
            let front = waiting.chunks.front();
            taken |= front.is_some_and(|&(position, _)| sender.await_acknowledged(position));
        }
        taken
            .then(|| self.least_waiting(senders, &may_take))
            .flatten()
    }

    fn least_waiting(
        &mut self,
        senders: &mut [LinkSender],
        may_take: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let count = self.links.len();
        let mut best = None;
        for offset in 0..count {
            let link = (self.turn + offset) % count;
            let (waiting, sender) = (&mut self.links[link], &mut senders[link]);
            while let Some(&(position, rows)) = waiting.chunks.front()
                && sender.is_acknowledged(position)
            {
                waiting.chunks.pop_front();
                waiting.rows -= rows;
            }
            if waiting.chunks.len() >= UNACKNOWLEDGED_MAX || !may_take(link) {
                continue;
            }
            if best.is_none_or(|(rows, _)| waiting.rows < rows) {
                best = Some((waiting.rows, link));
            }
        }
        best.map(|(_, link)| link)
    }

    /// Notes that a chunk of `rows` rows was sent on `link`, up to `position`.
    pub fn sent(&mut self, link: usize, position: u64, rows: u64) {
        self.links[link].chunks.push_back((position, rows));
        self.links[link].rows += rows;
        self.turn = (link + 1) % self.links.len();
    }
}
