//! Work that is done several times, for measurements: P4's slow nodes compute repeatedly.

use std::cell::Cell;
use std::fs::File;

use slackwater::functions::operator::Call;

/// The most repetitions.
const REPEAT_MAX: i64 = 1_000;

thread_local! {
    /// Whether the copy that this thread runs is the slow one; `None` if it has not asked yet.
    static IS_SLOW: Cell<Option<bool>> = const { Cell::new(None) };
}

/// How often copies compute.
pub struct Slow {
    repeat: i64,
    /// The slow copy is the first one that creates the file `<mark>.copy`. It computes as many times as often
    /// as the file `<mark>.slow` says, while there is one: so copies of other processes know of it.
    mark: Option<String>,
}

impl Slow {
    /// By the arguments `repeat`, `slow` and `mark` of a call.
    pub fn of(call: &Call) -> Result<Slow, String> {
        let repeat = call.optional::<i64>("repeat")?.unwrap_or(0);
        if !(0..=REPEAT_MAX).contains(&repeat) {
            return Err(format!(
                "'repeat' is {repeat}: must be from 0 to {REPEAT_MAX}"
            ));
        }
        Ok(Slow {
            repeat,
            mark: call.optional::<String>("mark")?,
        })
    }

    /// Repeats work as often as this copy does.
    pub fn repeat(&self, work: impl Fn()) {
        let factor = self.mark.as_ref().map_or(1, |mark| factor(mark));
        (0..self.repeat * factor).for_each(|_| work());
    }
}

/// How many times as often the copy of this thread computes.
fn factor(mark: &str) -> i64 {
    let is_slow = IS_SLOW
        .get()
        .unwrap_or_else(|| File::create_new(format!("{mark}.copy")).is_ok());
    IS_SLOW.set(Some(is_slow));
    let text = is_slow
        .then(|| std::fs::read_to_string(format!("{mark}.slow")).ok())
        .flatten();
    let factor = text.and_then(|text| text.trim().parse().ok()).unwrap_or(1);
    i64::clamp(factor, 1, REPEAT_MAX)
}
