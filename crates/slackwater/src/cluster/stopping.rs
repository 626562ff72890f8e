//! How an agent ends: it asks to leave, and ends when its query goes on elsewhere.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::messages::FromAgent;
use super::session::{Beside, Session};

/// How long an agent that was told to stop waits until its query goes on elsewhere.
const LEAVE_PATIENCE: Duration = Duration::from_secs(30);

/// Whether the agent is to end, and the session that is to end with it.
#[derive(Default)]
pub struct Stopping {
    state: Mutex<StoppingState>,
    changed: Condvar,
}

#[derive(Default)]
struct StoppingState {
    is_stopping: bool,
    /// Whether it was told to stop once.
    has_asked: bool,
    has_joined: bool,
    session: Option<Arc<Session>>,
}

impl Stopping {
    /// Asks to leave if the agent has joined, and ends the agent after a while; the second time, at once.
    pub fn stop(self: &Arc<Stopping>) {
        let mut state = self.state();
        let asks = !std::mem::replace(&mut state.has_asked, true);
        match &state.session {
            Some(session) if asks && state.has_joined => {
                session.send(&FromAgent::Leaving, Beside::Nothing);
                let ending = Arc::clone(self);
                // Without a thread the agent waits until it may leave, or for another signal.
                let _ = std::thread::Builder::new()
                    .name("leaving".to_string())
                    .spawn(move || {
                        std::thread::sleep(LEAVE_PATIENCE);
                        ending.end();
                    });
            }
            _ => {
                drop(state);
                self.end();
            }
        }
    }

    /// Ends the agent.
    pub fn end(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        if let Some(session) = &state.session {
            session.end("the agent was stopped");
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The session goes on: the agent has joined.
    pub fn has_joined(&self) {
        self.state().has_joined = true;
    }

    /// Whether it is to end.
    pub fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// Ends this session, too.
    pub fn watch(&self, session: &Arc<Session>) -> Watched<'_> {
        let mut state = self.state();
        if state.is_stopping {
            session.end("the agent was stopped");
        }
        state.session = Some(Arc::clone(session));
        Watched(self)
    }

    /// Waits for a while, or until it is to end.
    pub fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.state();
        while !state.is_stopping && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no thread panics under it");
        }
    }

    fn state(&self) -> MutexGuard<'_, StoppingState> {
        self.state.lock().expect("no thread panics under it")
    }
}

/// A session that ends with the agent.
pub struct Watched<'a>(&'a Stopping);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.session, state.has_joined) = (None, false);
        // It has asked to leave, and is free to.
        state.is_stopping |= state.has_asked;
    }
}

#[cfg(test)]
mod tests {
    use super::super::session::tests::sessions;
    use super::*;

    #[test]
    fn an_agent_that_has_asked_to_leave_does_not_join_again() {
        let [session, _orchestrator] = sessions();
        let stopping = Arc::new(Stopping::default());
        let watched = stopping.watch(&session);
        stopping.has_joined();
        drop(watched);
        assert!(!stopping.is_stopping(), "a lost session is joined again");
        let watched = stopping.watch(&session);
        stopping.has_joined();
        stopping.stop();
        assert!(!stopping.is_stopping(), "the query moves first");
        drop(watched);
        assert!(stopping.is_stopping());
    }
}
