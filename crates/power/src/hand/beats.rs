//! The beats of all links: when they are due, and how they begin and end.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use slackwater_control::power::InstanceId;

use super::Hand;
use super::link::{Link, Looked};
use crate::journal::Socket;
use crate::message::{Answer, Code, Report};
use crate::process;
use crate::system;

impl Hand {
    /// When the next link has to be served.
    pub(super) fn due(&self) -> Option<u64> {
        self.links().filter_map(Link::due).min()
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        let instances = self.instances.values();
        instances.filter_map(|adopted| adopted.link.as_ref())
    }

    /// The shortest beat of all links; the longest time if there is none.
    fn shortest_ns(&self) -> u64 {
        let beats = self.links().filter_map(Link::wanted_ns);
        beats.min().unwrap_or(u64::MAX)
    }

    /// Has all links beat together.
    fn keep_step(&mut self) {
        let (now, shortest_ns) = (system::now_ns(), self.shortest_ns());
        for adopted in self.instances.values_mut() {
            if let Some(link) = adopted.link.as_mut() {
                link.keep_step(now, shortest_ns);
            }
        }
    }

    /// Serves all links; true if the head is gone.
    pub(super) fn beat(&mut self, now: u64, connections: &[(InstanceId, bool)]) -> bool {
        let mut closed = Vec::new();
        let (mut looked, mut was_early) = (false, false);
        let came = self.came(connections);
        // Masters of whose silent replicas one is watched: what comes to one comes to all.
        let mut watched = Vec::<SocketAddr>::new();
        for (instance, adopted) in &mut self.instances {
            let Some(link) = adopted.link.as_mut() else {
                continue;
            };
            if came.contains(&link.master) {
                link.bytes_came(now, &self.reading);
            }
            let is_closed = connections.contains(&(*instance, true));
            let served = match is_closed {
                true => Err(std::io::ErrorKind::NotConnected.into()),
                false => link.step(now, &self.reading),
            };
            let watch = link.waits_for_bytes() && !is_closed && !watched.contains(&link.master);
            if watch {
                watched.push(link.master);
            }
            let set = match watch == link.is_watched {
                true => Ok(()),
                false => self.waits.link(*instance, link.as_fd(), watch),
            };
            link.is_watched = watch;
            match (served, set) {
                (Ok(seen), Ok(())) => {
                    looked |= seen != Looked::No;
                    was_early |= seen == Looked::Unread;
                }
                (Err(_), _) | (_, Err(_)) => closed.push(*instance),
            }
        }
        if looked {
            let shortest_ns = self.shortest_ns();
            self.reading.learn(was_early, shortest_ns);
        }
        closed.into_iter().any(|instance| self.close(instance))
    }

    /// Masters that have sent something after a silence.
    fn came(&self, connections: &[(InstanceId, bool)]) -> Vec<SocketAddr> {
        let open = connections.iter().filter(|(_, is_closed)| !is_closed);
        let links = open.filter_map(|(instance, _)| self.instances.get(instance)?.link.as_ref());
        links.map(|link| link.master).collect()
    }

    /// Lets a connection go; true if the head is gone.
    pub(super) fn close(&mut self, instance: InstanceId) -> bool {
        let Some(adopted) = self.instances.get_mut(&instance) else {
            return false;
        };
        let Some(mut link) = adopted.link.take() else {
            return false;
        };
        let _ = link.stop();
        self.waits.forget_link(link.as_fd());
        let inode = link.inode;
        // An entry that stays is of a socket that is closed: undoing it does nothing.
        let _ = self
            .journal
            .update(|entries| entries.sockets.retain(|socket| socket.inode != inode));
        drop(link);
        self.keep_step();
        self.report(&Report::Closed { instance })
    }

    /// Begins, changes or ends the beat of an instance.
    pub(super) fn set_beat(
        &mut self,
        instance: InstanceId,
        master: SocketAddr,
        beat_ns: Option<u64>,
    ) -> Result<(), Answer> {
        let adopted = self.instances.get_mut(&instance);
        let adopted = adopted.ok_or(Answer::of(Code::NotAdopted))?;
        if self.is_dry || (beat_ns.is_none() && adopted.link.is_none()) {
            return Ok(());
        }
        let refused = |error: std::io::Error| Answer::refused(&error);
        if adopted.link.is_none() {
            let found = process::connection_to(adopted.pid, master);
            let (descriptor, inode) = found.ok_or(Answer::of(Code::NoConnection))?;
            let socket = process::duplicate(&adopted.handle, descriptor).map_err(refused)?;
            // The number may have been given to another socket in between.
            if process::socket_inode(adopted.pid, descriptor) != Some(inode) {
                return Err(Answer::of(Code::NoConnection));
            }
            let link =
                Link::new(adopted.pid, (descriptor, inode), master, socket).map_err(refused)?;
            let entry = Socket {
                pid: adopted.pid,
                started: adopted.started,
                inode,
                found: link.found,
            };
            let written = self.journal.update(|entries| {
                entries.sockets.insert(entry);
            });
            written.map_err(refused)?;
            let report = Report::Socket {
                instance,
                found: link.found,
            };
            self.channel
                .send(&report, Some(link.as_fd()))
                .map_err(refused)?;
            // The last thing that may fail: whatever is watched is let go by `close`.
            self.waits
                .link(instance, link.as_fd(), false)
                .map_err(refused)?;
            adopted.link = Some(link);
        }
        let shortest_ns = self.shortest_ns();
        let link = self.instances.get_mut(&instance);
        let link = link.and_then(|adopted| adopted.link.as_mut());
        let set = link.map_or(Ok(()), |link| {
            link.beat(system::now_ns(), beat_ns, shortest_ns)
        });
        self.keep_step();
        match (set, beat_ns) {
            (Ok(()), Some(_)) => Ok(()),
            // Nothing is held of a connection that is not batched.
            (set, None) => {
                self.close(instance);
                set.map_err(refused)
            }
            (Err(error), Some(_)) => {
                self.close(instance);
                Err(refused(error))
            }
        }
    }
}
