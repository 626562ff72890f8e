//! The head's hold on the hand: it asks, is told what happened, and undoes everything if the hand is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slackwater_control::power::{Cpu, InstanceId};

use crate::message::{Answer, Channel, Code, Received, Report, Request};
use crate::system;
use crate::value::ValueFile;

/// The longest that the hand takes for an answer: it looks through the descriptors of a large server.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The most requests that wait for the hand: both fit into the buffer of the socket pair.
const AT_ONCE_MAX: usize = 32;
/// The most reports that wait for the head.
const REPORTS_MAX: usize = 4_096;

/// The hand is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandLost;

/// What is known of the hand at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    Works,
    /// It has restored everything itself.
    Ended,
}

/// The hold on the hand.
#[derive(Debug)]
pub struct Grip {
    channel: Channel,
    /// What was told while an answer was waited for.
    reports: VecDeque<Report>,
    /// Files that cap cores and prefer energy, with what they held.
    files: Vec<(Cpu, ValueFile, String)>,
    /// Connections whose mark is changed, with the mark that was found.
    sockets: BTreeMap<InstanceId, (OwnedFd, i32)>,
    hand: Hand,
    /// Cores that the hand was asked to slow, and not asked to restore, or did not.
    touched: BTreeSet<Cpu>,
}

impl Grip {
    /// Greets the hand, which sends everything by which it can be undone.
    pub fn new(channel: Channel) -> Result<Self, HandLost> {
        let mut grip = Self {
            channel,
            reports: VecDeque::new(),
            files: Vec::new(),
            sockets: BTreeMap::new(),
            hand: Hand::Works,
            touched: BTreeSet::new(),
        };
        grip.ask(Request::Hello)?;
        Ok(grip)
    }

    /// Takes the files that there are now, of which none is changed.
    pub fn files_again(&mut self) -> Result<(), HandLost> {
        self.files.clear();
        self.touched.clear();
        self.ask(Request::Hello).map(|_| ())
    }

    /// The cores of which the hand can set the frequency: the first of each file.
    pub fn settable(&self) -> impl Iterator<Item = Cpu> {
        self.files.iter().map(|(cpu, _, _)| *cpu)
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, request: Request) -> Result<Answer, HandLost> {
        // Before it is asked: if it dies now, nobody knows whether it has done it.
        if let Request::Cap { cpu, khz: Some(_) } = request {
            self.touched.insert(cpu);
        }
        let answer = self.asked(request)?;
        match (request, answer.code) {
            (Request::Cap { cpu, khz: None }, Code::Done)
            | (Request::Cap { cpu, .. }, Code::Conflict) => {
                self.touched.remove(&cpu);
            }
            _ => {}
        }
        Ok(answer)
    }

    fn asked(&mut self, request: Request) -> Result<Answer, HandLost> {
        self.channel.send(&request, None).map_err(|_| HandLost)?;
        self.answer()
    }

    /// Asks several things at once, which change nothing: each side is woken once, not once for each.
    pub fn look(&mut self, requests: &[Request]) -> Result<Vec<Answer>, HandLost> {
        let mut answers = Vec::new();
        for requests in requests.chunks(AT_ONCE_MAX) {
            for request in requests {
                self.channel.send(request, None).map_err(|_| HandLost)?;
            }
            for _ in requests {
                answers.push(self.answer()?);
            }
        }
        Ok(answers)
    }

    fn answer(&mut self) -> Result<Answer, HandLost> {
        let until = system::now_ns() + ANSWER_MAX.as_nanos() as u64;
        loop {
            match self.channel.receive::<Report>() {
                Received::End => return Err(HandLost),
                Received::Message(Report::Answer(answer), _) => return Ok(answer),
                Received::Message(report, along) => self.told(report, along)?,
                Received::Nothing => {
                    let left = until.saturating_sub(system::now_ns());
                    if left == 0 {
                        return Err(HandLost);
                    }
                    let left = Timespec::try_from(Duration::from_nanos(left)).ok();
                    let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
                    let _ = poll(&mut fds, left.as_ref());
                }
            }
        }
    }

    /// What the hand has told since it was asked last.
    pub fn reports(&mut self) -> Result<Vec<Report>, HandLost> {
        for _ in 0..REPORTS_MAX {
            match self.channel.receive::<Report>() {
                Received::Nothing => break,
                Received::End => return Err(HandLost),
                // Answers are taken where they are waited for.
                Received::Message(Report::Answer(_), _) => {}
                Received::Message(report, along) => self.told(report, along)?,
            }
        }
        Ok(self.reports.drain(..).collect())
    }

    fn told(&mut self, report: Report, along: Option<OwnedFd>) -> Result<(), HandLost> {
        match report {
            Report::File { cpu, found } => {
                let file = along.ok_or(HandLost)?;
                let file = ValueFile::of(File::from(file));
                self.files.push((cpu, file, found.as_str().to_string()));
            }
            Report::Socket { instance, found } => {
                self.sockets
                    .insert(instance, (along.ok_or(HandLost)?, found));
            }
            Report::Closed { instance } => {
                // At once: a duplicate keeps a connection open that the replica has closed.
                self.sockets.remove(&instance);
                self.keep(report)?;
            }
            Report::Ended => {
                self.hand = Hand::Ended;
                return Err(HandLost);
            }
            Report::Conflict { cpu, .. } => {
                // The value is somebody else's.
                self.touched.remove(&cpu);
                self.keep(report)?;
            }
            Report::Answer(_) | Report::Gone { .. } | Report::Cores => self.keep(report)?,
        }
        Ok(())
    }

    fn keep(&mut self, report: Report) -> Result<(), HandLost> {
        if self.reports.len() >= REPORTS_MAX {
            return Err(HandLost);
        }
        self.reports.push_back(report);
        Ok(())
    }

    /// Whether the hand was told to end, and has restored everything itself.
    pub fn has_ended(&self) -> bool {
        self.hand == Hand::Ended
    }

    /// Undoes everything that the hand may have set, through descriptors. Returns what could not be undone.
    pub fn undo(self) -> Vec<String> {
        let mut failed = Vec::new();
        for (instance, (socket, found)) in self.sockets {
            if let Err(error) = system::set_low_water_mark(socket.as_fd(), found) {
                failed.push(format!(
                    "the low-water mark of instance {instance}: {error}"
                ));
            }
        }
        let touched = self.touched;
        let files = self.files.into_iter();
        for (cpu, file, found) in files.filter(|(cpu, _, _)| touched.contains(cpu)) {
            // Whatever it holds: what the hand wrote last may be in force only a moment later.
            if let Err(error) = file.write(&found) {
                failed.push(format!("the frequency of cpu{cpu}: {error}"));
            }
        }
        failed
    }
}

impl AsFd for Grip {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
