//! What a byte of replication and a read cost, as a function of the core's frequency.
//!
//! The cost law of a byte at the frequency f is `a + b / f`: a is what waits for memory, whose clock stays
//! the same, and b is cycles. It is fitted as soon as two frequencies were seen. Until then a = 0: for a
//! lower frequency that is the most that it can be, so no core is slowed too far.
//!
//! - **Idle time is no cost of a byte**: what a server uses while nothing arrives is known from such times,
//!   and is taken off first.
//! - **Reads and writes** are told apart by times in which there was hardly one of them. Until there was one,
//!   all is put down to both: both are then the most that they can be.
//! - Counters that go back are another process, or an answer that was overtaken: nothing is learned then.

/// A cost at a frequency: `fixed_ns + cycles / kHz · 10^6`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Law {
    /// The part that no frequency changes, in nanoseconds.
    pub fixed_ns: f64,
    /// The part that the frequency changes, in cycles, which is nanoseconds at 1 GHz.
    pub cycles: f64,
}

impl Law {
    /// A cost that was measured at one frequency.
    pub fn of(cost_ns: f64, khz: u32) -> Law {
        Law {
            fixed_ns: 0.0,
            cycles: cost_ns * f64::from(khz.max(1)) / 1e6,
        }
    }

    /// The cost at a frequency, in nanoseconds.
    pub fn at(&self, khz: u32) -> f64 {
        self.fixed_ns + self.cycles * 1e6 / f64::from(khz.max(1))
    }
}

/// How much of the past is left after each sample: a half after 69, which is seven seconds of ten a second.
const FORGET: f64 = 0.99;

/// Frequencies are two, and not one that was measured inexactly, if their standard deviation is above this
/// share of their mean. Steps of 200 MHz below 2.2 GHz are 9 % and more apart, which is 4.5 %.
const APART_MIN: f64 = 0.03;

/// Fits [`Law`] to costs by least squares.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fit {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    /// Takes a measured cost.
    pub fn add(&mut self, khz: u32, cost_ns: f64) {
        if !cost_ns.is_finite() || cost_ns < 0.0 {
            return;
        }
        let x = 1e6 / f64::from(khz.max(1));
        for (sum, one) in [
            (&mut self.weight, 1.0),
            (&mut self.x, x),
            (&mut self.y, cost_ns),
            (&mut self.xx, x * x),
            (&mut self.xy, x * cost_ns),
        ] {
            *sum = *sum * FORGET + one;
        }
    }

    /// The law, as soon as anything was measured.
    pub fn law(&self) -> Option<Law> {
        if self.weight == 0.0 {
            return None;
        }
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let variance = self.xx / self.weight - x * x;
        let at_once = Law {
            fixed_ns: 0.0,
            cycles: y / x,
        };
        if variance < (APART_MIN * x).powi(2) {
            return Some(at_once);
        }
        let cycles = (self.xy / self.weight - x * y) / variance;
        // Noise may turn the line over; neither part of a cost is below zero.
        let cycles = cycles.clamp(0.0, y / x);
        Some(Law {
            fixed_ns: (y - cycles * x).max(0.0),
            cycles,
        })
    }
}

/// The counters of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes that were applied or sent.
    pub bytes: u64,
    /// Commands of clients.
    pub reads: u64,
    /// Bytes that have arrived or wait at the master.
    pub arrived: u64,
}

/// The setting under which the counters have grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Under {
    /// The core's frequency.
    pub khz: u32,
    /// Whether the instance looks at its master's bytes in beats.
    pub is_beaten: bool,
}

/// Frequencies that differ by this share are one that was measured inexactly.
const SAME: f64 = 0.05;

impl Under {
    fn is_like(&self, other: &Under) -> bool {
        let apart = f64::from(self.khz.abs_diff(other.khz));
        self.is_beaten == other.is_beaten && apart <= SAME * f64::from(self.khz.max(other.khz))
    }
}

/// The shortest time of which a rate is taken, in nanoseconds: a tenth of a second.
const RATE_NS_MIN: u64 = 100_000_000;

/// The fewest bytes, or reads, of which a cost is taken: 16 writes of 1 KB, whose cost is a hundred times a
/// scheduler's unit of counting.
const BYTES_MIN: u64 = 16_384;
const READS_MIN: u64 = 16;

/// The fewest reads beside enough bytes of which a cost is taken.
const READS_BESIDE_MIN: u64 = 4;

/// A cost is taken of bytes if reads have at most this share of the time, and the other way round.
const OTHER_MAX: f64 = 0.1;

/// The share that a new measurement of the idle time has.
const IDLE_NEW: f64 = 0.25;

/// The costs and the load of an instance, learned from its counters.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    last: Option<(u64, Counters)>,
    /// What has come together since the last rate was taken, and, of times with work, the last cost.
    grown: Grown,
    worked: Grown,
    under: Option<Under>,
    idle: Law,
    at_once: Fit,
    beaten: Fit,
    read: Fit,
    bytes: Minute,
    reads: Minute,
}

#[derive(Debug, Clone, Copy, Default)]
struct Grown {
    time_ns: u64,
    /// The time, weighted with the frequency.
    cycles: u128,
    cpu_ns: u64,
    bytes: u64,
    reads: u64,
    arrived: u64,
}

impl Grown {
    fn add(&mut self, other: &Grown) {
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.cycles = self.cycles.saturating_add(other.cycles);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.reads = self.reads.saturating_add(other.reads);
        self.arrived = self.arrived.saturating_add(other.arrived);
    }

