//! The cuts of the views of a program, between the instances that publish rows and the threads that read.
//!
//! ```text
//! reader ─ ViewCuts::cut ─► asks whoever sends barriers ─ Cuts::issue ─► a barrier through the query
//!   ▲                                                                          │
//!   └────────────── the last cut ◄── all instances have published ◄── View::publish
//! ```
//!
//! Invariants:
//! - One barrier at a time, however many readers wait: those that come meanwhile share the next one.
//! - A cut consists of the rows of all instances of the view at one barrier. An instance that ends while
//!   others have yet to come to a barrier that it has passed is at its end from the next cut on.
//! - An instance of an earlier incarnation publishes nothing.
//! - Instances wait for nobody: they hold the lock for the time of a few pointers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::changes::{Changes, Ending};
use super::cut::{Cut, Part};

/// The most subscribers of all views of a program, each with a queue of its own.
pub const SUBSCRIBERS_MAX: usize = 256;

/// How long the last cut is kept for readers that come after it. While a cut is kept, the view copies each
/// bucket that changes.
pub const CUT_KEPT: Duration = Duration::from_secs(1);

/// Why there is no cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCut {
    /// No barrier has come through the query in time.
    TimedOut,
    /// The query has ended without rows to read: it has failed, or was never started.
    Over,
    /// There are already [`SUBSCRIBERS_MAX`] subscribers.
    TooMany,
}

/// The cuts of all views of a program.
#[derive(Default)]
pub struct Cuts {
    state: Mutex<State>,
    changed: Condvar,
}

/// The cuts of one view.
#[derive(Clone)]
pub struct ViewCuts {
    cuts: Arc<Cuts>,
    view: usize,
}

/// An instance's place among the publishers of a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    incarnation: u64,
    /// From its first publication on: others are only made to restore state.
    slot: Option<usize>,
}

#[derive(Default)]
struct State {
    incarnation: u64,
    /// Whether barriers can be sent.
    is_running: bool,
    /// Whether the query will not run again.
    is_over: bool,
    /// Whether a reader has asked for a barrier that was not sent yet.
    is_asked: bool,
    /// The number of the last barrier.
    issued: u64,
    issued_at: Option<Instant>,
    /// When a reader last used a cut.
    used_at: Option<Instant>,
    views: Vec<Gathered>,
}

/// What the instances of a view have published.
#[derive(Default)]
struct Gathered {
    instances: usize,
    joined: usize,
    parts: Vec<Option<Part>>,
    /// The last rows of instances whose parts of the barrier that is on its way are still needed.
    ends: Vec<Option<Part>>,
    /// The number of the newest barrier that all instances have reached.
    complete: u64,
    /// The newest complete cut.
    last: Option<Last>,
    /// The subscribers whose changes have not begun on all instances, with the number of their barrier once
    /// it is sent.
    waiting: Vec<(Option<u64>, Arc<Changes>)>,
    /// All subscribers, until they are gone.
    subscribers: Vec<Weak<Changes>>,
}

/// A complete cut.
struct Last {
    cut: Arc<Cut>,
    /// When the newest barrier before it was sent, and its number.
    begun: Option<Instant>,
    issued: u64,
}

impl Gathered {
    /// The newest cut, if it is the last one or its barrier was sent since `oldest`.
    fn young(&self, oldest: Option<Instant>) -> Option<&Last> {
        let last = self.last.as_ref()?;
        let is_young = oldest.is_none_or(|oldest| last.begun.is_some_and(|begun| begun >= oldest));
        (last.cut.is_last() || is_young).then_some(last)
    }

    /// Whether all instances have published at this barrier or later.
    fn has_all(&self, number: u64) -> bool {
        let mut parts = self.parts.iter();
        self.parts.len() == self.instances
            && parts.all(|part| part.as_ref().is_some_and(|part| part.number >= number))
    }

    /// All instances have published at the barrier that was issued last, or their ends.
    fn complete(&mut self, issued: u64, issued_at: Option<Instant>) {
        let is_end = self.has_all(u64::MAX);
        let parts = self.parts.iter().flatten().cloned().collect::<Vec<Part>>();
        let cut = Cut::of(&parts).map(Arc::new);
        // So that nothing but the cut keeps the buckets.
        for (part, end) in self.parts.iter_mut().zip(&mut self.ends) {
            part.take_if(|part| part.number != u64::MAX);
            *part = part.take().or_else(|| end.take());
        }
        if let Some(cut) = &cut {
            self.waiting.retain(|(at, changes)| {
                let is_its = at.is_some_and(|at| at <= issued);
                if is_its && !is_end {
                    changes.begin(cut);
                }
                !is_its
            });
        }
        self.complete = if is_end { u64::MAX } else { issued };
        self.last = cut.map(|cut| Last {
            cut,
            begun: issued_at,
            issued,
        });
        if is_end {
            self.end(Ending::Whole);
        }
    }

