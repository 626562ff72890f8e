//! Threads that help a source whose input arrives faster than one thread parses it.
//!
//! They help on demand. A source that has kept up until now parses alone: handing a block to another thread
//! costs two threads a wake-up. After [`ALONE_NS`] without a pause, blocks that are full go to the threads.
//! Once one thread would be enough again, the source continues alone.
//!
//! A batch that lingers, and what is left after the last full block, is always parsed by the source. So the
//! rows of a partition keep their order: blocks first, then what was collected after them.

use std::task::Poll;

use slackwater_engine::link::Waker;
use slackwater_engine::source::{Helped, SourcePoll, SourceRequest};
use slackwater_engine::time::now_ns;

use super::source_rows;
use super::stream::{Linger, Shared};
use crate::parsers::{Parsers, Work};

/// How long a source has had input without a pause before others help: twice the usual linger, so that what
/// has arrived during a sleep of a few milliseconds is parsed by one thread.
const ALONE_NS: u64 = 20_000_000;

/// At least one in so many of these nanoseconds was spent on parsing; otherwise something else is the limit,
/// such as a slow sink.
const PARSING_SHARE: u64 = 4;

/// How long others help before the source looks whether they are still needed.
const TOGETHER_NS: u64 = 100_000_000;

/// They are no longer needed if one thread would have been busy for less than this share of the time.
const ENOUGH_PERCENT: u64 = 80;

/// The threads that help a source, and whether they are needed.
pub(crate) struct Helpers<W: Work> {
    parsers: Option<Parsers<W>>,
    load: Load,
    turn: usize,
    /// Whether all blocks of a partition were handed out, and its source can read on.
    has_caught_up: bool,
    /// Time that they have spent, and that nobody has asked for yet.
    helped_ns: u64,
}

impl<W: Work> Helpers<W> {
    /// The threads that the request allows besides the source's own. Called before the calling thread is
    /// pinned to a core.
    pub(crate) fn new(request: &SourceRequest) -> Helpers<W> {
        let others = request.parsers.saturating_sub(1);
        Helpers {
            parsers: (others > 0).then(|| Parsers::new(others)),
            load: Load::default(),
            turn: 0,
            has_caught_up: false,
            helped_ns: 0,
        }
    }

    /// Sets what is woken when a block is done.
    pub(crate) fn wakes(&mut self, waker: Waker) {
        if let Some(parsers) = &mut self.parsers {
            parsers.wakes(waker);
        }
    }

    /// Hands over a partition's full block; returns whether there is room for more. One of `partitions`.
    pub(crate) fn hand_over<P: Shared<Work = W>>(
        &mut self,
        partition: &mut P,
        partitions: usize,
        request: &SourceRequest,
    ) -> bool {
        let Some(parsers) = &self.parsers else {
            return false;
        };
        partition.is_block_full()
            && (partition.is_ahead() || self.load.wants_help(now_ns))
            && partition.hand_over(
                parsers,
                parsers.ahead(partitions),
                request.tuning.chunk_rows(),
            )
    }

    /// What the source returns: rows of blocks, or what `linger` says. `None`: there is nothing to return
    /// before something more was read.
    pub(crate) fn poll<P: Shared<Work = W>>(
        &mut self,
        partitions: &mut [P],
        linger: &mut Linger,
        request: &SourceRequest,
    ) -> Option<SourcePoll> {
        let Some(parsers) = &self.parsers else {
            return linger.poll(partitions, request);
        };
        self.load.resumes(now_ns);
        let mut waits = false;
        for _ in 0..partitions.len() {
            self.turn = (self.turn + 1) % partitions.len();
            let partition = &mut partitions[self.turn];
            if !partition.is_ahead() {
                continue;
            }
            let rows = partition.shared_rows(parsers, request.tuning.chunk_rows());
            let helped_ns = partition.take_helped_ns();
            self.helped_ns += helped_ns;
            self.load.helped(helped_ns);
            match rows {
                Poll::Ready(Some((rows, ingest_ns))) => {
                    let rows = source_rows(rows, partition.number(), ingest_ns);
                    return Some(SourcePoll::Rows(rows));
                }
                Poll::Ready(None) => self.has_caught_up = true,
                Poll::Pending => waits = true,
            }
        }
        let begin_ns = self.load.parses(now_ns);
        let poll = linger.poll(partitions, request);
        match poll {
            Some(SourcePoll::Rows(_)) => self.load.has_parsed(begin_ns, now_ns),
            // A thread that is done wakes the source.
            Some(SourcePoll::NotBefore { .. }) if waits => return Some(SourcePoll::Pending),
            Some(SourcePoll::NotBefore { .. }) => self.load.pauses(now_ns),
            _ => {}
        }
        poll
    }

    /// What a source returns that could read nothing more; `None` if it can now.
    pub(crate) fn pending<P: Shared>(&mut self, partitions: &[P]) -> Option<SourcePoll> {
        if std::mem::take(&mut self.has_caught_up) {
            return None;
        }
        if self.parsers.is_some() && !partitions.iter().any(P::is_ahead) {
            self.load.pauses(now_ns);
        }
        Some(SourcePoll::Pending)
    }