    /// The mean frequency.
    fn khz(&self) -> u32 {
        let khz = self.cycles / u128::from(self.time_ns.max(1));
        u32::try_from(khz).unwrap_or(u32::MAX)
    }
}

impl Costs {
    /// Takes the counters at a time, and under which setting they have grown since the last ones.
    pub fn take(&mut self, now_ns: u64, counters: Counters, under: Under) {
        let last = self.last.replace((now_ns, counters));
        let Some((last_ns, last)) = last else {
            return;
        };
        let before = self.under.replace(under);
        let is_changed = before.is_none_or(|before| !before.is_like(&under));
        let grown = |now: u64, before: u64| now.checked_sub(before);
        let (Some(cpu_ns), Some(bytes), Some(reads), Some(arrived)) = (
            grown(counters.cpu_ns, last.cpu_ns),
            grown(counters.bytes, last.bytes),
            grown(counters.reads, last.reads),
            grown(counters.arrived, last.arrived),
        ) else {
            self.grown = Grown::default();
            self.worked = Grown::default();
            return;
        };
        if is_changed {
            self.grown = Grown::default();
            self.worked = Grown::default();
        }
        let time_ns = now_ns.saturating_sub(last_ns);
        self.grown.add(&Grown {
            time_ns,
            cycles: u128::from(time_ns) * u128::from(under.khz),
            cpu_ns,
            bytes,
            reads,
            arrived,
        });
        if self.grown.time_ns >= RATE_NS_MIN {
            let grown = std::mem::take(&mut self.grown);
            let time_ns = grown.time_ns as f64;
            self.bytes.add(now_ns, grown.arrived as f64 / time_ns);
            self.reads.add(now_ns, grown.reads as f64 / time_ns);
            if grown.bytes == 0 && grown.reads == 0 {
                let share = grown.cpu_ns as f64 / time_ns;
                let share = Law::of(share, grown.khz()).cycles;
                self.idle.cycles += (share - self.idle.cycles) * IDLE_NEW;
            } else {
                self.worked.add(&grown);
            }
        }
        if self.worked.bytes >= BYTES_MIN || self.worked.reads >= READS_MIN {
            let worked = std::mem::take(&mut self.worked);
            self.learn(&worked, under.is_beaten);
        }
    }

    fn learn(&mut self, grown: &Grown, is_beaten: bool) {
        let time_ns = grown.time_ns as f64;
        let under = Under {
            khz: grown.khz(),
            is_beaten,
        };
        let cpu_ns = grown.cpu_ns as f64;
        let cpu_ns = (cpu_ns - self.idle.at(under.khz) * time_ns).max(0.0);
        let (bytes, reads) = (grown.bytes as f64, grown.reads as f64);
        let of_reads_ns = self.read.law().map(|law| law.at(under.khz) * reads);
        let of_bytes_ns = self.fit(under.is_beaten).law();
        let of_bytes_ns = of_bytes_ns.map(|law| law.at(under.khz) * bytes);
        let of_reads_ns = of_reads_ns.unwrap_or(0.0).min(cpu_ns);
        let of_bytes_ns = of_bytes_ns.unwrap_or(0.0).min(cpu_ns);
        let fit = match under.is_beaten {
            true => &mut self.beaten,
            false => &mut self.at_once,
        };
        if grown.bytes >= BYTES_MIN {
            if of_reads_ns <= OTHER_MAX * cpu_ns {
                fit.add(under.khz, (cpu_ns - of_reads_ns) / bytes);
            } else if fit.law().is_none() {
                fit.add(under.khz, cpu_ns / bytes);
            }
        }
        if grown.reads >= READS_BESIDE_MIN {
            if of_bytes_ns <= OTHER_MAX * cpu_ns {
                self.read.add(under.khz, (cpu_ns - of_bytes_ns) / reads);
            } else if self.read.law().is_none() {
                self.read.add(under.khz, cpu_ns / reads);
            }
        }
    }

    fn fit(&self, is_beaten: bool) -> &Fit {
        match is_beaten {
            true => &self.beaten,
            false => &self.at_once,
        }
    }

    /// What a byte costs, in beats or at once. In beats it costs less, so that what it costs at once counts
    /// as long as no beat was seen.
    pub fn per_byte(&self, is_beaten: bool) -> Option<Law> {
        let other = || self.fit(false).law();
        self.fit(is_beaten).law().or_else(other)
    }

    /// What a read costs; nothing as long as there was none.
    pub fn per_read(&self) -> Law {
        self.read.law().unwrap_or_default()
    }

    /// The busy share of a server that has nothing to do.
    pub fn idle(&self) -> Law {
        self.idle
    }

    /// The most bytes per nanosecond of the last minute.
    pub fn most_bytes(&self) -> f64 {
        self.bytes.most()
    }

    /// The most reads per nanosecond of the last minute.
    pub fn most_reads(&self) -> f64 {
        self.reads.most()
    }
}

/// Parts of the minute of which the most is kept, each of five seconds.
const PARTS: usize = 12;
const PART_NS: u64 = 5_000_000_000;

/// The most of the last minute.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    parts: [f64; PARTS],
    /// The newest part, counted from the beginning of time.
    newest: u64,
}

impl Minute {
    fn add(&mut self, now_ns: u64, value: f64) {
        let part = now_ns / PART_NS;
        let new = part.saturating_sub(self.newest).min(PARTS as u64);
        for old in 0..new {
            self.parts[((part - old) % PARTS as u64) as usize] = 0.0;
        }
        self.newest = self.newest.max(part);
        let at = (self.newest % PARTS as u64) as usize;
        self.parts[at] = self.parts[at].max(value);
    }

    fn most(&self) -> f64 {
        self.parts.iter().copied().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests;
