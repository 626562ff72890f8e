//! What the processes of a query have used of the cores, and what others took from them.

use std::collections::BTreeMap;

/// Up to some time, or between two, in seconds.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// The CPU time of each process.
    pub cpu_s: BTreeMap<u32, f64>,
    /// How long their threads waited for a core, together.
    pub waited_s: f64,
    /// How long the host of this virtual machine gave its cores to others, together.
    pub stolen_s: f64,
}

impl Usage {
    /// What a process and its children have used so far.
    pub fn of(process: u32) -> Usage {
        let mut usage = Usage {
            stolen_s: stolen_s(),
            ..Usage::default()
        };
        for process in [process].into_iter().chain(children(process)) {
            let (mut cpu_ns, mut waited_ns) = (0, 0);
            let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let text = std::fs::read_to_string(task.path().join("schedstat"));
                let text = text.unwrap_or_default();
                // Time on a core, and time waiting for one.
                let mut numbers = text
                    .split_whitespace()
                    .map(|word| word.parse().unwrap_or(0));
                cpu_ns += numbers.next().unwrap_or(0_u64);
                waited_ns += numbers.next().unwrap_or(0_u64);
            }
            usage.cpu_s.insert(process, cpu_ns as f64 / 1e9);
            usage.waited_s += waited_ns as f64 / 1e9;
        }
        usage
    }

    /// What was used since an earlier time.
    pub fn since(&self, earlier: &Usage) -> Usage {
        let cpu_s = self.cpu_s.iter().map(|(process, used)| {
            let before = earlier.cpu_s.get(process).copied().unwrap_or(0.0);
            (*process, used - before)
        });
        Usage {
            cpu_s: cpu_s.collect(),
            waited_s: self.waited_s - earlier.waited_s,
            stolen_s: self.stolen_s - earlier.stolen_s,
        }
    }

    /// The CPU time of all processes.
    pub fn all_s(&self) -> f64 {
        self.cpu_s.values().sum()
    }

    /// The CPU time of the process that used most.
    pub fn most_s(&self) -> f64 {
        self.cpu_s.values().copied().fold(0.0, f64::max)
    }
}

/// The children of a process.
fn children(process: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = all.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // After the name, which may have anything in it: the state, and the parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        (parent.parse() == Ok(process)).then_some(number)
    });
    children.collect()
}

/// How long the host has given the cores of this machine to others.
fn stolen_s() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text
        .split_whitespace()
        .nth(8)
        .and_then(|word| word.parse::<f64>().ok());
    ticks.unwrap_or(0.0) / rustix::param::clock_ticks_per_second() as f64
}
