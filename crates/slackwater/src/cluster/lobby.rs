//! Where agents wait until a job of a server needs a host.
//!
//! ```text
//! agent ── Join ──► lobby ── Wait … Serve ──► agent ── Join ──► orchestrator of the job
//!         the session with the lobby goes on: it says whether the agent is there
//! ```
//!
//! Nobody polls: jobs say what they want when they begin, and agents are assigned when either comes or goes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use slackwater_secure::{Door, Secret, Stream};

use super::greeting::{answer_last, other_program, receive, strangers};
use super::messages::{Greeting, Hello, Reply, ToAgent};
use super::session::{Beside, Receiver, Session};

/// Agents that wait, and jobs that want them. Dropping it ends the sessions of those that wait.
pub struct Lobby {
    shared: Arc<Shared>,
    door: Door,
}

struct Shared {
    name: String,
    /// Tells the server's log.
    log: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<String, Wants>,
    /// The agents, by the number of their session.
    agents: BTreeMap<u64, Agent>,
    /// The number of the last of them.
    last: u64,
}

/// What a job wants.
struct Wants {
    port: u16,
    agents: usize,
}

struct Agent {
    name: String,
    session: Arc<Session>,
    /// The job that it serves.
    job: Option<String>,
}

impl Lobby {
    /// Listens for agents that know the secret, as the host `name`.
    ///
    /// # Errors
    ///
    /// If the address can't be listened at.
    pub fn new(
        address: SocketAddr,
        secret: Option<Secret>,
        name: &str,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Lobby> {
        let shared = Arc::new(Shared {
            name: name.to_string(),
            log: Box::new(log),
            state: Mutex::default(),
        });
        let admitting = Arc::downgrade(&shared);
        let admit = move |stream, peer| admit(&admitting, stream, peer);
        let telling = Arc::downgrade(&shared);
        let tell = move |what: &str, hint: &str| {
            if let Some(shared) = telling.upgrade() {
                (shared.log)(&format!("{what}; {hint}"));
            }
        };
        let door = Door::bind(address, secret, admit, strangers(|| {}, tell))?;
        Ok(Lobby { shared, door })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.door.local_address()
    }

    /// A job wants so many agents at its port. It replaces what it has wanted before.
    pub fn want(&self, job: &str, port: u16, agents: usize) {
        let mut state = self.shared.state();
        state.jobs.insert(job.to_string(), Wants { port, agents });
        state.assign();
    }

    /// A job wants no agents any more. Those that serve it come back by themselves, with another session.
    pub fn forget(&self, job: &str) {
        self.shared.state().jobs.remove(job);
    }
}

impl Drop for Lobby {
    fn drop(&mut self) {
        for agent in self.shared.state().agents.values() {
            agent.session.end("the server has ended");
        }
    }
}

impl State {
    /// Sends agents that wait to the jobs that lack most.
    fn assign(&mut self) {
        loop {
            let lacks = self.jobs.iter().map(|(name, wants)| {
                let serves = |agent: &&Agent| agent.job.as_ref() == Some(name);
                let has = self.agents.values().filter(serves).count();
                (wants.agents.saturating_sub(has), name.clone(), wants.port)
            });
            let Some((1.., job, port)) = lacks.max_by_key(|(lacks, ..)| *lacks) else {
                return;
            };
            let free = self.agents.values_mut().find(|agent| agent.job.is_none());
            let Some(agent) = free else {
                return;
            };
            agent.job = Some(job.clone());
            agent
                .session
                .send(&ToAgent::Serve { job, port }, Beside::Nothing);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under it")
    }
}

/// Greets whoever has come in.
fn admit(shared: &Weak<Shared>, stream: Stream, peer: SocketAddr) {
    let Some(shared) = shared.upgrade() else {
        return;
    };
    receive(stream, peer, move |session| {
        let mut receiver = Receiver::new(session.stream());
        match receiver.receive() {
            Ok(Some((Greeting::Join(hello), _))) => shared.join(&hello, session, &mut receiver),
            Ok(Some((Greeting::Ask(_), _))) => {
                let reason = "a server answers by SQL: SHOW JOBS, ALTER JOB".to_string();
                answer_last(session, &mut receiver, &Reply::Refused(reason));
            }
            Ok(Some((Greeting::StandBy { .. }, _)) | None) | Err(_) => session.end("no greeting"),
        }
    });
}

impl Shared {
    /// Keeps an agent until its session ends.
    fn join(&self, hello: &Hello, session: &Arc<Session>, receiver: &mut Receiver<&Stream>) {
        let name = hello.facts.name.clone();
        if let Some(refused) = other_program(hello) {
            return answer_last(session, receiver, &refused);
        }
        let wait = ToAgent::Wait {
            name: self.name.clone(),
        };
        session.send(&wait, Beside::Nothing);
        let number = {
            let mut state = self.state();
            state.last += 1;
            let agent = Agent {
                name: name.clone(),
                session: Arc::clone(session),
                job: None,
            };
            let number = state.last;
            state.agents.insert(number, agent);
            state.assign();
            number
        };
        // It says nothing: this is its end.
        let _ = receiver.receive::<serde_json::Value>();
        session.end("it has left");
        let mut state = self.state();
        let left = state.agents.remove(&number);
        state.assign();
        drop(state);
        if let Some(Agent {
            job: None, name, ..
        }) = left
        {
            (self.log)(&format!("host {name} has left"));
        }
    }
}
