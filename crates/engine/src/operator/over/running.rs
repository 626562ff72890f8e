//! The running values of each key: counts, and aggregates of all rows so far.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array, UInt64Array};

use super::frames::Piece;
use super::rows::{Counts, KeyRows, RunsOn};
use super::{Frame, OverCall, OverFunction};
use crate::accumulator::{self, Accumulator, AggregateFunction, OrderKey, Values};
use crate::error::Result;
use crate::operator::aggregate::scan_filtered;
use crate::operator::keyed::Keyed;
use crate::state::Mark;

/// Running aggregates: a group in each accumulator per key.
pub struct Running {
    /// Whether some function is running.
    is_needed: bool,
    /// The accumulators by function; `None` for a function whose aggregate is not running.
    accumulators: Vec<Option<Box<dyn Accumulator>>>,
    groups: u32,
    /// For the rows of the piece: their groups and counts, and the last row of the same time.
    piece_groups: Vec<u32>,
    piece_counts: Vec<Counts>,
    piece_peers: Vec<u32>,
}

impl Running {
    /// Running values without keys.
    pub fn new(calls: &[OverCall]) -> Result<Running> {
        let accumulators = calls.iter().map(|call| match &call.function {
            OverFunction::Aggregate { function, .. } if call.function.runs_on() => {
                function.accumulator().map(Some)
            }
            _ => Ok(None),
        });
        Ok(Running {
            is_needed: calls.iter().any(|call| call.function.runs_on()),
            accumulators: accumulators.collect::<Result<Vec<_>>>()?,
            groups: 0,
            piece_groups: Vec::new(),
            piece_counts: Vec::new(),
            piece_peers: Vec::new(),
        })
    }

    /// Counts the rows of a piece.
    pub fn begin(&mut self, piece: &Piece, keys: &mut Keyed<KeyRows>, mark: Mark) {
        self.piece_groups.clear();
        self.piece_counts.clear();
        self.piece_peers.clear();
        if !self.is_needed {
            return;
        }
        let mut times = piece.times();
        let mut changed = Vec::with_capacity(piece.segments().len());
        for segment in piece.segments().iter().filter(|segment| segment.rows > 0) {
            let rows = keys.get_mut(segment.key);
            let mut of_key = match rows.running {
                Some(running) => running,
                None => self.new_group(mark),
            };
            of_key.mark = mark;
            changed.push(segment.key);
            let counts = &mut of_key.counts;
            for time in times.by_ref().take(segment.rows) {
                if counts.last != Some(time) {
                    counts.last = Some(time);
                    counts.rank = counts.rows + 1;
                    counts.times += 1;
                }
                counts.rows += 1;
                self.piece_counts.push(*counts);
                self.piece_groups.push(of_key.group);
            }
            rows.running = Some(of_key);
        }
        changed.iter().for_each(|&key| keys.touch(key, mark));
        // Backwards: the last row of a time is its own peer.
        let mut peers = vec![0; self.piece_counts.len()];
        for row in (0..peers.len()).rev() {
            let same = |next: usize| {
                self.piece_groups[next] == self.piece_groups[row]
                    && self.piece_counts[next].last == self.piece_counts[row].last
            };
            peers[row] = match row + 1 < peers.len() && same(row + 1) {
                true => peers[row + 1],
                false => row as u32,
            };
        }
        self.piece_peers = peers;
    }

    /// The group of a new key.
    pub fn new_group(&mut self, mark: Mark) -> RunsOn {
        let group = self.groups;
        self.groups += 1;
        for accumulator in self.accumulators.iter_mut().flatten() {
            accumulator.resize(self.groups as usize);
        }
        RunsOn {
            counts: Counts::default(),
            group,
            mark,
        }
    }

    /// The values of function `number` for the rows of the piece.
    pub fn values(&mut self, number: usize, call: &OverCall, piece: &Piece) -> Result<Values> {
        let count = |count_of: fn(&Counts) -> u64| {
            let counts = self.piece_counts.iter().map(count_of);
            Ok(Values::all(Arc::new(UInt64Array::from_iter_values(counts))))
        };
        match &call.function {
            OverFunction::RowNumber => count(|counts| counts.rows),
            OverFunction::Rank => count(|counts| counts.rank),
            OverFunction::DenseRank => count(|counts| counts.times),
            OverFunction::Aggregate { function, frame } => {
                self.aggregates(number, call, function, *frame, piece)
            }
            OverFunction::Lag { .. } => unreachable!("it is not running"),
        }
    }

