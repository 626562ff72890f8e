//! When a host counts as lost, and when its processes have certainly ended.
//!
//! An agent holds a lease for the worker processes of one incarnation, and the orchestrator grants it.
//! While the processes work, the agent sends *beats*, and an answer to a beat that was sent at t is good
//! until t + `host_timeout`, by the agent's clock. Then the agent kills the processes. The orchestrator
//! knows when it has answered last, which was not before the beat was sent: so it knows when the lease
//! has certainly run out, whatever the network did.
//!
//! ```text
//! agent: Holder            t₀ ───beat──╮                      t₀+T: kills its processes
//!                                      ╰─►r₀ ──answer──► ✗     │
//! orchestrator: Grantor                r₀            r₀+T: lost │  r₀+1.03 T+kill: over
//! ```
//!
//! **A silence.** Processes that do nothing need no lease. The agent says so with its last beat; once
//! that is answered neither side has a deadline or a timer. Work after a silence begins with a beat at
//! once, and with a new deadline. A host that is given up in a silence is [`Standing::Unknown`]: its
//! processes have done nothing since, and end within `host_timeout` of the first that they do; what they
//! write until then only fences stop, which are there for processes that were stopped, too.
//!
//! **What has to hold.** Clocks run at most 1 % fast or slow. Agents take the time of a clock that goes
//! on while the machine sleeps (`CLOCK_BOOTTIME`). Beats and answers may be late, lost or overtake each
//! other.

use std::collections::VecDeque;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod tests;

/// How long an agent may take from its deadline to the end of its processes, in nanoseconds. It wakes up and
/// sends SIGKILL: milliseconds, and more on a machine without a free core.
pub const KILL_NS: u64 = 100_000_000;

/// Beats of which the times are kept. Answers to older ones are of no use: three and a third are sent within
/// the time that an answer is good for, and as many again by work that ends silences.
const UNANSWERED_MAX: usize = 8;

/// The times that both sides agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long an answered beat is good for, and how long the orchestrator waits for the next one.
    pub host_timeout_ns: u64,
}

impl Terms {
    /// The time between two beats. When each way takes a third of the timeout, and the agent's beats are 1 %
    /// late, the next answer is there after (2/3 + 0.303) T = 0.970 T; a fast clock has its deadline after
    /// T / 1.01 = 0.990 T.
    pub fn beat_ns(&self) -> u64 {
        (self.host_timeout_ns / 10 * 3).max(1)
    }

    /// The time from an answer to the certain end of the processes, by the orchestrator's clock: the agent's
    /// may be 1 % slow and this one 1 % fast, which is 1.01 / 0.99 = 1.0203.
    pub fn certain_ns(&self) -> u64 {
        let slow_ns = (self.host_timeout_ns / 100).saturating_mul(3);
        let timeout_ns = self.host_timeout_ns.saturating_add(slow_ns);
        timeout_ns.saturating_add(KILL_NS)
    }
}

/// What an agent says. Stamps for the clocks travel with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The incarnation that the processes belong to.
    pub epoch: u64,
    /// Counts the beats of this lease from 1.
    pub number: u64,
    /// Whether the processes have done nothing since the beat before.
    pub is_silent: bool,
}

/// What the orchestrator answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The beat's incarnation.
    pub epoch: u64,
    /// The beat's number.
    pub number: u64,
    /// Whether the lease goes on. If not, the processes have to end.
    pub is_granted: bool,
}

/// What an agent has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
    /// Nothing before [`Holder::next_ns`].
    Nothing,
    /// Start the processes: the lease has begun.
    Start,
    /// Send a beat.
    Beat(Beat),
    /// Kill the processes of this incarnation, and tell the orchestrator when they have ended, by joining
    /// again if need be. The lease has ended; another one needs another `Holder`.
    Kill,
}

/// The agent's half. All times are of its clock.
#[derive(Debug, Clone)]
pub struct Holder {
    terms: Terms,
    epoch: u64,
    number: u64,
    /// Numbers and times of beats, the oldest first.
    unanswered: VecDeque<(u64, u64)>,
    state: Held,
    /// `None` in a silence, and at the end.
    good_until_ns: Option<u64>,
    next_beat_ns: Option<u64>,
    /// The first of the silent beats since the last other one.
    silent_since: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Asked,
    Active,
    Silent,
    Ended,
}

impl Holder {
    /// Asks for the lease of an incarnation with a beat. The processes start when `answered` says so.
    pub fn begin(terms: Terms, epoch: u64, now_ns: u64) -> (Holder, Beat) {
        let mut holder = Holder {
            terms,
            epoch,
            number: 0,
            unanswered: VecDeque::new(),
            state: Held::Asked,
            good_until_ns: Some(now_ns.saturating_add(terms.host_timeout_ns)),
            next_beat_ns: None,
            silent_since: None,
        };
        let beat = holder.beat(now_ns, false);
        (holder, beat)
    }

    /// The processes have begun to do something. Returns the beat to send if they were silent.
    pub fn worked(&mut self, now_ns: u64) -> Option<Beat> {
        match self.state {
            Held::Silent => {
                self.state = Held::Active;
                self.good_until_ns = Some(now_ns.saturating_add(self.terms.host_timeout_ns));
            }
            // The silence that was said is over before it was agreed on.
            Held::Active if self.silent_since.is_some() => {}
            Held::Asked | Held::Active | Held::Ended => return None,
        }
        Some(self.beat(now_ns, false))
    }

    /// What is due; `has_worked` says whether the processes did something since the last beat.
    pub fn due(&mut self, now_ns: u64, has_worked: bool) -> Do {
        if self
            .good_until_ns
            .is_some_and(|until_ns| until_ns <= now_ns)
        {
            return self.end();
        }
        if self.next_beat_ns.is_some_and(|beat_ns| beat_ns <= now_ns) {
            let is_silent = !has_worked && self.state == Held::Active;
            return Do::Beat(self.beat(now_ns, is_silent));
        }
        Do::Nothing
    }

