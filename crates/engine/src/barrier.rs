//! Barriers: cuts through all streams of a deployment at once.
//!
//! Every source inserts the barrier among its messages. An instance that has received it on all of its
//! links stands at the cut: it has processed exactly the rows before it. The instance then does what the
//! barrier asks for, and forwards it. (The alignment is that of Carbone, Ewen and others, "Lightweight
//! Asynchronous Snapshots for Distributed Dataflows", section 4.)
//!
//! A barrier asks for one of three things:
//! - A **move of buckets**: after the cut, rows of the moved buckets go to other instances of a subquery,
//!   which receive the state that the earlier rows have made.
//! - A **checkpoint**: every instance records its state at the cut ([`crate::checkpoint`]), and
//!   continues.
//! - The **rows of views**: every instance of a materialized view publishes its rows at the cut for
//!   readers ([`crate::operator::changelog::view`]), and continues.
//!
//! Invariants of moves:
//! - No row is lost or duplicated: before the cut a bucket's rows reach its old instance, after it the
//!   new one, since senders switch at the barrier, between two messages.
//! - The new instance processes nothing between the cut and the last state that is handed to it.
//! - Rows of one key keep their order up to the sinks: the barrier is aligned on the way there too, so
//!   rows that the old instance emitted are processed before those of the new one.
//! - All instances of the subquery have seen the same watermarks at the cut, since watermarks go to all
//!   of them. Only silence ([`crate::chunk::Message::Idle`]) may end at different times; then a window
//!   that one of them has closed is emitted with the next watermark.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::BUCKETS;

/// The most moves in one barrier: every bucket once.
pub const MOVES_MAX: usize = BUCKETS;

/// The most instances that a barrier names.
pub const BASES_MAX: usize = 1 << 16;

/// A cut, and what is done there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The barrier's number. Barriers of a deployment for one purpose are numbered upwards, from 1.
    pub number: u64,
    /// What is done at the cut.
    pub purpose: Purpose,
}

/// What is done at a cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Moves buckets; there is one such barrier at a time.
    Move {
        /// The subquery whose buckets move, by its head's number in the query graph.
        node: usize,
        /// The buckets that move.
        #[serde(with = "shared")]
        moves: Arc<[BucketMove]>,
    },
    /// Takes a checkpoint.
    Checkpoint {
        /// Snapshots hold what has changed since the checkpoint at this barrier; `None` for everything.
        since: Option<u64>,
        /// Instances that take a full snapshot anyway, by their numbers in the deployment.
        #[serde(with = "shared")]
        bases: Arc<[u32]>,
        /// Whether sources end after the barrier, because the query is being stopped.
        stops: bool,
    },
    /// Publishes the rows of materialized views.
    Publish,
}

/// The move of a bucket to another instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketMove {
    /// The bucket ([`crate::hash::bucket`]).
    pub bucket: u16,
    /// The instance that has held it, by its number among those of the subquery.
    pub from: u16,
    /// The instance that receives it.
    pub to: u16,
}

impl Barrier {
    /// The moves between the instances of the subquery with the head `node`.
    pub fn moves_of(&self, node: usize) -> &[BucketMove] {
        match &self.purpose {
            Purpose::Move { node: moved, moves } if *moved == node => moves,
            _ => &[],
        }
    }

    fn moves(&self) -> &[BucketMove] {
        match &self.purpose {
            Purpose::Move { moves, .. } => moves,
            Purpose::Checkpoint { .. } | Purpose::Publish => &[],
        }
    }

    /// Instances that hand state to instance `to`, each once.
    pub fn givers(&self, to: usize) -> Vec<usize> {
        let moves = self.moves().iter().filter(|m| usize::from(m.to) == to);
        distinct(moves.map(|m| m.from))
    }

    /// Instances that instance `from` hands state to, each once.
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

/// Names the state that one instance hands to another at a barrier. The state itself travels beside it
/// ([`crate::state::KeyedState::restore`] takes it); buckets without state have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The barrier's number.
    pub barrier: u64,
    /// The subquery, by its head's number in the query graph.
    pub node: usize,
    /// The instance that hands the state over, by its number among the instances of the subquery.
    pub from: usize,
    /// The instance that receives the state.
    pub to: usize,
}

/// Serializes slices that are shared by everyone who forwards a barrier.
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
    fn each_giver_and_taker_is_named_once() {
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