    fn is_last(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.cut.is_last())
    }

    fn end(&mut self, ending: Ending) {
        self.waiting.clear();
        for subscriber in std::mem::take(&mut self.subscribers) {
            subscriber.upgrade().inspect(|changes| changes.end(ending));
        }
    }
}

impl State {
    /// Whether a barrier is on its way that some view has not completed.
    fn is_on_its_way(&self) -> bool {
        let mut views = self.views.iter();
        views.any(|view| view.instances > 0 && view.complete < self.issued)
    }

    fn subscribers(&self) -> usize {
        let all = self.views.iter().flat_map(|view| &view.subscribers);
        all.filter(|subscriber| subscriber.strong_count() > 0)
            .count()
    }
}

impl Cuts {
    /// The cuts of one more view.
    pub fn add(self: &Arc<Cuts>) -> ViewCuts {
        let mut state = self.state();
        state.views.push(Gathered::default());
        ViewCuts {
            cuts: Arc::clone(self),
            view: state.views.len() - 1,
        }
    }

    /// An incarnation of the query is about to start, with so many instances of each view. What an earlier
    /// one has published is forgotten: the query resumes from a checkpoint that may be older.
    pub fn begin(&self, instances: &[usize]) {
        let mut state = self.state();
        state.incarnation += 1;
        (state.is_running, state.is_over, state.is_asked) = (true, false, false);
        (state.issued, state.issued_at) = (0, None);
        for (view, &instances) in state.views.iter_mut().zip(instances) {
            view.end(Ending::Restarted);
            *view = Gathered {
                instances,
                parts: vec![None; instances],
                ends: vec![None; instances],
                ..Gathered::default()
            };
        }
        self.changed.notify_all();
    }

    /// The incarnation has ended: no barrier can be sent until the next one begins. With `is_over` there is
    /// no next one; readers keep the last cut if the input has ended.
    pub fn end(&self, is_over: bool) {
        let mut state = self.state();
        (state.is_running, state.is_over) = (false, is_over);
        for view in &mut state.views {
            if !view.is_last() {
                view.last = None;
            }
            view.end(match is_over {
                true => Ending::Over,
                false => Ending::Restarted,
            });
        }
        self.changed.notify_all();
    }

    /// The number of the barrier to send for the readers that have asked; `None` if one is on its way, or
    /// nobody has asked.
    pub fn issue(&self) -> Option<u64> {
        let mut state = self.state();
        if !std::mem::take(&mut state.is_asked) || state.is_on_its_way() {
            return None;
        }
        state.issued += 1;
        state.issued_at = Some(Instant::now());
        let number = state.issued;
        let waiting = state.views.iter_mut().flat_map(|view| &mut view.waiting);
        waiting.for_each(|(begins, _)| *begins = Some(begins.unwrap_or(number)));
        Some(number)
    }

    /// When [`Cuts::forget`] is to be called; `None` if there is nothing to forget.
    pub fn forget_at(&self) -> Option<Instant> {
        let state = self.state();
        let mut kept = state.views.iter().filter(|view| !view.is_last());
        kept.any(|view| view.last.is_some())
            .then(|| state.used_at.map(|used| used + CUT_KEPT))?
    }

    /// Forgets the last cuts if no reader has used one for [`CUT_KEPT`], so that views need not copy what
    /// changes.
    pub fn forget(&self) {
        let mut state = self.state();
        if state.used_at.is_some_and(|used| used.elapsed() >= CUT_KEPT) {
            for view in state.views.iter_mut().filter(|view| !view.is_last()) {
                view.last = None;
            }
        }
    }

    // Panics elsewhere leave no half of a change: what is changed together is assigned last.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewCuts {
    /// A cut whose barrier was sent at most `max_age` before this call. If there is none yet, `ask` is called
    /// so that a barrier is sent ([`Cuts::issue`]); it may be called several times.
    ///
    /// # Errors
    ///
    /// If there is no cut by the time `until`.
    pub fn cut(
        &self,
        max_age: Duration,
        until: Instant,
        ask: &dyn Fn(),
    ) -> Result<Arc<Cut>, NoCut> {
        let mut cuts = ViewCuts::together(&[self], max_age, until, ask)?;
        Ok(cuts.remove(0))
    }

