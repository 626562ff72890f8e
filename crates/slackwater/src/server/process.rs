//! The process of a job: it runs one query, and answers those who read its views.

use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::io::{FdFlags, fcntl_setfd};
use slackwater_secure::Secret;
use slackwater_sql::settings::Hosts;

use super::answers::Answers;
use super::protocol::{Begin, FromJob, JobHosts, ToJob};
use crate::cluster::ClusterOptions;
use crate::hosts::channel::Channel;
use crate::run::{Asker, Failure, Outcome, RunOptions, StateOptions, run_script};
use crate::script::Script;
use crate::supervisor::Signals;
use crate::terminal::FAILED;
use crate::views::Views;

/// Whether the server wants this process to end.
#[derive(Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Returns whether it was not wanted before.
    fn want(&self) -> bool {
        let mut wanted = self
            .is_wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
        !std::mem::replace(&mut *wanted, true)
    }

    fn wait(&self) {
        let wanted = self
            .is_wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(wanted, |is_wanted| !*is_wanted);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Runs the job that the server names over the socket `descriptor`, to its end.
pub fn main(descriptor: RawFd) -> ExitCode {
    // What these mean is decided by the server, which may get them too.
    for signal in crate::signals::ending() {
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
    // SAFETY: the server made it for this process, and nothing else here knows of it. Were it no
    // descriptor, or another file's, the first receive would fail.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // Worker processes would keep it open.
    if fcntl_setfd(&socket, FdFlags::CLOEXEC).is_err() {
        return ExitCode::from(FAILED);
    }
    let channel = Channel::of(socket);
    let begin = match channel.receive() {
        Ok(Some((ToJob::Begin(begin), _))) => begin,
        _ => return ExitCode::from(FAILED),
    };
    match channel.try_clone() {
        Ok(heard) => run(&begin, channel, heard),
        Err(_) => ExitCode::from(FAILED),
    }
}

/// The hosts of a job, which agents join that wait in the server's lobby.
fn cluster(hosts: &JobHosts) -> ClusterOptions {
    let (min, max) = hosts.count;
    let secret = hosts.secret.as_deref();
    ClusterOptions {
        listen: SocketAddr::new(hosts.lobby.ip(), 0),
        // The server has read it.
        secret: secret.and_then(|text| Secret::parse(text).ok()),
        name: hosts.name.clone(),
        ports: None,
        hosts: Hosts { min, max },
        here: true,
        registry: None,
        lobby: Some(hosts.lobby),
    }
}

fn run(begin: &Begin, channel: Channel, heard: Channel) -> ExitCode {
    let (asker, views) = (Asker::looking(), Arc::new(Views::default()));
    let signals = Arc::clone(&asker.signals);
    let stop = Arc::new(Stop::default());
    let channel = Arc::new(Mutex::new(channel));
    let tell = {
        let channel = Arc::clone(&channel);
        move |message: FromJob| {
            let channel = channel.lock().unwrap_or_else(PoisonError::into_inner);
            // A server that is gone has closed the other end, and this process is about to notice.
            let _ = channel.send(&message, &[]);
        }
    };
    let telling = tell.clone();
    signals.when_begun(move || telling(FromJob::Running));
    let telling = tell.clone();
    signals.when_listening(move |address| telling(FromJob::Listens(address.port())));
    let listening = {
        let answers = Answers::new(&views, asker.clone());
        let (signals, stop) = (Arc::clone(&signals), Arc::clone(&stop));
        move || listen(&heard, &signals, &answers, &stop)
    };
    let listener = std::thread::Builder::new().name("control".to_string());
    if let Err(error) = listener.spawn(listening) {
        tell(FromJob::Failed(format!(
            "no thread for the server's commands: {error}"
        )));
        return ExitCode::from(FAILED);
    }
    let mut script = Script::default();
    for (name, text) in &begin.parts {
        script.add(name, text);
    }
    let options = RunOptions {
        settings: begin.settings.clone(),
        name: Some(begin.name.clone()),
        asker,
        state: Some(StateOptions {
            place: begin.state.clone(),
            from_scratch: false,
            accepts_duplicates: false,
        }),
        cluster: begin.hosts.as_ref().map(cluster),
        views: Some(views),
        takes_pushes: true,
        ..RunOptions::default()
    };
    match run_script(&script, &options) {
        Ok(Outcome::Finished(finished)) if finished.stopped => tell(FromJob::Stopped),
        Ok(Outcome::Finished(finished)) => {
            // For the server's log: a process that does not stay can't be asked later.
            for sentence in &finished.report.diagnosis {
                eprintln!("{sentence}");
            }
            tell(FromJob::Finished);
            if begin.stays {
                stop.wait();
            }
        }
        Ok(Outcome::Explained(_)) => tell(FromJob::Refused("there is nothing to run".to_string())),
        Err(Failure::Usage(reason)) => tell(FromJob::Refused(reason)),
        Err(Failure::Query(reason, _)) => tell(FromJob::Failed(reason)),
    }
    ExitCode::SUCCESS
}

/// Executes the server's commands. If the server is gone, the query is saved and ended.
fn listen(channel: &Channel, signals: &Signals, answers: &Answers, stop: &Stop) {
    loop {
        match channel.receive::<ToJob>() {
            Ok(Some((ToJob::Talk, sockets))) => {
                sockets.into_iter().for_each(|socket| answers.begin(socket))
            }
            Ok(Some((ToJob::Begin(_), _))) => {}
            Ok(Some((ToJob::Stop, _))) => end(signals, stop),
            Ok(None) | Err(_) => {
                end(signals, stop);
                return;
            }
        }
    }
}

/// A second signal would abandon what is being saved.
fn end(signals: &Signals, stop: &Stop) {
    if stop.want() {
        signals.raise();
    }
}
