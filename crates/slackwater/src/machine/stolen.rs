//! Time that the hypervisor took from the cores of this process, while it ran other machines.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// How often the system's count is read at most, because that takes longer the more cores there are. The
/// count has steps of a hundredth of a second anyway.
const EVERY_NS: u64 = 1_000_000_000;

/// The longest line of a core: its name, and ten numbers of up to 20 digits.
const LINE_BYTES: usize = 12 + 10 * 21;

/// The stolen time of the cores that this process may use.
pub struct Stolen {
    cores: Vec<usize>,
    /// The system's counts, which begin with one line for all cores and one for each; `None` if there are
    /// none.
    file: Option<File>,
    text: Vec<u8>,
    /// The system's count for each core on average, in nanoseconds; `None` if there is none.
    total_ns: Option<u64>,
    read_ns: u64,
}

impl Stolen {
    /// The count from `now_ns` on.
    pub fn since(now_ns: u64) -> Stolen {
        let cores = slackwater_engine::link::allowed_cores();
        let lines = cores.iter().max().map_or(0, |last| last + 2);
        let mut stolen = Stolen {
            cores,
            file: File::open("/proc/stat").ok(),
            text: vec![0; lines * LINE_BYTES],
            total_ns: None,
            read_ns: now_ns,
        };
        stolen.total_ns = stolen.read();
        stolen
    }

    /// The time stolen from a core since the last call that returned some, in nanoseconds. Zero between two
    /// readings, and if the system doesn't count it.
    pub fn take(&mut self, now_ns: u64) -> u64 {
        let Some(total_ns) = self.total_ns else {
            return 0;
        };
        if now_ns.saturating_sub(self.read_ns) < EVERY_NS {
            return 0;
        }
        self.read_ns = now_ns;
        let now_ns = self.read().unwrap_or(total_ns);
        self.total_ns = Some(now_ns);
        now_ns.saturating_sub(total_ns)
    }

    fn read(&mut self) -> Option<u64> {
        let length = self.file.as_ref()?.read_at(&mut self.text, 0).ok()?;
        // What follows the cores may be cut off in the middle.
        mean_ns(std::str::from_utf8(&self.text[..length]).ok()?, &self.cores)
    }
}

/// The mean of these cores' stolen time in `/proc/stat`, which counts in ticks: the eighth number of a core.
fn mean_ns(text: &str, cores: &[usize]) -> Option<u64> {
    let mut ticks = 0;
    let mut found = 0;
    let lines = text.lines().skip(1);
    for line in lines.take_while(|line| line.starts_with("cpu")) {
        let mut words = line.split_ascii_whitespace();
        let core = words.next()?.strip_prefix("cpu")?.parse::<usize>().ok()?;
        if cores.contains(&core) {
            ticks += words.nth(7)?.parse::<u64>().ok()?;
            found += 1;
        }
    }
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    (found > 0).then(|| ticks * tick_ns / found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_allowed_cores_counts() {
        let text = "cpu  9 9 9 9 9 9 9 99 9 9\ncpu0 100 0 50 900 5 0 10 20 0 0\n\
                    cpu1 1 0 1 900 0 0 0 0 0 0\nintr 5\n";
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(mean_ns(text, &[0]), Some(20 * tick_ns));
        assert_eq!(mean_ns(text, &[0, 1]), Some(10 * tick_ns));
        assert_eq!(mean_ns(text, &[7]), None);
        assert_eq!(mean_ns("", &[0]), None);
    }

    #[test]
    fn the_count_is_read_once_a_second() {
        let mut stolen = Stolen::since(1);
        assert_eq!(stolen.take(EVERY_NS), 0);
        assert_eq!(stolen.read_ns, 1);
        stolen.take(EVERY_NS + 1);
        assert!(stolen.total_ns.is_none() || stolen.read_ns == EVERY_NS + 1);
    }
}
