//! Which of a window's groups have been emitted, if that happens more than once.

use std::collections::HashMap;

use crate::chunk::RowKind;

/// Which of a window's groups have been emitted.
#[derive(Default)]
pub struct Updates {
    /// The flags [`SENT`] and [`CHANGED`] of each group.
    states: Vec<i8>,
    /// The groups that have changed since they were emitted.
    changed: Vec<u32>,
    /// The old rows of these groups, encoded, if requested.
    befores: HashMap<u32, Box<[u8]>, foldhash::fast::FixedState>,
}

/// The group has been emitted.
const SENT: i8 = 1;
/// The group has changed since.
const CHANGED: i8 = 2;

impl Updates {
    /// Notes that these groups have changed.
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

    /// The flags of groups, for a snapshot.
    pub fn states(&self, groups: &[u32]) -> Vec<i8> {
        let states = groups.iter();
        states.map(|&group| self.states[group as usize]).collect()
    }

    /// Forgets what is known of groups.
    pub fn reset(&mut self, groups: &[u32]) {
        let mut has_changed = false;
        for &group in groups {
            if let Some(state) = self.states.get_mut(group as usize) {
                has_changed |= std::mem::take(state) & CHANGED != 0;
            }
            self.befores.remove(&group);
        }
        if has_changed {
            let states = &self.states;
            self.changed
                .retain(|&group| states[group as usize] & CHANGED != 0);
        }
    }

    /// Restores the flags of a group.
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

    /// Whether a group has been emitted, and has changed since.
    pub fn has_changed_since(&self, group: u32) -> bool {
        self.states[group as usize] == SENT | CHANGED
    }

    /// The old row of a group that has changed.
    pub fn before(&self, group: u32) -> Option<&[u8]> {
        self.befores.get(&group).map(|bytes| &**bytes)
    }

    /// Removes and returns the old row of a group that has changed.
    pub fn take_before(&mut self, group: u32) -> Option<Box<[u8]>> {
        self.befores.remove(&group)
    }

    /// Notes the old row of a group.
    pub fn note_before(&mut self, group: u32, before: &[u8]) {
        self.befores.insert(group, before.into());
    }

    /// Those groups that have been emitted and not changed since.
    pub fn unchanged(&self, groups: &[u32]) -> Vec<u32> {
        let state = |group: &u32| self.states.get(*group as usize).copied();
        let groups = groups.iter().copied();
        let unchanged = groups.filter(|group| state(group) == Some(SENT));
        let mut unchanged = unchanged.collect::<Vec<u32>>();
        unchanged.sort_unstable();
        unchanged.dedup();
        unchanged
    }

    /// Notes that a row was rejected because it has no value, so it has not been emitted.
    pub fn was_refused(&mut self, group: u32) {
        self.states[group as usize] &= !SENT;
    }

    /// Forgets all groups, and keeps the memory.
    pub fn clear(&mut self) {
        self.states.clear();
        self.changed.clear();
        self.befores.clear();
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let befores = self.befores.values().map(|before| before.len() + 32);
        self.states.capacity() + self.changed.capacity() * 4 + befores.sum::<usize>()
    }

    /// Takes up to `most` groups that have changed, and the kinds of their rows.
    pub fn take(&mut self, most: usize) -> (Vec<u32>, Vec<i8>) {
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