    /// Takes an answer.
    pub fn answered(&mut self, now_ns: u64, answer: &Answer) -> Do {
        if answer.epoch != self.epoch || self.state == Held::Ended {
            return Do::Nothing;
        }
        if !answer.is_granted
            || self
                .good_until_ns
                .is_some_and(|until_ns| until_ns <= now_ns)
        {
            return self.end();
        }
        let Some(&(_, sent_ns)) = self.unanswered.iter().find(|sent| sent.0 == answer.number)
        else {
            return Do::Nothing;
        };
        self.unanswered.retain(|sent| sent.0 > answer.number);
        let good_until_ns = sent_ns.saturating_add(self.terms.host_timeout_ns);
        self.good_until_ns = self.good_until_ns.max(Some(good_until_ns));
        // All beats since were silent: the orchestrator expects nothing.
        if self
            .silent_since
            .is_some_and(|since| since <= answer.number)
        {
            self.state = Held::Silent;
            self.unanswered.clear();
            self.good_until_ns = None;
            self.next_beat_ns = None;
            return Do::Nothing;
        }
        if self.state == Held::Asked {
            self.state = Held::Active;
            return Do::Start;
        }
        Do::Nothing
    }

    /// The processes have ended, or were killed for another reason.
    pub fn ended(&mut self) {
        self.end();
    }

    /// When to call `due`; `None` in a silence and at the end.
    pub fn next_ns(&self) -> Option<u64> {
        let times = [self.good_until_ns, self.next_beat_ns];
        times.into_iter().flatten().min()
    }

    fn end(&mut self) -> Do {
        self.state = Held::Ended;
        self.good_until_ns = None;
        self.next_beat_ns = None;
        self.unanswered.clear();
        Do::Kill
    }

    fn beat(&mut self, now_ns: u64, is_silent: bool) -> Beat {
        self.number += 1;
        if self.unanswered.len() == UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back((self.number, now_ns));
        self.next_beat_ns = Some(now_ns.saturating_add(self.terms.beat_ns()));
        self.silent_since = match is_silent {
            true => self.silent_since.or(Some(self.number)),
            false => None,
        };
        Beat {
            epoch: self.epoch,
            number: self.number,
            is_silent,
        }
    }
}

/// What the orchestrator knows of a host's processes of one incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// They were heard of in time, or may still begin.
    Held,
    /// They do nothing, and nothing is expected of them.
    Silent,
    /// They are given up, and have certainly ended at `over_ns`.
    Lost {
        /// A time of the orchestrator's clock.
        over_ns: u64,
    },
    /// They were given up in a silence: they end soon after they do anything, and may never do so.
    Unknown,
    /// They have certainly ended, or will never begin.
    Over,
}

/// The orchestrator's half, for one host and one incarnation. All times are of its clock.
#[derive(Debug, Clone)]
pub struct Grantor {
    terms: Terms,
    epoch: u64,
    number: u64,
    /// When a beat was last heard, or at first when the host was told to begin.
    heard_ns: u64,
    standing: Standing,
}

impl Grantor {
    /// The lease of an incarnation whose processes a host is told to start.
    pub fn new(terms: Terms, epoch: u64, now_ns: u64) -> Grantor {
        Grantor {
            terms,
            epoch,
            number: 0,
            heard_ns: now_ns,
            standing: Standing::Held,
        }
    }

    /// Takes a beat, and returns the answer to send, at once. Beats that were overtaken have none.
    pub fn heard(&mut self, now_ns: u64, beat: &Beat) -> Option<Answer> {
        let is_mine = beat.epoch == self.epoch;
        if is_mine && beat.number <= self.number {
            return None;
        }
        // Late enough to be given up: that comes first.
        let is_granted = is_mine && matches!(self.look(now_ns), Standing::Held | Standing::Silent);
        if is_granted {
            self.number = beat.number;
            self.heard_ns = now_ns;
            self.standing = match beat.is_silent {
                true => Standing::Silent,
                false => Standing::Held,
            };
        }
        Some(Answer {
            epoch: beat.epoch,
            number: beat.number,
            is_granted,
        })
    }

    /// Gives the host up: its session has ended, or the incarnation has. No beat is granted any more.
    pub fn give_up(&mut self) {
        self.standing = match self.standing {
            Standing::Held if self.number == 0 => Standing::Over,
            Standing::Held => Standing::Lost {
                over_ns: self.heard_ns.saturating_add(self.terms.certain_ns()),
            },
            Standing::Silent => Standing::Unknown,
            given_up => given_up,
        };
    }

    /// The agent has said that all processes of this incarnation have ended.
    pub fn confirmed(&mut self) {
        self.standing = Standing::Over;
    }

    /// How it stands by now.
    pub fn look(&mut self, now_ns: u64) -> Standing {
        if self.standing == Standing::Held && self.lost_ns() <= now_ns {
            self.give_up();
        }
        if matches!(self.standing, Standing::Lost { over_ns } if over_ns <= now_ns) {
            self.standing = Standing::Over;
        }
        self.standing
    }

    /// When to look again; `None` where only a beat or the agent's word can change anything.
    pub fn next_ns(&self) -> Option<u64> {
        match self.standing {
            Standing::Held => Some(self.lost_ns()),
            Standing::Lost { over_ns } => Some(over_ns),
            Standing::Silent | Standing::Unknown | Standing::Over => None,
        }
    }

    fn lost_ns(&self) -> u64 {
        self.heard_ns.saturating_add(self.terms.host_timeout_ns)
    }
}
