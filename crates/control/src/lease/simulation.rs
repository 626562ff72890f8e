//! Both halves over a random network: beats and answers are late, lost and overtake each other, the network
//! is cut, also in one direction, and heals; clocks run up to 1 % fast or slow. The orchestrator begins the
//! next incarnation as soon as it believes that the last one is over.
//!
//! A seed is one run; `SLACKWATER_SEED=17` runs it alone.

mod clock;

pub use clock::Clock;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Answer, Beat, Do, Grantor, Holder, KILL_NS, Standing, Terms};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
pub const TERMS: Terms = Terms {
    host_timeout_ns: 3 * S,
};

/// A run's disturbed part, and the quiet time after it in which everything has to settle.
const DISTURBED_NS: u64 = 120 * S;
const SETTLED_NS: u64 = DISTURBED_NS + 90 * S;

/// Seeds of an ordinary test; a second.
const SEEDS: u64 = 300;
const SEEDS_LONG: u64 = 10_000;

#[test]
fn processes_have_ended_when_the_orchestrator_says_so() {
    run_seeds(SEEDS, &EVENTS, |seed| World::new(seed).run());
}

#[test]
#[ignore = "takes a minute: make test-crash"]
fn processes_have_ended_when_the_orchestrator_says_so_with_many_seeds() {
    run_seeds(SEEDS_LONG, &EVENTS, |seed| World::new(seed).run());
}

