//! The cheapest way to run a path that meets its latency target.
//!
//! The planner tries every way: the stages cut into one to [`GROUPS_MAX`] groups with about equal work,
//! the source's worker polling, interrupted or asleep for one of [`TIMES`] times, and the workers after
//! it interrupted or asleep as long. These are some hundred shapes, each predicted in a microsecond.

use super::model::{HostCosts, Load, Prediction, Shape, UTILISATION_MAX, Waiting, Work, predict};

/// The most workers in a row that are considered. More hops only make sense for work that one worker
/// can't do, and parallel instances do that better.
pub const GROUPS_MAX: usize = 4;

/// The number of sleeping times that are considered, as parts of the target.
const TIMES: u32 = 40;

/// The share of the target that is reserved for what the model doesn't know.
pub const MARGIN: f64 = 0.1;

/// The fewest rows per chunk; below it the work per chunk outweighs that per row.
pub const CHUNK_ROWS_MIN: usize = 256;
/// The most rows per chunk, the engine's default.
pub const CHUNK_ROWS_MAX: usize = 8_192;

/// What to plan.
#[derive(Debug, Clone)]
pub struct Question {
    /// The latency that 99 of 100 rows are to keep, in nanoseconds.
    pub target_ns: f64,
    /// The work of each stage.
    pub stages: Vec<Work>,
    /// The arrivals at the source.
    pub load: Load,
    /// The number of workers.
    pub workers: usize,
    /// How many workers in a row each row passes, if that is fixed: those after the source's are woken.
    /// `None` if the plan decides where instances run.
    pub in_a_row: Option<usize>,
    /// The costs of waiting.
    pub costs: HostCosts,
}

/// A shape and its prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The way to run the path.
    pub shape: Shape,
    /// The predicted cost and latency.
    pub prediction: Prediction,
}

/// The result of planning.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The cheapest shape that meets the target; if none does, the fastest.
    pub chosen: Candidate,
    /// Whether it meets the target.
    pub meets_target: bool,
    /// The cheapest shape of another kind (other groups or another way to wait) that meets the target.
    pub runner_up: Option<Candidate>,
    /// The lowest p99 that any shape reaches, in nanoseconds.
    pub floor_ns: f64,
    /// The number of shapes that were considered.
    pub considered: usize,
}

impl Planned {
    /// Whether every shape keeps a worker too busy for this load: what the prediction says of its latency is
    /// of no use then, because queues build up.
    pub fn is_overloaded(&self) -> bool {
        self.chosen.prediction.utilisation > UTILISATION_MAX
    }
}

/// Rows per chunk for a target: what takes a sixteenth of the target to process, so that the workers of a
/// path overlap and nothing waits for long after a chunk; a power of two between the limits.
pub fn chunk_rows(target_ns: f64, per_row_ns: f64) -> usize {
    let rows = target_ns / 16.0 / per_row_ns.max(1.0);
    let rows = (rows as usize).clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX);
    // Rounded down; the limits are powers of two.
    1 << rows.ilog2()
}

/// Cuts stages into `groups` groups with about equal work.
fn cut(stages: &[Work], groups: usize, rows_per_chunk: f64) -> Vec<usize> {
    let work = |stage: &Work| stage.per_chunk_ns + stage.per_row_ns * rows_per_chunk;
    let total = stages.iter().map(work).sum::<f64>();
    let mut counts = vec![0; groups];
    let mut done = 0.0;
    let mut group = 0;
    for (number, stage) in stages.iter().enumerate() {
        let left = stages.len() - number;
        let behind = groups - 1 - group;
        let full = done + work(stage) / 2.0 > total * (group + 1) as f64 / groups as f64;
        if counts[group] > 0 && behind > 0 && (full || left <= behind) {
            group += 1;
        }
        counts[group] += 1;
        done += work(stage);
    }
    counts
}