    fn aggregates(
        &mut self,
        number: usize,
        call: &OverCall,
        function: &AggregateFunction,
        frame: Frame,
        piece: &Piece,
    ) -> Result<Values> {
        let arguments = call.arguments.iter();
        let arguments = arguments.map(|&column| piece.column(column));
        let arguments = arguments.collect::<Result<Vec<ArrayRef>>>()?;
        let order = match function.needs_order() {
            true => self.piece_counts.iter(),
            false => [].iter(),
        };
        // The number of a row among those of its key is its order.
        let order = order.map(|counts| (counts.rows as i64, 0, 0));
        let order = order.collect::<Vec<OrderKey>>();
        let accumulator = self.accumulators[number].as_mut();
        let accumulator = accumulator.expect("it runs on");
        let groups = &self.piece_groups;
        let values = match call.filter {
            None => accumulator.scan(groups, &arguments, &order)?,
            Some(filter) => {
                let filter = piece.column(filter)?;
                scan_filtered(accumulator, groups, &arguments, &order, filter.as_boolean())?
            }
        };
        if let Frame::Rows(_) = frame {
            return Ok(values);
        }
        // Rows of one time belong to each other's frames: the last one's value is that of all.
        let peers = UInt32Array::from(self.piece_peers.clone());
        let reasons = values.failed.iter().rev();
        let reasons = reasons.map(|(row, reason)| (*row, reason));
        let reasons = reasons.collect::<HashMap<usize, &String>>();
        let failed = |row: usize| {
            let peer = self.piece_peers[row] as usize;
            // A row that could not be added has failed alone: its peers have the value without it.
            let has_value = values.column.is_valid(peer);
            let of_peer = || reasons.get(&peer).filter(|_| !has_value);
            let reason = reasons.get(&row).or_else(of_peer)?;
            Some((row, (*reason).clone()))
        };
        Ok(Values {
            column: arrow_select::take::take(&values.column, &peers, None)?,
            failed: match values.failed.is_empty() {
                true => Vec::new(),
                false => (0..peers.len()).filter_map(failed).collect(),
            },
        })
    }

    /// The states of groups, one accumulator after the other.
    pub fn states(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>> {
        let accumulators = self.accumulators.iter_mut().flatten();
        accumulator::states(accumulators.map(Box::as_mut), groups)
    }

    /// Forgets the values of groups.
    pub fn reset(&mut self, groups: &[u32]) {
        let accumulators = self.accumulators.iter_mut().flatten();
        accumulators.for_each(|accumulator| accumulator.reset(groups));
    }

    /// Merges states in the form of [`Running::states`].
    pub fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<()> {
        let accumulators = self.accumulators.iter_mut().flatten();
        accumulator::merge_states(accumulators.map(Box::as_mut), groups, states)
    }

    /// Forgets all groups except those of the remaining keys, which get new ones.
    pub fn keep_only(&mut self, keys: &mut Keyed<KeyRows>) -> Result<()> {
        let left = keys.numbers(|_| true);
        let kept = left.iter().filter_map(|&key| {
            let running = keys.get(key).running?;
            Some((key, running))
        });
        let kept = kept.collect::<Vec<(u32, RunsOn)>>();
        let groups = kept.iter().map(|(_, running)| running.group);
        let states = self.states(&groups.collect::<Vec<u32>>())?;
        self.clear();
        let mut groups = Vec::new();
        for (key, running) in kept {
            let group = self.new_group(running.mark).group;
            groups.push(group);
            keys.get_mut(key).running = Some(RunsOn { group, ..running });
        }
        self.merge(&groups, &states)
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        let accumulators = self.accumulators.iter_mut().flatten();
        accumulators.for_each(|accumulator| accumulator.resize(0));
        self.groups = 0;
    }

    /// Whether some function is running.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let accumulators = self.accumulators.iter().flatten();
        accumulators.map(|accumulator| accumulator.bytes()).sum()
    }
}
