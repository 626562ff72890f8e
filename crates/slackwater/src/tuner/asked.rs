//! Requests to worker processes and their answers. At most one request per process is open, so a process that
//! doesn't read gets no more requests, and one that doesn't answer delays no other.

use crate::probe::Seen;

/// The open requests and the answers.
pub struct Asked {
    /// Whether each process has not answered yet.
    waiting: Vec<bool>,
    /// The answers since the last correction, at most one from each process.
    seen: Vec<Seen>,
}

impl Asked {
    /// No requests and answers, for so many processes.
    pub fn new(processes: usize) -> Asked {
        Asked {
            waiting: vec![false; processes],
            seen: Vec::new(),
        }
    }

    /// The number of processes.
    pub fn processes(&self) -> usize {
        self.waiting.len()
    }

    /// A tick: returns the processes to ask now, which are those that have answered, and answers that were
    /// still waiting for another process.
    pub fn tick(&mut self) -> (Vec<usize>, Vec<Seen>) {
        let waiting = self.waiting.iter_mut().enumerate();
        let asked = waiting.filter_map(|(process, waiting)| {
            (!std::mem::replace(waiting, true)).then_some(process)
        });
        (asked.collect(), std::mem::take(&mut self.seen))
    }

    /// Handles an answer; returns all answers if it was the last one. An answer without a request is ignored.
    pub fn answer(&mut self, seen: Seen) -> Option<Vec<Seen>> {
        let waiting = self.waiting.get_mut(seen.process)?;
        if !std::mem::take(waiting) {
            return None;
        }
        self.seen.push(seen);
        let all = !self.waiting.contains(&true);
        all.then(|| std::mem::take(&mut self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_by(process: usize) -> Seen {
        Seen {
            process,
            ..Seen::default()
        }
    }

    fn processes(seen: &[Seen]) -> Vec<usize> {
        seen.iter().map(|seen| seen.process).collect()
    }

    #[test]
    fn answers_are_used_as_soon_as_all_have_come() {
        let mut asked = Asked::new(3);
        for _ in 0..3 {
            assert_eq!(asked.tick(), (vec![0, 1, 2], Vec::new()));
            assert_eq!(asked.answer(seen_by(1)), None);
            assert_eq!(asked.answer(seen_by(2)), None);
            let all = asked.answer(seen_by(0)).unwrap();
            assert_eq!(processes(&all), [1, 2, 0]);
        }
    }

    #[test]
    fn a_process_that_does_not_answer_is_not_asked_again_and_holds_nobody_up() {
        let mut asked = Asked::new(2);
        assert_eq!(asked.tick(), (vec![0, 1], Vec::new()));
        for _ in 0..5 {
            assert_eq!(asked.answer(seen_by(0)), None);
            let (now, seen) = asked.tick();
            assert_eq!((now, processes(&seen)), (vec![0], vec![0]));
        }
        assert_eq!(asked.tick(), (Vec::new(), Vec::new()));
        // It arrives late and counts.
        assert_eq!(asked.answer(seen_by(1)), None);
        let all = asked.answer(seen_by(0)).unwrap();
        assert_eq!(processes(&all), [1, 0]);
        assert_eq!(asked.tick().0, [0, 1]);
    }

    #[test]
    fn what_nobody_asked_for_is_left_out() {
        let mut asked = Asked::new(1);
        assert_eq!(asked.answer(seen_by(0)), None);
        assert_eq!(asked.answer(seen_by(7)), None);
        asked.tick();
        assert_eq!(asked.answer(seen_by(7)), None);
        assert_eq!(processes(&asked.answer(seen_by(0)).unwrap()), [0]);
        assert_eq!(asked.answer(seen_by(0)), None, "only once");
    }
}
