//! Which worker runs which instance, while the load changes.
//!
//! With little to do, all instances gather on as few workers as can do the work, because a hop between
//! workers costs wake-ups and an idle worker costs nothing; with more to do they spread. Instances that
//! may not move (sources, sinks with sockets) stay, and the others gather around them.
//!
//! Two thresholds keep instances from moving back and forth: a worker is relieved above [`SPREAD_ABOVE`],
//! and filled only up to [`GATHER_TO`], so that after either move the load has to change by a quarter
//! before the opposite one follows.

/// Workers that are busier than this are relieved.
pub const SPREAD_ABOVE: f64 = 0.7;

/// Workers are filled up to this share.
pub const GATHER_TO: f64 = 0.5;

/// An instance's share of a core, and where it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resident {
    /// The CPU time per second, 0 to 1.
    pub busy: f64,
    /// The instance's worker.
    pub worker: usize,
    /// Whether it may move.
    pub movable: bool,
}

/// An instance goes to another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The instance.
    pub instance: usize,
    /// Its new worker.
    pub to: usize,
}

/// The moves that fit the load; none if no move is needed.
pub fn moves(residents: &[Resident], workers: usize) -> Vec<Move> {
    let mut load = vec![0.0; workers];
    let mut used = vec![false; workers];
    for resident in residents {
        load[resident.worker] += resident.busy;
        used[resident.worker] = true;
    }
    let most = load.iter().copied().fold(0.0, f64::max);
    let packed = pack(residents, workers);
    let in_use = |places: &[usize]| {
        let mut seen = vec![false; workers];
        places.iter().for_each(|&place| seen[place] = true);
        seen.into_iter().filter(|&seen| seen).count()
    };
    let now = used.iter().filter(|&&used| used).count();
    let peak = |places: &[usize]| {
        let mut load = vec![0.0; workers];
        for (resident, &place) in residents.iter().zip(places) {
            load[place] += resident.busy;
        }
        load.into_iter().fold(0.0, f64::max)
    };
    let relieves = most > SPREAD_ABOVE && peak(&packed) < most * 0.95;
    let gathers = in_use(&packed) < now && peak(&packed) <= GATHER_TO.max(most);
    if !relieves && !gathers {
        return Vec::new();
    }
    let places = residents.iter().zip(packed).enumerate();
    let changed = places.filter(|(_, (resident, place))| resident.worker != *place);
    changed
        .map(|(instance, (_, to))| Move { instance, to })
        .collect()
}

/// A worker for each instance: the largest first, each to a worker that is in use and has room, the
/// fullest first; else to an unused one; else to the emptiest.
fn pack(residents: &[Resident], workers: usize) -> Vec<usize> {
    let mut load = vec![0.0; workers];
    let mut used = vec![false; workers];
    let mut places = residents.iter().map(|r| r.worker).collect::<Vec<_>>();
    for resident in residents.iter().filter(|resident| !resident.movable) {
        load[resident.worker] += resident.busy;
        used[resident.worker] = true;
    }
    let mut order = (0..residents.len())
        .filter(|&number| residents[number].movable)
        .collect::<Vec<_>>();
    order.sort_by(|&one, &other| residents[other].busy.total_cmp(&residents[one].busy));
    for number in order {
        let resident = residents[number];
        let fits = |worker: &usize| load[*worker] + resident.busy <= GATHER_TO;
        let fuller = |one: &usize, other: &usize| load[*one].total_cmp(&load[*other]);
        let in_use = (0..workers).filter(|&worker| used[worker]);
        let fresh = (0..workers).find(|&worker| !used[worker]);
        // The instance's own worker if that is as good: a move costs something too.
        let own = Some(resident.worker).filter(|own| used[*own] && fits(own));
        let place = own
            .or_else(|| in_use.filter(fits).max_by(fuller))
            .or(fresh)
            .or_else(|| (0..workers).min_by(fuller))
            .expect("there is a worker");
        places[number] = place;
        load[place] += resident.busy;
        used[place] = true;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resident(busy: f64, worker: usize, movable: bool) -> Resident {
        Resident {
            busy,
            worker,
            movable,
        }
    }

    fn apply(residents: &mut [Resident], moves: &[Move]) {
        for change in moves {
            residents[change.instance].worker = change.to;
        }
    }

    #[test]
    fn little_load_gathers_around_what_can_not_move() {
        let mut residents = [
            resident(0.01, 1, false),
            resident(0.02, 0, true),
            resident(0.02, 2, true),
        ];
        let moves = moves(&residents, 3);
        apply(&mut residents, &moves);
        assert!(residents.iter().all(|resident| resident.worker == 1));
        assert_eq!(super::moves(&residents, 3), []);
    }

    #[test]
    fn a_busy_worker_is_relieved_and_nothing_moves_between_the_thresholds() {
        let at = |busy: f64| {
            [
                resident(0.1, 0, false),
                resident(busy, 0, true),
                resident(busy, 0, true),
            ]
        };
        assert_eq!(moves(&at(0.29), 2), [], "68 % is not too much");
        let mut residents = at(0.32);
        let spread = moves(&residents, 2);
        assert!(!spread.is_empty());
        apply(&mut residents, &spread);
        for busy in [0.32, 0.28, 0.25] {
            residents[1].busy = busy;
            residents[2].busy = busy;
            assert_eq!(moves(&residents, 2), [], "at {busy} it stays spread");
        }
        residents[1].busy = 0.1;
        residents[2].busy = 0.1;
        let gather = moves(&residents, 2);
        apply(&mut residents, &gather);
        assert!(residents.iter().all(|resident| resident.worker == 0));
    }

    #[test]
    fn what_no_move_can_relieve_stays() {
        assert_eq!(moves(&[resident(0.95, 0, true)], 4), []);
        assert_eq!(
            moves(&[resident(0.9, 0, false), resident(0.9, 1, false)], 2),
            []
        );
    }

    proptest! {
        #[test]
        fn moves_settle_at_once_and_only_the_movable_move(
            residents in proptest::collection::vec((0.0f64..1.0, 0usize..6, any::<bool>()), 1..12),
        ) {
            let mut residents = residents
                .into_iter()
                .map(|(busy, worker, movable)| resident(busy, worker, movable))
                .collect::<Vec<_>>();
            let first = moves(&residents, 6);
            for change in &first {
                prop_assert!(residents[change.instance].movable);
                prop_assert!(residents[change.instance].worker != change.to && change.to < 6);
            }
            apply(&mut residents, &first);
            // Under the same load a second pass finds next to nothing, and a third nothing.
            let second = moves(&residents, 6);
            apply(&mut residents, &second);
            let third = moves(&residents, 6);
            prop_assert!(third.is_empty(), "{residents:?} {third:?}");
        }
    }
}