    /// Ends the threads, after what they are at. Blocks ahead must be gone.
    pub(crate) fn close(&mut self) {
        self.parsers = None;
    }

    /// What the threads have done since the last call.
    pub(crate) fn take_helped(&mut self) -> Helped {
        Helped {
            threads: self.parsers.as_ref().map_or(0, Parsers::started),
            busy_ns: std::mem::take(&mut self.helped_ns),
        }
    }

    /// Lets the threads help with the next full block.
    #[cfg(test)]
    pub(crate) fn at_once(&mut self) {
        self.load.begins(true, Some(now_ns()));
    }
}

/// A clock. It is only looked at while the source has been busy for some time.
type Clock = fn() -> u64;

/// Whether a source needs help.
#[derive(Debug, Default)]
struct Load {
    is_shared: bool,
    /// When the time began that is looked at: at a full block, after the last pause.
    since_ns: Option<u64>,
    /// The source's own parsing meanwhile.
    parsing_ns: u64,
    helped_ns: u64,
    paused_ns: u64,
    paused_at_ns: Option<u64>,
}

impl Load {
    fn begins(&mut self, is_shared: bool, since_ns: Option<u64>) {
        *self = Load {
            is_shared,
            since_ns,
            ..Load::default()
        };
    }

    /// Whether the source, which has a full block, needs help.
    fn wants_help(&mut self, clock: Clock) -> bool {
        if !self.is_shared {
            let now_ns = clock();
            let since_ns = *self.since_ns.get_or_insert(now_ns);
            let busy_ns = now_ns - since_ns;
            if busy_ns >= ALONE_NS {
                let is_limit = self.parsing_ns * PARSING_SHARE >= busy_ns;
                self.begins(is_limit, Some(now_ns));
            }
        }
        self.is_shared
    }

    fn parses(&self, clock: Clock) -> Option<u64> {
        (!self.is_shared && self.since_ns.is_some()).then(clock)
    }

    fn has_parsed(&mut self, begin_ns: Option<u64>, clock: Clock) {
        self.parsing_ns += begin_ns.map_or(0, |begin_ns| clock() - begin_ns);
    }

    fn helped(&mut self, helped_ns: u64) {
        self.helped_ns += helped_ns;
    }

    /// The source has nothing to do.
    fn pauses(&mut self, clock: Clock) {
        if !self.is_shared {
            // Without a pause, the time before would be counted.
            return self.begins(false, None);
        }
        let now_ns = clock();
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let all_ns = now_ns - since_ns;
        if all_ns >= TOGETHER_NS {
            let one_ns = all_ns.saturating_sub(self.paused_ns) + self.helped_ns;
            let is_enough = one_ns * 100 < all_ns * ENOUGH_PERCENT;
            self.begins(!is_enough, (!is_enough).then_some(now_ns));
        }
        if self.is_shared {
            self.paused_at_ns = Some(now_ns);
        }
    }

    /// The source is asked for rows.
    fn resumes(&mut self, clock: Clock) {
        if let Some(paused_at_ns) = self.paused_at_ns.take() {
            self.paused_ns += clock() - paused_at_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
    }

    fn clock() -> u64 {
        NOW_NS.get()
    }

    fn passes(ms: u64) {
        NOW_NS.set(NOW_NS.get() + ms * 1_000_000);
    }

    /// The source parses for this long, and then has a full block.
    fn parses(load: &mut Load, ms: u64) -> bool {
        let begin_ns = load.parses(clock);
        passes(ms);
        load.has_parsed(begin_ns, clock);
        load.wants_help(clock)
    }

    #[test]
    fn a_source_is_helped_when_it_parses_without_a_pause() {
        let mut load = Load::default();
        // Input comes in bursts: no help.
        for _ in 0..100 {
            load.resumes(clock);
            load.wants_help(clock);
            assert!(!parses(&mut load, 5) && !parses(&mut load, 5));
            load.pauses(clock);
            passes(2);
        }
        load.wants_help(clock);
        assert!(!parses(&mut load, 19));
        assert!(parses(&mut load, 1));
    }

    #[test]
    fn a_source_that_waits_for_a_sink_is_not_helped() {
        let mut load = Load::default();
        for _ in 0..100 {
            assert!(!parses(&mut load, 1));
            passes(9);
        }
    }

    #[test]
    fn help_ends_when_one_thread_would_be_enough() {
        let mut load = Load {
            is_shared: true,
            since_ns: Some(clock()),
            ..Load::default()
        };
        // In each millisecond the source works for 0.7, and others for as much.
        for _ in 0..300 {
            load.resumes(clock);
            NOW_NS.set(NOW_NS.get() + 700_000);
            load.helped(700_000);
            load.pauses(clock);
            NOW_NS.set(NOW_NS.get() + 300_000);
            assert!(load.wants_help(clock));
        }
        // For half as long: enough for one.
        for _ in 0..300 {
            load.resumes(clock);
            NOW_NS.set(NOW_NS.get() + 350_000);
            load.helped(350_000);
            load.pauses(clock);
            NOW_NS.set(NOW_NS.get() + 650_000);
        }
        assert!(!load.is_shared);
    }
}