/// Runs a simulation with each seed, and asserts that each of the events happens in some of them.
pub fn run_seeds(count: u64, events: &[&'static str], run: impl Fn(u64) -> Result<Seen, String>) {
    let only = std::env::var("SLACKWATER_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().expect("SLACKWATER_SEED is a number"));
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    let mut seen = Seen::default();
    for seed in seeds {
        match run(seed) {
            Err(reason) => panic!("SLACKWATER_SEED={seed}: {reason}"),
            Ok(happened) => {
                for (event, count) in happened {
                    *seen.entry(event).or_default() += count;
                }
            }
        }
    }
    println!("{seen:?}");
    let missing = events
        .iter()
        .filter(|event| seen.get(*event).is_none_or(|count| *count == 0));
    let missing = missing.collect::<Vec<&&str>>();
    assert!(only.is_some() || missing.is_empty(), "never: {missing:?}");
}

/// How often something has happened, by name.
pub type Seen = BTreeMap<&'static str, u64>;

/// What has to happen in some seed, or the simulation no longer simulates what it is for.
const EVENTS: [&str; 11] = [
    "started",
    "expired",
    "refused",
    "over by time",
    "over by word",
    "never begun",
    "unknown",
    "unknown, and woke up",
    "silences",
    "lost messages",
    "undisturbed",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// To the agent.
    Start(u64),
    Answer(u64, u64, bool),
    /// To the orchestrator.
    Beat(u64, u64, bool),
    Ended(u64),
    /// Of the agent: the processes of an incarnation are gone, and whether another one was asked for.
    Dead(u64, Option<u64>),
    Report(u64),
    AgentTimer,
    Busy(bool),
    /// Of the orchestrator.
    OrchestratorTimer,
    GiveUp,
    Next,
    /// Of the network: whether messages to the agent, and to the orchestrator, arrive.
    Cut(bool, bool),
}

/// The processes of an incarnation.
#[derive(Debug, Clone, Copy, Default)]
struct Processes {
    is_alive: bool,
    is_dying: bool,
    /// Since when they work.
    busy_since_ns: Option<u64>,
}

struct World {
    random: fastrand::Rng,
    now_ns: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Whether all messages arrive within a third of the timeout.
    is_good: bool,
    loss: f64,
    delay_max_ns: u64,
    reaches_agent: bool,
    reaches_orchestrator: bool,

    agent_clock: Clock,
    holder: Option<Holder>,
    holder_epoch: u64,
    processes: BTreeMap<u64, Processes>,
    is_busy: bool,
    has_worked: bool,

    orchestrator_clock: Clock,
    grantor: Grantor,
    epoch: u64,
    /// The incarnations that the orchestrator believes to be over, and those that it gave up in a silence.
    over: BTreeMap<u64, Standing>,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let (agent_clock, orchestrator_clock) =
            (Clock::random(&mut random), Clock::random(&mut random));
        let is_good = random.u8(0..4) == 0;
        let delays = [MS, 50 * MS, S, 20 * S];
        let now_ns = orchestrator_clock.reads(0);
        let mut world = World {
            now_ns: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            is_good,
            loss: if is_good {
                0.0
            } else {
                [0.0, 0.05, 0.5][random.usize(0..3)]
            },
            delay_max_ns: delays[random.usize(0..if is_good { 3 } else { 4 })],
            reaches_agent: true,
            reaches_orchestrator: true,
            agent_clock,
            holder: None,
            holder_epoch: 0,
            processes: BTreeMap::new(),
            is_busy: false,
            has_worked: false,
            orchestrator_clock,
            grantor: Grantor::new(TERMS, 1, now_ns),
            epoch: 1,
            over: BTreeMap::new(),
            seen: Seen::default(),
            random,
        };
        world.plan();
        world.send_to_agent(Event::Start(1));
        world
    }

    /// Work, and what happens to the network.
    fn plan(&mut self) {
        let mut at_ns = 0;
        let mut is_busy = false;
        let work_max_ns = [S, 10 * S, 60 * S][self.random.usize(0..3)];
        while at_ns < DISTURBED_NS {
            is_busy = !is_busy;
            self.add(at_ns, Event::Busy(is_busy));
            at_ns += self.random.u64(MS..work_max_ns);
        }
        self.add(DISTURBED_NS, Event::Busy(false));
        if self.is_good {
            return;
        }
        at_ns = self.random.u64(0..40 * S);
        while at_ns < DISTURBED_NS {
            let cut = [(false, false), (false, true), (true, false)][self.random.usize(0..3)];
            self.add(at_ns, Event::Cut(cut.0, cut.1));
            at_ns += self.random.u64(0..15 * S);
            self.add(at_ns.min(DISTURBED_NS), Event::Cut(true, true));
            at_ns += self.random.u64(0..40 * S);
        }
        self.add(DISTURBED_NS, Event::Cut(true, true));
        for _ in 0..self.random.u8(0..4) {
            let at_ns = self.random.u64(0..DISTURBED_NS);
            self.add(at_ns, Event::GiveUp);
        }
    }

    fn run(mut self) -> Result<Seen, String> {
        self.set_timers();
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            if at_ns > SETTLED_NS {
                return Err(format!("not settled: {event:?} at {at_ns}"));
            }
            self.now_ns = at_ns;
            if at_ns >= DISTURBED_NS {
                (self.loss, self.delay_max_ns) = (0.0, self.delay_max_ns.min(S));
            }
            self.take(event)?;
            self.look()?;
            self.set_timers();
        }
        self.check_silence()?;
        Ok(self.seen)
    }

    /// At the end nothing is due on either side, and the processes are there.
    fn check_silence(&mut self) -> Result<(), String> {
        let now_ns = self.orchestrator_clock.reads(self.now_ns);
        let standing = self.grantor.look(now_ns);
        let timer = self.holder.as_ref().and_then(Holder::next_ns);
        if (standing, timer, self.grantor.next_ns()) != (Standing::Silent, None, None) {
            return Err(format!(
                "no silence: {standing:?}, {timer:?}, {:?}",
                self.grantor
            ));
        }
        let processes = self.processes.get(&self.epoch).copied().unwrap_or_default();
        if !processes.is_alive || processes.is_dying {
            return Err("the orchestrator expects processes that are not there".to_string());
        }
        self.see("silences", true);
        self.see("undisturbed", self.is_good);
        if self.is_good && self.epoch != 1 {
            return Err(format!("a false loss: incarnation {}", self.epoch));
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), String> {
        let agent_ns = self.agent_clock.reads(self.now_ns);
        let orchestrator_ns = self.orchestrator_clock.reads(self.now_ns);
        match event {
            Event::Start(epoch) => self.begin(epoch),
            Event::Answer(epoch, number, is_granted) => {
                let answer = Answer {
                    epoch,
                    number,
                    is_granted,
                };
                let holder = self.holder.as_mut();
                let what = holder.map_or(Do::Nothing, |holder| holder.answered(agent_ns, &answer));
                self.see("refused", what == Do::Kill && !is_granted);
                self.act(what)?;
            }
            Event::AgentTimer => {
                let has_worked = self.has_worked;
                let holder = self.holder.as_mut();
                let what = holder.map_or(Do::Nothing, |holder| holder.due(agent_ns, has_worked));
                self.see("expired", what == Do::Kill);
                self.act(what)?;
            }
            Event::Busy(is_busy) => self.work(is_busy)?,
            Event::Dead(epoch, next) => {
                self.processes.remove(&epoch);
                self.add(self.now_ns, Event::Report(epoch));
                if let Some(next) = next {
                    self.begin(next);
                }
            }
            // As an agent does that joins again: until it is told what to start next.
            Event::Report(epoch) if epoch == self.holder_epoch => {
                self.send_to_orchestrator(Event::Ended(epoch));
                self.add(self.now_ns + S, Event::Report(epoch));
            }
            Event::Beat(epoch, number, is_silent) => {
                let beat = Beat {
                    epoch,
                    number,
                    is_silent,
                };
                if let Some(answer) = self.grantor.heard(orchestrator_ns, &beat) {
                    self.send_to_agent(Event::Answer(epoch, number, answer.is_granted));
                }
            }
            Event::Ended(epoch) if epoch == self.epoch => {
                self.see("over by word", true);
                self.grantor.confirmed();
            }
            Event::GiveUp => self.grantor.give_up(),
            Event::Next => {
                self.epoch += 1;
                self.grantor = Grantor::new(TERMS, self.epoch, orchestrator_ns);
                self.send_to_agent(Event::Start(self.epoch));
            }
            Event::Cut(agent, orchestrator) => {
                (self.reaches_agent, self.reaches_orchestrator) = (agent, orchestrator);
            }
            Event::Ended(_) | Event::Report(_) | Event::OrchestratorTimer => {}
        }
        Ok(())
    }

    /// The agent is told to start an incarnation: what it has of an earlier one ends first.
    fn begin(&mut self, epoch: u64) {
        if epoch <= self.holder_epoch {
            return;
        }
        if let Some(&earlier) = self.processes.keys().next() {
            if let Some(holder) = &mut self.holder {
                holder.ended();
            }
            self.kill(earlier, Some(epoch));
            return;
        }
        let agent_ns = self.agent_clock.reads(self.now_ns);
        let (holder, beat) = Holder::begin(TERMS, epoch, agent_ns);
        (self.holder, self.holder_epoch) = (Some(holder), epoch);
        self.send_beat(beat);
    }

    fn act(&mut self, what: Do) -> Result<(), String> {
        let epoch = self.holder_epoch;
        match what {
            Do::Nothing => {}
            Do::Start => {
                if let Some(standing) = self.over.get(&epoch) {
                    return Err(format!("{epoch} starts, and was {standing:?}"));
                }
                self.see("started", true);
                let processes = Processes {
                    is_alive: true,
                    ..Processes::default()
                };
                self.processes.insert(epoch, processes);
                self.work(self.is_busy)?;
            }
            Do::Beat(beat) => self.send_beat(beat),
            Do::Kill => self.kill(epoch, None),
        }
        Ok(())
    }

    fn kill(&mut self, epoch: u64, next: Option<u64>) {
        let late_ns = self.random.u64(0..KILL_NS * 9 / 10);
        // Also without processes the orchestrator is told.
        let processes = self.processes.entry(epoch).or_default();
        processes.is_dying = true;
        self.add(self.now_ns + late_ns, Event::Dead(epoch, next));
    }

    fn work(&mut self, is_busy: bool) -> Result<(), String> {
        self.is_busy = is_busy;
        let Some(processes) = self.processes.get_mut(&self.holder_epoch) else {
            return Ok(());
        };
        if !processes.is_alive {
            return Ok(());
        }
        let is_new = is_busy && processes.busy_since_ns.is_none();
        processes.busy_since_ns = is_busy.then(|| processes.busy_since_ns.unwrap_or(self.now_ns));
        if !is_new || processes.is_dying {
            return Ok(());
        }
        self.has_worked = true;
        let is_unknown = self.over.get(&self.holder_epoch) == Some(&Standing::Unknown);
        self.see("unknown, and woke up", is_unknown);
        let agent_ns = self.agent_clock.reads(self.now_ns);
        let beat = self
            .holder
            .as_mut()
            .and_then(|holder| holder.worked(agent_ns));
        if let Some(beat) = beat {
            self.send_beat(beat);
        }
        Ok(())
    }

    /// What the orchestrator concludes, and whether it is right.
    fn look(&mut self) -> Result<(), String> {
        let orchestrator_ns = self.orchestrator_clock.reads(self.now_ns);
        let epoch = self.epoch;
        let before = self.grantor.clone();
        let standing = self.grantor.look(orchestrator_ns);
        let is_given_up = !matches!(standing, Standing::Held | Standing::Silent);
        if self.is_good && is_given_up {
            return Err(format!("a false loss: {before:?} is {standing:?}"));
        }
        if matches!(standing, Standing::Over | Standing::Unknown) && !self.over.contains_key(&epoch)
        {
            self.over.insert(epoch, standing);
            self.see("unknown", standing == Standing::Unknown);
            self.see("never begun", before.number == 0);
            let by_time = matches!(before.standing, Standing::Lost { .. });
            self.see("over by time", by_time);
            let pause_ns = self.random.u64(0..S);
            self.add(self.now_ns + pause_ns, Event::Next);
        }
        for (epoch, processes) in &self.processes {
            let over = self.over.get(epoch);
            if processes.is_alive && over == Some(&Standing::Over) {
                return Err(format!("{epoch} is over, and its processes live"));
            }
            // Of a host that was given up in a silence: a slow clock, and the time to kill.
            let limit_ns = TERMS.host_timeout_ns * 100 / 99 + KILL_NS;
            let busy_ns = processes
                .busy_since_ns
                .map_or(0, |since| self.now_ns - since);
            if processes.is_alive && over == Some(&Standing::Unknown) && busy_ns > limit_ns {
                return Err(format!("{epoch} was given up, and works for {busy_ns} ns"));
            }
        }
        Ok(())
    }

    fn see(&mut self, event: &'static str, happens: bool) {
        if happens {
            *self.seen.entry(event).or_default() += 1;
        }
    }

    fn send_beat(&mut self, beat: Beat) {
        self.has_worked = self.is_busy;
        self.send_to_orchestrator(Event::Beat(beat.epoch, beat.number, beat.is_silent));
    }

    fn send_to_agent(&mut self, event: Event) {
        self.send(event, self.reaches_agent);
    }

    fn send_to_orchestrator(&mut self, event: Event) {
        self.send(event, self.reaches_orchestrator);
    }

    fn send(&mut self, event: Event, arrives: bool) {
        if !arrives || self.random.f64() < self.loss {
            self.see("lost messages", true);
            return;
        }
        let delay_ns = match self.random.u8(0..3) {
            0 => self.delay_max_ns,
            _ => self.random.u64(0..=self.delay_max_ns),
        };
        self.add(self.now_ns + delay_ns, event);
    }

    fn add(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns, self.sequence, event)));
    }

    /// Timers that are no longer due do nothing when they fire.
    fn set_timers(&mut self) {
        if let Some(at_ns) = self.holder.as_ref().and_then(Holder::next_ns) {
            let at_ns = self.agent_clock.shows(at_ns).max(self.now_ns);
            self.timer(at_ns, Event::AgentTimer);
        }
        if let Some(at_ns) = self.grantor.next_ns() {
            let at_ns = self.orchestrator_clock.shows(at_ns).max(self.now_ns);
            self.timer(at_ns, Event::OrchestratorTimer);
        }
    }

    fn timer(&mut self, at_ns: u64, event: Event) {
        let is_there =
            |other: &Reverse<(u64, u64, Event)>| (other.0.0, other.0.2) == (at_ns, event);
        if !self.events.iter().any(is_there) {
            self.add(at_ns, event);
        }
    }
}
