//! Barriers: cuts through all streams of a deployment at once.
//!
//! Every source puts the barrier among its messages; an instance that has received it on all of its
//! links stands at the cut: it has taken in exactly the rows before it. Then it does what the barrier
//! asks for, and passes it on. (The alignment is Carbone, Ewen and others, "Lightweight Asynchronous
//! Snapshots for Distributed Dataflows", section 4.)
//!
//! It asks for one of two things:
//! - A **move of buckets**: from the cut on, rows of the moved buckets go to other instances of a
//!   subquery, which get the state of the rows before.
//! - A **checkpoint**: every instance says what it has at the cut ([`crate::checkpoint`]), and goes on.
//!
//! Invariants of moves:
//! - No row is lost or doubled: before the cut a bucket's rows reach its old instance, after it the new
//!   one, since senders change their minds between two messages, at the barrier.
//! - The new instance takes in nothing between the cut and the last state that is handed to it.
//! - Rows of one key keep their order up to the sinks: the barrier is aligned on the way there too, so
//!   what the old instance emitted is taken in before what the new one does.
//! - All instances of the subquery have seen the same watermarks at the cut, since watermarks go to all
//!   of them; only silence ([`crate::chunk::Message::Idle`]) may end at different times, and then a
//!   window that one of them has closed is emitted with the next watermark.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::BUCKETS;

/// Moves in one barrier at most: every bucket once.
pub const MOVES_MAX: usize = BUCKETS;

/// Instances that a barrier names at most.
pub const BASES_MAX: usize = 1 << 16;

/// A cut, and what is to be done there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// Barriers of a deployment for one purpose are numbered upwards, from 1.
    pub number: u64,
    /// What is to be done.
    pub purpose: Purpose,
}

/// What is to be done at a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Buckets move; there is one such barrier at a time.
    Move {
        /// The subquery whose buckets move, by its head's number in the query graph.
        node: usize,
        /// Which buckets.
        #[serde(with = "shared")]
        moves: Arc<[BucketMove]>,
    },
    /// A checkpoint is taken.
    Checkpoint {
        /// Snapshots hold what has changed since the checkpoint at this barrier; none for everything.
        since: Option<u64>,
        /// Instances that snapshot everything all the same, by their numbers in the deployment.
        #[serde(with = "shared")]
        bases: Arc<[u32]>,
        /// Sources end behind the barrier: the query is stopped.
        stops: bool,
    },
}

/// A bucket goes to another instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketMove {
    /// The bucket ([`crate::hash::bucket`]).
    pub bucket: u16,
    /// The instance that had it, by its number among those of the subquery.
    pub from: u16,
    /// The instance that gets it.
    pub to: u16,
}

impl Barrier {
    /// What moves between the instances of the subquery with the head `node`.
    pub fn moves_of(&self, node: usize) -> &[BucketMove] {
        match &self.purpose {
            Purpose::Move { node: moved, moves } if *moved == node => moves,
            _ => &[],
        }
    }

    fn moves(&self) -> &[BucketMove] {
        match &self.purpose {
            Purpose::Move { moves, .. } => moves,
            Purpose::Checkpoint { .. } => &[],
        }
    }

    /// Instances that hand something to instance `to`, each once.
    pub fn givers(&self, to: usize) -> Vec<usize> {
        let moves = self.moves().iter().filter(|m| usize::from(m.to) == to);
        distinct(moves.map(|m| m.from))
    }

    /// Instances that instance `from` hands something to, each once.
    pub fn takers(&self, from: usize) -> Vec<usize> {
        let moves = self.moves().iter().filter(|m| usize::from(m.from) == from);
        distinct(moves.map(|m| m.to))
    }
}

fn distinct(numbers: impl Iterator<Item = u16>) -> Vec<usize> {
    let mut numbers = numbers.map(usize::from).collect::<Vec<usize>>();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// State that one instance hands to another at a barrier; the state itself travels beside it
/// ([`crate::state::KeyedState::restore`] takes it, and there is none for buckets without any).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The barrier's number.
    pub barrier: u64,
    /// The subquery, by its head's number in the query graph.
    pub node: usize,
    /// The instance that hands it over, by its number among the instances of the subquery.
    pub from: usize,
    /// The instance that gets it.
    pub to: usize,
}

/// Slices that are shared by all who pass a barrier on, as data.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(
        slice: &Arc<[T]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        slice.as_ref().serialize(to)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<[T]>, D::Error> {
        Ok(Vec::<T>::deserialize(from)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn givers_and_takers_are_named_once() {
        let step = |bucket, from, to| BucketMove { bucket, from, to };
        let barrier = Barrier {
            number: 1,
            purpose: Purpose::Move {
                node: 2,
                moves: Arc::new([step(7, 0, 2), step(8, 1, 2), step(9, 0, 2), step(10, 0, 1)]),
            },
        };
        assert_eq!(barrier.moves_of(2).len(), 4);
        assert_eq!(barrier.moves_of(1), []);
        assert_eq!(barrier.givers(2), [0, 1]);
        assert_eq!(barrier.givers(0), Vec::<usize>::new());
        assert_eq!(barrier.takers(0), [1, 2]);
    }
}
