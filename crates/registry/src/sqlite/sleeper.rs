//! How a thread waits: for the next write, for the end of sessions, and for its own end, all at once and
//! without a time-out.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::Errno;

use super::database::Database;
use crate::error::{Error, Kind, Result};

/// Wakes a sleeper for its end.
#[derive(Clone)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Rings. It can't fail before 2⁶⁴ rings.
    pub fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// What a thread waits with.
pub struct Sleeper {
    place: String,
    bell: Bell,
    notices: OwnedFd,
}

impl Sleeper {
    /// Notices from now on every write.
    pub fn new(database: &Database) -> Result<Sleeper> {
        let made = || -> Result<Sleeper, Errno> {
            let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
            let notices = inotify::init(flags)?;
            use inotify::WatchFlags;
            let all = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
            inotify::add_watch(&notices, database.changes_path(), all)?;
            // Removed, or moved away. A file that is open gets no IN_DELETE_SELF.
            let end = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF;
            inotify::add_watch(&notices, database.path(), end)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Sleeper {
                place: database.place().to_owned(),
                bell: Bell(Arc::new(bell)),
                notices,
            })
        };
        made().map_err(|error| {
            let reason = format!("its changes can't be watched: {error}");
            Error::new(Kind::Unavailable, database.place(), reason)
                .hint("see `ulimit -n` and fs.inotify.max_user_instances")
        })
    }

    /// What ends a wait for good.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Sleeps until something was written, or a session ends. Returns false if the bell rings.
    pub fn sleep(&self, sessions: &[OwnedFd]) -> Result<bool> {
        let mut descriptors = Vec::with_capacity(2 + sessions.len());
        descriptors.push(PollFd::new(&*self.bell.0, PollFlags::IN));
        descriptors.push(PollFd::new(&self.notices, PollFlags::IN));
        // Only the error that says that no reader is left.
        let ends = sessions
            .iter()
            .map(|end| PollFd::new(end, PollFlags::empty()));
        descriptors.extend(ends);
        loop {
            match poll(&mut descriptors, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    let reason = format!("its changes can't be waited for: {error}");
                    return Err(Error::new(Kind::Unavailable, self.place.clone(), reason));
                }
            }
        }
        let is_over = !descriptors[0].revents().is_empty();
        self.drain();
        Ok(!is_over)
    }

    /// Waits until the write that was noticed is over, however long its writer stands still: there is no
    /// notice of its end. Returns false if the bell rings.
    pub fn settle(&self, database: &Database) -> Result<bool> {
        while !database.settle()? {
            let mut bell = [PollFd::new(&*self.bell.0, PollFlags::IN)];
            // An error is one of the next sleep.
            if poll(&mut bell, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notices only say that there is something to look at.
    fn drain(&self) {
        let mut space = [MaybeUninit::uninit(); 4096];
        // Each read takes up to 4 KiB of a queue that the kernel limits.
        while rustix::io::read(&self.notices, &mut space).is_ok_and(|(read, _)| !read.is_empty()) {}
    }
}