    /// Cuts of several views of one program at the same barrier, otherwise as [`ViewCuts::cut`].
    ///
    /// # Errors
    ///
    /// If there are no such cuts by the time `until`.
    pub fn together(
        views: &[&ViewCuts],
        max_age: Duration,
        until: Instant,
        ask: &dyn Fn(),
    ) -> Result<Vec<Arc<Cut>>, NoCut> {
        let Some(first) = views.first() else {
            return Ok(Vec::new());
        };
        // Before the clock began, any cut is young enough.
        let oldest = Instant::now().checked_sub(max_age);
        first.wait(until, ask, |state| {
            let all = views
                .iter()
                .map(|view| state.views[view.view].young(oldest));
            let all = all.collect::<Option<Vec<&Last>>>()?;
            // A view whose input has ended has the same rows at all barriers that were sent since.
            let number = all.iter().map(|last| last.cut.number()).min()?;
            let is_at = |last: &&Last| match last.cut.is_last() {
                true => number > last.issued,
                false => number == last.cut.number(),
            };
            let cuts = all.iter().map(|last| Arc::clone(&last.cut));
            all.iter().all(is_at).then(|| cuts.collect())
        })
    }

    /// The rows at a cut that is made for the subscriber, and then all changes after it.
    ///
    /// # Errors
    ///
    /// If there is no cut by the time `until`, or there are too many subscribers.
    pub fn subscribe(
        &self,
        until: Instant,
        ask: &dyn Fn(),
    ) -> Result<(Arc<Cut>, Arc<Changes>), NoCut> {
        let changes = Arc::new(Changes::default());
        {
            let mut state = self.cuts.state();
            if state.subscribers() >= SUBSCRIBERS_MAX {
                return Err(NoCut::TooMany);
            }
            let view = &mut state.views[self.view];
            view.subscribers.retain(|other| other.strong_count() > 0);
            view.subscribers.push(Arc::downgrade(&changes));
            view.waiting.push((None, Arc::clone(&changes)));
        }
        let cut = self.wait(until, ask, |state| {
            if let Some(cut) = changes.begun() {
                return Some(cut);
            }
            let view = &mut state.views[self.view];
            if view.is_last() {
                // No change follows the last cut.
                changes.end(Ending::Whole);
                return view.last.as_ref().map(|last| Arc::clone(&last.cut));
            }
            let mut waiting = view.waiting.iter();
            if !waiting.any(|(_, own)| Arc::ptr_eq(own, &changes)) {
                // A new incarnation has begun.
                view.subscribers.push(Arc::downgrade(&changes));
                view.waiting.push((None, Arc::clone(&changes)));
                changes.reopen();
            }
            None
        });
        match cut {
            Ok(cut) => Ok((cut, changes)),
            Err(none) => {
                let mut state = self.cuts.state();
                let waiting = &mut state.views[self.view].waiting;
                waiting.retain(|(_, own)| !Arc::ptr_eq(own, &changes));
                Err(none)
            }
        }
    }

    /// Waits until `found` finds something in what was gathered.
    fn wait<T>(
        &self,
        until: Instant,
        ask: &dyn Fn(),
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, NoCut> {
        let mut state = self.cuts.state();
        loop {
            if let Some(found) = found(&mut state) {
                state.used_at = Some(Instant::now());
                return Ok(found);
            }
            if state.is_over {
                return Err(NoCut::Over);
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Err(NoCut::TimedOut);
            };
            if state.is_running && !state.is_asked && !state.is_on_its_way() {
                state.is_asked = true;
                // Whoever sends barriers takes the lock.
                drop(state);
                ask();
                state = self.cuts.state();
                continue;
            }
            let waited = self.cuts.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A place for one more instance.
    pub(super) fn join(&self) -> Place {
        Place {
            incarnation: self.cuts.state().incarnation,
            slot: None,
        }
    }

    /// Publishes the rows of an instance. Returns the subscribers that get its changes from now on.
    pub(super) fn publish(&self, place: &mut Place, part: Part) -> Vec<Weak<Changes>> {
        let mut state = self.cuts.state();
        let (issued, issued_at) = (state.issued, state.issued_at);
        if state.incarnation != place.incarnation {
            return Vec::new();
        }
        let view = &mut state.views[self.view];
        let number = part.number;
        let slot = *place.slot.get_or_insert_with(|| {
            view.joined += 1;
            view.joined - 1
        });
        match (view.parts.get_mut(slot), view.ends.get_mut(slot)) {
            // Others have yet to come to the barrier, and subscribers have the changes since.
            (Some(Some(kept)), Some(end)) if number == u64::MAX && kept.number == issued => {
                *end = Some(part);
            }
            (Some(slot), _) => *slot = Some(part),
            (None, _) => return Vec::new(),
        }
        let begins = view.waiting.iter().filter(|(at, _)| *at == Some(number));
        let begins = begins.map(|(_, changes)| Arc::downgrade(changes)).collect();
        // Twice, if the last instance has ended without having seen the barrier.
        while view.has_all(issued) && view.complete != u64::MAX {
            view.complete(issued, issued_at);
            self.cuts.changed.notify_all();
        }
        begins
    }
}
