//! What the agents do: they join, obey, and end processes.

use super::super::{Answer, Beat, Do, Holder, KILL_NS};
use super::{Event, JOIN_NS, TERMS, ToAgent, World};

impl World {
    pub fn join(&mut self, on: usize) {
        self.add(self.now_ns + JOIN_NS, Event::Join { on });
        if self.agents[on].session.is_some() {
            return;
        }
        for by in 0..2 {
            let orchestrator = &mut self.orchestrators[by];
            let Some(term) = orchestrator.term.filter(|_| !orchestrator.stopped) else {
                continue;
            };
            if self.cuts[by][on] {
                continue;
            }
            if term < self.agents[on].term {
                self.see("an earlier term refused", true);
                continue;
            }
            self.sessions += 1;
            orchestrator.joined.insert(on, (self.sessions, None));
            self.agents[on].term = term;
            self.agents[on].session = Some((by, self.sessions));
            return;
        }
    }

    pub fn hear(&mut self, on: usize, what: ToAgent) -> Result<(), String> {
        let agent = &mut self.agents[on];
        match what {
            ToAgent::Closed => self.leave(on),
            ToAgent::Start(epoch) => {
                agent.next = Some(epoch);
                self.kill(on);
                self.begin(on);
            }
            ToAgent::Answer(epoch, number, is_granted) => {
                let now_ns = agent.clock.reads(self.now_ns);
                let answer = Answer {
                    epoch,
                    number,
                    is_granted,
                };
                let holder = agent.holder.as_mut();
                let what = holder.map_or(Do::Nothing, |holder| holder.answered(now_ns, &answer));
                self.act(on, what)?;
            }
        }
        Ok(())
    }

    /// Asks for the lease of what is to begin, once nothing lives any more.
    pub fn begin(&mut self, on: usize) {
        let agent = &mut self.agents[on];
        if !agent.processes.is_empty() {
            return;
        }
        if let Some(epoch) = agent.next.take() {
            let (holder, beat) = Holder::begin(TERMS, epoch, agent.clock.reads(self.now_ns));
            agent.holder = Some(holder);
            self.send_beat(on, beat);
        }
    }

    pub fn act(&mut self, on: usize, what: Do) -> Result<(), String> {
        match what {
            Do::Nothing => {}
            Do::Beat(beat) => self.send_beat(on, beat),
            Do::Kill => {
                self.see("expired", true);
                self.leave(on);
            }
            Do::Start => {
                let agent = &mut self.agents[on];
                let epoch = agent.holder.as_ref().map_or(0, |holder| holder.epoch);
                let now = (agent.term, epoch);
                if now.0 < agent.last.0 || now.1 <= agent.last.1 || !agent.processes.is_empty() {
                    return Err(format!(
                        "{now:?} begins after {:?}: {:?}",
                        agent.last, agent.processes
                    ));
                }
                agent.last = now;
                agent.processes.insert(epoch, false);
            }
        }
        Ok(())
    }

    /// The session ends, and with it the processes.
    fn leave(&mut self, on: usize) {
        let agent = &mut self.agents[on];
        (agent.session, agent.next) = (None, None);
        self.kill(on);
    }

    fn kill(&mut self, on: usize) {
        self.agents[on].holder = None;
        let living = &mut self.agents[on].processes;
        let living = living.iter_mut().filter(|(_, is_dying)| !**is_dying);
        let epochs: Vec<u64> = living
            .map(|(epoch, is_dying)| {
                *is_dying = true;
                *epoch
            })
            .collect();
        for epoch in epochs {
            let late_ns = self.random.u64(0..KILL_NS * 9 / 10);
            self.add(self.now_ns + late_ns, Event::Dead { on, epoch });
        }
    }

    fn send_beat(&mut self, on: usize, beat: Beat) {
        let Some((by, session)) = self.agents[on].session else {
            return;
        };
        let beat = (beat.epoch, beat.number);
        self.send(
            by,
            on,
            Event::Beat {
                by,
                on,
                session,
                beat,
            },
        );
    }
}
