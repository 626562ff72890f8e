//! Other processes of this host, and how this process notices that one has ended.
//!
//! Each pair of processes keeps the Unix socket over which it handed over its memory. The kernel closes
//! it when a process ends, also by SIGKILL. A thread here that sleeps on all these sockets then marks the
//! peer as dead and wakes this process's workers. It has no timer: while no process dies, it costs
//! nothing (I7).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{RecvFlags, recv};

use crate::doorbell::Waker;
use crate::error::LinkError;
use crate::sync::{Arc, AtomicBool, Ordering};

/// Another process of this host. Clones are the same process.
#[derive(Clone, Debug)]
pub struct Peer(Arc<State>);

#[derive(Debug)]
struct State {
    name: String,
    dead: AtomicBool,
}

impl Peer {
    /// A live process, with its name for messages: `process 2 (pid 4711)`.
    pub fn new(name: impl Into<String>) -> Peer {
        Peer(Arc::new(State {
            name: name.into(),
            dead: AtomicBool::new(false),
        }))
    }

    /// The process's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it has ended. Everything that it did before is visible then.
    pub fn is_dead(&self) -> bool {
        // Acquire: pairs with the Release in `mark_dead`.
        self.0.dead.load(Ordering::Acquire)
    }

    /// Marks the process as ended; call this before waking whoever may wait for it.
    pub fn mark_dead(&self) {
        // Release: what this thread knows of the other process's memory goes with it.
        self.0.dead.store(true, Ordering::Release);
    }

    pub(crate) fn death(&self) -> LinkError {
        LinkError::new(
            self.name(),
            "its process has ended without closing the link",
        )
    }
}

/// The thread that watches. Dropping it ends the thread.
pub struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Watches the sockets of peers; when one ends, its peer is marked as dead and all `wakers` are woken.
///
/// # Errors
///
/// When there is no descriptor or thread left.
pub fn watch(sockets: Vec<(OwnedFd, Peer)>, wakers: Vec<Waker>) -> io::Result<Watch> {
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let stopped = Arc::clone(&stop);
    let thread = std::thread::Builder::new()
        .name("peers".to_string())
        .spawn(move || keep_watch(sockets, &wakers, &stopped))?;
    Ok(Watch {
        stop,
        thread: Some(thread),
    })
}

fn keep_watch(mut sockets: Vec<(OwnedFd, Peer)>, wakers: &[Waker], stop: &OwnedFd) {
    loop {
        let mut watched = vec![PollFd::new(stop, PollFlags::IN)];
        let sockets_watched = sockets.iter();
        watched.extend(sockets_watched.map(|(socket, _)| PollFd::new(socket, PollFlags::IN)));
        // A signal handler that ran here changes nothing.
        let _ = poll(&mut watched, None);
        if !watched[0].revents().is_empty() {
            return;
        }
        let ready = watched[1..].iter();
        let ready = ready.map(|watched| !watched.revents().is_empty());
        let mut ready = ready.collect::<Vec<bool>>().into_iter();
        let before = sockets.len();
        sockets.retain(|(socket, peer)| {
            let ended = ready.next().unwrap_or(false) && has_ended(socket);
            if ended {
                peer.mark_dead();
            }
            !ended
        });
        if sockets.len() < before {
            wakers.iter().for_each(Waker::wake_urgent);
        }
    }
}

/// Reads from the socket; no bytes are expected any more, so they are dropped.
fn has_ended(socket: &OwnedFd) -> bool {
    let mut bytes = [0u8; 256];
    match recv(socket.as_fd(), &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => true,
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
        // A reset: the other process ended with something unread.
        Err(_) => true,
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
