//! Windows whose value is emitted more than once: before they close (early firing), and after (allowed
//! lateness).
//!
//! The first row for a group is an insert, each further one an update of it; a group is emitted only if it
//! has changed since. So how many there are depends on the run; the last one, behind the end of the window
//! and its lateness, does not.

use super::groups::Groups;
use super::{Aggregate, WindowKey, emit_updates};
use crate::chunk::{Chunk, RowKind};
use crate::error::Result;
use crate::operator::window::ticks_to_us;
use crate::operator::{Output, Progress};
use crate::state::Mark;
use crate::time::{EventTime, now_ns};

/// When the value of a window is emitted beside at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updating {
    /// So long after it has changed, in nanoseconds of the engine's clock.
    pub every_ns: Option<u64>,
    /// For each row that comes until the watermark is so many microseconds behind the end.
    pub lateness_us: EventTime,
}

/// What of a window's groups has been emitted.
#[derive(Default)]
pub struct Updates {
    /// [`SENT`] and [`CHANGED`] of each group.
    states: Vec<i8>,
    /// The groups that have changed since they were emitted.
    changed: Vec<u32>,
}

/// It has been emitted.
const SENT: i8 = 1;
/// It has changed since.
const CHANGED: i8 = 2;

impl Updates {
    /// These groups have changed.
    pub fn change(&mut self, groups: &[u32]) {
        for &group in groups {
            let index = group as usize;
            if self.states.len() <= index {
                self.states.resize(index + 1, 0);
            }
            if self.states[index] & CHANGED == 0 {
                self.states[index] |= CHANGED;
                self.changed.push(group);
            }
        }
    }

    /// What is known of groups, for a snapshot.
    pub fn states(&self, groups: &[u32]) -> Vec<i8> {
        let states = groups.iter();
        states.map(|&group| self.states[group as usize]).collect()
    }

    /// What a snapshot knew of a group.
    pub fn restore(&mut self, group: u32, state: i8) {
        if state & CHANGED != 0 {
            self.change(&[group]);
        }
        let index = group as usize;
        if self.states.len() <= index {
            self.states.resize(index + 1, 0);
        }
        self.states[index] |= state & SENT;
    }

    /// Whether some group has changed since it was emitted.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    pub fn clear(&mut self) {
        self.states.clear();
        self.changed.clear();
    }

    pub fn bytes(&self) -> usize {
        self.states.capacity() + self.changed.capacity() * 4
    }

    /// Takes up to `most` groups that have changed, and what their rows are.
    fn take(&mut self, most: usize) -> (Vec<u32>, Vec<i8>) {
        let rest = self.changed.split_off(most.min(self.changed.len()));
        let groups = std::mem::replace(&mut self.changed, rest);
        let kinds = groups.iter().map(|&group| {
            let state = std::mem::replace(&mut self.states[group as usize], SENT);
            match state & SENT {
                0 => RowKind::Insert as i8,
                _ => RowKind::Update as i8,
            }
        });
        let kinds = kinds.collect();
        (groups, kinds)
    }
}

impl Groups {
    fn has_changed(&self) -> bool {
        self.updates.as_ref().is_some_and(Updates::has_changed)
    }
}

impl Aggregate {
    /// How long behind its end a window takes rows.
    pub(super) fn lateness_us(&self) -> EventTime {
        self.spec
            .updating
            .map_or(0, |updating| updating.lateness_us)
    }

    /// Rows of the window at `end` have been added: its groups are in `self.groups`.
    pub(super) fn note_changes(
        &mut self,
        window: WindowKey,
        end: i64,
        output: &mut Output,
    ) -> Result<()> {
        let Some(updating) = self.spec.updating else {
            return Ok(());
        };
        let groups = std::mem::take(&mut self.groups);
        if let Some(updates) = self.updates(end) {
            updates.change(&groups);
        }
        self.groups = groups;
        if ticks_to_us(end, window.windows.unit) <= self.watermark {
            // It has been emitted; there are no more groups than the chunk has rows.
            return self.emit_changed(window, end, usize::MAX, output);
        }
        self.ask_for_time(updating);
        Ok(())
    }

    fn updates(&mut self, end: i64) -> Option<&mut Updates> {
        self.tables.get_mut(&end)?.updates.as_mut()
    }

    /// Nothing is asked for while nothing has changed: an idle query has no timer.
    pub(super) fn ask_for_time(&mut self, updating: Updating) {
        if let (Some(every_ns), None) = (updating.every_ns, self.due_ns) {
            self.due_ns = Some(now_ns().saturating_add(every_ns));
        }
    }

    /// Emits up to `most` groups of a window that have changed.
    fn emit_changed(
        &mut self,
        window: WindowKey,
        end: i64,
        most: usize,
        output: &mut Output,
    ) -> Result<()> {
        let mark: Mark = self.mark;
        let Some(table) = self.tables.get_mut(&end) else {
            return Ok(());
        };
        let Some(updates) = &mut table.updates else {
            return Ok(());
        };
        let (groups, kinds) = updates.take(most);
        // That it was emitted is part of the state.
        table.touch(&groups, mark);
        let front = window.windows.edges(end, groups.len());
        let (batch, failed) = table.result(&groups, &front, &self.spec.schema)?;
        let chunk = Chunk {
            kinds: Some(kinds.into()),
            ..Chunk::new(batch, output.ingest_ns)
        };
        emit_updates(chunk, &failed, output)
    }

    /// Emits what has changed in windows that are closed, and forgets those that take no more rows.
    pub(super) fn advance_updating(
        &mut self,
        window: WindowKey,
        output: &mut Output,
    ) -> Result<Progress> {
        let watermark = self.watermark;
        let ends_at = |end: i64| window.windows.to_event_time(end);
        let closed = self.tables.iter();
        let closed = closed.take_while(|(end, _)| ends_at(**end) <= watermark);
        let mut changed = closed.filter(|(_, table)| table.has_changed());
        if let Some((&end, _)) = changed.next() {
            self.emit_changed(window, end, output.chunk_rows, output)?;
            return Ok(Progress::More);
        }
        let lateness_us = self.lateness_us();
        while let Some((&end, _)) = self.tables.first_key_value()
            && ends_at(end).saturating_add(lateness_us) <= watermark
        {
            let (_, table) = self.tables.pop_first().expect("looked at just above");
            self.recycle(table);
        }
        Ok(Progress::Done)
    }

    /// Emits what has changed in all windows, some of it: the time has come that was asked for.
    pub(super) fn emit_early(&mut self, output: &mut Output) -> Result<Progress> {
        let mut changed = self.tables.iter().filter(|(_, table)| table.has_changed());
        match (changed.next(), self.spec.window) {
            (Some((&end, _)), Some(window)) => {
                self.emit_changed(window, end, output.chunk_rows, output)?;
                Ok(Progress::More)
            }
            _ => {
                self.due_ns = None;
                Ok(Progress::Done)
            }
        }
    }
}