/// The cheapest shape that meets the target with [`MARGIN`].
pub fn plan(question: &Question) -> Planned {
    let stages = &question.stages;
    assert!(!stages.is_empty(), "a path has a stage");
    let per_row_ns = stages.iter().map(|stage| stage.per_row_ns).sum::<f64>();
    let rows = chunk_rows(question.target_ns, per_row_ns) as f64;
    let mut options = Vec::new();
    let groups = match question.in_a_row {
        None => 1..=GROUPS_MAX.min(question.workers).min(stages.len()),
        Some(workers) => {
            let workers = workers.clamp(1, stages.len());
            workers..=workers
        }
    };
    for groups in groups {
        let groups = cut(stages, groups, rows);
        let sleeps = (1..=TIMES)
            .map(|part| Waiting::Sleep(question.target_ns * f64::from(part) / f64::from(TIMES)));
        for source in [Waiting::Poll, Waiting::Interrupt]
            .into_iter()
            .chain(sleeps)
        {
            let between: &[Waiting] = match source {
                _ if groups.len() == 1 => &[Waiting::Interrupt],
                Waiting::Poll => &[Waiting::Poll],
                Waiting::Interrupt => &[Waiting::Interrupt],
                Waiting::Sleep(_) if question.in_a_row.is_some() => &[Waiting::Interrupt],
                Waiting::Sleep(_) => &[Waiting::Interrupt, source],
            };
            for &between in between {
                let shape = Shape {
                    groups: groups.clone(),
                    source,
                    between,
                    chunk_rows: rows,
                };
                let prediction = predict(&shape, stages, &question.load, &question.costs);
                options.push(Candidate { shape, prediction });
            }
        }
    }
    let sound = |option: &&Candidate| option.prediction.utilisation <= UTILISATION_MAX;
    let keeps = |option: &&Candidate| {
        sound(option) && option.prediction.p99_ns <= question.target_ns * (1.0 - MARGIN)
    };
    let cheaper = |one: &&Candidate, other: &&Candidate| {
        let (one, other) = (&one.prediction, &other.prediction);
        one.cores.total_cmp(&other.cores)
    };
    let faster = |one: &&Candidate, other: &&Candidate| {
        let (one, other) = (&one.prediction, &other.prediction);
        one.p99_ns.total_cmp(&other.p99_ns)
    };
    let fastest = options.iter().filter(sound).min_by(faster);
    // If every shape is too busy, the one that spreads the work most is the least bad.
    let busiest = |one: &&Candidate, other: &&Candidate| {
        let (one, other) = (&one.prediction, &other.prediction);
        one.utilisation.total_cmp(&other.utilisation)
    };
    let fastest = fastest
        .or(options.iter().min_by(busiest))
        .expect("there are shapes");
    let chosen = options.iter().filter(keeps).min_by(cheaper);
    let meets_target = chosen.is_some();
    let chosen = chosen.unwrap_or(fastest);
    let kind = |option: &Candidate| {
        let sleeps = |waiting| matches!(waiting, Waiting::Sleep(_));
        let (source, between) = (option.shape.source, option.shape.between);
        (
            option.shape.groups.len(),
            source == Waiting::Poll,
            sleeps(source),
            sleeps(between),
        )
    };
    let others = options.iter().filter(|option| kind(option) != kind(chosen));
    Planned {
        runner_up: others.filter(keeps).min_by(cheaper).cloned(),
        meets_target,
        floor_ns: fastest.prediction.p99_ns,
        considered: options.len(),
        chosen: chosen.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::COSTS;
    use super::*;
    use proptest::prelude::*;

    fn question(target_ms: f64, rows_per_s: f64) -> Question {
        Question {
            target_ns: target_ms * 1e6,
            stages: vec![
                Work {
                    per_chunk_ns: 8_000.0,
                    per_row_ns: 100.0,
                };
                3
            ],
            load: Load {
                rows_per_s,
                arrivals_per_s: rows_per_s.min(1_000.0),
            },
            workers: 4,
            in_a_row: None,
            costs: COSTS,
        }
    }

    #[test]
    fn with_a_fixed_number_of_workers_the_source_sleeps_for_what_the_hops_leave() {
        let at = |in_a_row: Option<usize>| {
            plan(&Question {
                in_a_row,
                ..question(20.0, 1e4)
            })
        };
        let (free, one, three) = (at(None), at(Some(1)), at(Some(3)));
        assert_eq!(free.chosen, one.chosen);
        let shape = &three.chosen.shape;
        assert_eq!(shape.groups, [1, 1, 1]);
        assert_eq!(shape.between, Waiting::Interrupt);
        let Waiting::Sleep(time_ns) = shape.source else {
            panic!("{shape:?}");
        };
        assert!(three.meets_target && time_ns > 15e6, "{shape:?}");
        assert!(three.chosen.prediction.cores > one.chosen.prediction.cores);
        assert!(three.floor_ns > one.floor_ns);
        // More workers than stages: no row passes that many.
        assert_eq!(at(Some(9)).chosen, three.chosen);
    }

    #[test]
    fn one_worker_that_sleeps_is_chosen_for_a_loose_target() {
        let planned = plan(&question(20.0, 1e4));
        assert!(planned.meets_target);
        assert_eq!(planned.chosen.shape.groups, [3]);
        assert!(
            matches!(planned.chosen.shape.source, Waiting::Sleep(time_ns) if time_ns > 15e6),
            "{planned:?}"
        );
        assert!(planned.runner_up.is_some());
    }

    #[test]
    fn interrupts_are_chosen_where_a_sleep_would_not_pay() {
        let planned = plan(&question(0.3, 100.0));
        assert_eq!(
            planned.chosen.shape.source,
            Waiting::Interrupt,
            "{planned:?}"
        );
    }

    #[test]
    fn a_target_that_no_wake_up_meets_needs_polling_or_is_refused_with_a_number() {
        let planned = plan(&question(0.06, 1e3));
        assert_eq!(planned.chosen.shape.source, Waiting::Poll, "{planned:?}");
        assert!(planned.meets_target);
        let planned = plan(&question(0.01, 1e3));
        assert!(!planned.meets_target);
        assert!(planned.floor_ns > 10_000.0 && planned.floor_ns < 60_000.0);
    }

    #[test]
    fn more_than_a_worker_can_do_is_spread() {
        let planned = plan(&question(20.0, 4e6));
        assert!(planned.chosen.shape.groups.len() > 1, "{planned:?}");
        assert!(planned.meets_target);
    }

    proptest! {
        #[test]
        fn the_choice_is_the_cheapest_that_meets_the_target(
            target_ms in 0.05f64..200.0, rows_per_s in 1.0f64..2e6,
            stages in proptest::collection::vec((0.0f64..5e4, 0.0f64..500.0), 1..6),
            workers in 1usize..6,
        ) {
            let mut question = question(target_ms, rows_per_s);
            question.workers = workers;
            question.stages = stages
                .into_iter()
                .map(|(per_chunk_ns, per_row_ns)| Work { per_chunk_ns, per_row_ns })
                .collect();
            let planned = plan(&question);
            let chosen = planned.chosen.prediction;
            prop_assert_eq!(planned.chosen.shape.groups.iter().sum::<usize>(), question.stages.len());
            prop_assert!(planned.chosen.shape.groups.iter().all(|&count| count > 0));
            if planned.meets_target {
                prop_assert!(chosen.p99_ns <= question.target_ns * (1.0 - MARGIN) + 1e-6);
                if let Some(other) = planned.runner_up {
                    prop_assert!(other.prediction.cores >= chosen.cores);
                }
            } else {
                prop_assert!(planned.runner_up.is_none());
            }
            let rows = planned.chosen.shape.chunk_rows as usize;
            prop_assert!((CHUNK_ROWS_MIN..=CHUNK_ROWS_MAX).contains(&rows));
        }
    }
}
