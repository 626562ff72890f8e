//! A query in worker processes, on one host or several: sends them commands, and hears what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use slackwater_engine::Error;
use slackwater_engine::counters::InstanceCounters;
use slackwater_engine::deploy::Deployment;
use slackwater_engine::protocol::Command as WorkerCommand;

use super::connect;
use super::counts::FinalCounts;
use super::hearing::{Hearing, Left, Queues, Started};
use super::host::{Ended, Group};
use super::phases::{Pending, Phase, process_of_sink};
use super::protocol::{HostCommand, ProcessCommand, Start};
use super::work::{Report, Work};
use crate::catalog::{ProgramCatalog, files_of_functions};
use crate::plan::fingerprint;
use crate::terminal::say;

/// How long the next worker process may take to report its counts and to exit when the query has ended. The
/// report needs them, and a host that does other work too may need seconds for many processes: this is for
/// one that is stopped or hangs. One that dies, or whose host is lost, is not waited for.
const FINISH_PATIENCE: Duration = Duration::from_secs(30);

/// How long all of them may take if the query has failed. This is less than the two seconds in which a query
/// whose process died has to end.
const FAILED_PATIENCE: Duration = Duration::from_secs(1);

/// The same if some of them are on other hosts.
const FAILED_ELSEWHERE_PATIENCE: Duration = Duration::from_secs(3);

/// The worker processes of a query. Dropping them kills those that still run.
pub struct Processes {
    hearing: Arc<Hearing>,
    left: mpsc::Receiver<Left>,
    phases: mpsc::Receiver<(usize, Phase)>,
    listening: Option<mpsc::Receiver<(usize, Option<SocketAddr>)>>,
    /// The process of each worker.
    process_of: Vec<usize>,
}

impl Processes {
    /// Starts the worker processes of a deployment, which don't read their inputs yet. `report` is called for
    /// their events, as for those of threads; if a process dies, its instances fail.
    ///
    /// # Errors
    ///
    /// If a process can't be started.
    pub fn start(work: &Work<'_>, report: Report) -> Result<Processes, Error> {
        let (deployment, count) = (work.deployment, work.plan.processes);
        // Each process ends once, and sends at most one message of each other kind that is not read.
        let (left_sender, left) = mpsc::sync_channel(count);
        let (phases_sender, phases) = mpsc::sync_channel(2 * count);
        let (addresses, listening) = mpsc::sync_channel(2 * count);
        let queues = Queues {
            left: left_sender,
            phases: phases_sender,
            addresses,
        };
        let hearing = Arc::new(Hearing::new(work, report, queues));
        let uses_tcp = connect::uses_tcp(deployment, work.program.settings.link);
        let mut processes = Processes {
            hearing: Arc::clone(&hearing),
            left,
            phases,
            listening: uses_tcp.then_some(listening),
            process_of: deployment.process_of.clone(),
        };
        let parts = start_on_hosts(work, &hearing)?;
        processes.hearing.know(parts);
        if let Err(error) = processes.begin(work) {
            processes.kill();
            return Err(Error::new("worker processes", error.to_string()));
        }
        Ok(processes)
    }

    /// Sends each process its part.
    fn begin(&mut self, work: &Work<'_>) -> io::Result<()> {
        let names = self.hearing.name(work.hosts);
        let sources = work.program.sources();
        let findings = sources.filter_map(|(_, source)| {
            let findings = source.connector.findings()?;
            Some((source.table.name.clone(), findings))
        });
        let findings = findings.chain(files_of_functions(work.program));
        let findings = findings.collect::<BTreeMap<String, String>>();
        for number in 0..self.len() {
            let host = &work.hosts[work.deployment.host(number)];
            let start = Start {
                file: work.file.to_string(),
                text: work.text.to_string(),
                settings: work.settings.to_vec(),
                findings: findings.clone(),
                folder: std::env::current_dir()?,
                has_relative_paths: crate::bound::has_relative_paths(work.program),
                deployment: work.deployment.clone(),
                cores: work.plan.placement.cores.clone(),
                memory_nodes: work.plan.memory_nodes.clone(),
                wait: work.plan.wait,
                costs: host.facts().costs,
                process: number,
                names: names.clone(),
                address: host.facts().address,
                ports: host.facts().ports,
                // Processes of an earlier incarnation may still exist.
                epoch: work.incarnation.map_or(1, |incarnation| incarnation.epoch),
                token: work.token,
                fingerprint: fingerprint(work.program),
                incarnation: work.incarnation.cloned(),
            };
            self.hearing
                .tell(number, ProcessCommand::Start(Box::new(start)));
        }
        Ok(())
    }

    /// Makes each process read the state of its instances.
    pub fn restore(&self) -> Phase {
        let all = 0..self.len();
        self.ask(all.map(|process| (process, ProcessCommand::Restore)))
    }

    /// Makes sinks commit what is pending, each in the process that runs its first instance.
    pub fn recommit(&self, deployment: &Deployment, sinks: &[Pending]) -> Phase {
        let mut pending_of = BTreeMap::<usize, Vec<Pending>>::new();
        for pending in sinks {
            let process = process_of_sink(deployment, pending.node);
            pending_of.entry(process).or_default().push(pending.clone());
        }
        let commands = pending_of.into_iter();
        self.ask(commands.map(|(process, pending)| (process, ProcessCommand::Recommit(pending))))
    }

    /// Sends processes commands and waits until all have succeeded or one has failed.
    fn ask(&self, commands: impl Iterator<Item = (usize, ProcessCommand)>) -> Phase {
        let mut asked = BTreeSet::new();
        for (process, command) in commands {
            self.hearing.tell(process, command);
            asked.insert(process);
        }
        while !asked.is_empty() {
            match self.phases.recv() {
                Ok((process, Phase::Done)) => asked.remove(&process),
                Ok((_, phase)) => return phase,
                Err(mpsc::RecvError) => {
                    let error = Error::new("worker processes", "have all ended");
                    return Phase::Died(error);
                }
            };
        }
        Phase::Done
    }

    /// Makes all processes connect to each other and run their parts.
    pub fn run(&mut self) {
        self.ask_all(|| ProcessCommand::Run);
        if let Some(listening) = self.listening.take() {
            self.introduce(&listening);
        }
    }

    /// Tells each process the addresses of the others, once all listen. What is heard of a process that dies
    /// in the meantime reports that.
    fn introduce(&self, listening: &mpsc::Receiver<(usize, Option<SocketAddr>)>) {
        let mut addresses = vec![None; self.len()];
        for _ in 0..self.len() {
            // Each process sends an address, or at its end that there is none.
            let Ok((number, address)) = listening.recv() else {
                return;
            };
            addresses[number] = address;
        }
        self.ask_all(|| ProcessCommand::Connect(addresses.clone()));
    }

    /// The number of processes.
    pub fn len(&self) -> usize {
        self.hearing.len()
    }

    /// Counters of all instances, as of the last [`Processes::count`] and [`Processes::count_steps`].
    pub fn counters(&self) -> &[Arc<InstanceCounters>] {
        self.hearing.counters()
    }

    /// CPU time of all processes, as of the last [`Processes::count`].
    pub fn cpu_s(&self) -> f64 {
        self.hearing.cpu_s()
    }

    /// Requests the counters, which arrive a little later.
    pub fn count(&self) {
        self.ask_all(|| ProcessCommand::Count);
    }

    /// Requests the counters of steps and buckets, which arrive a little later.
    pub fn count_steps(&self) {
        self.ask_all(|| ProcessCommand::CountSteps);
    }

    /// Requests what the processes use, which arrives a little later.
    pub fn measure(&self) {
        self.ask_all(|| ProcessCommand::Measure);
    }

    /// Sends a command to the process that it concerns, or to all.
    pub fn tell(&self, command: &HostCommand) {
        let of_instance = |instance: usize| self.hearing.process_of_instance(instance);
        let process = match command {
            HostCommand::Workers(command) => match command {
                WorkerCommand::Wait { worker, .. } => self.process_of.get(*worker).copied(),
                WorkerCommand::Detach { instance }
                | WorkerCommand::Adopt { instance, .. }
                | WorkerCommand::TakeOver { instance, .. } => of_instance(*instance),
                WorkerCommand::Deploy
                | WorkerCommand::Stop
                | WorkerCommand::Remove
                | WorkerCommand::Barrier(_)
                | WorkerCommand::Examine
                | WorkerCommand::ReportActivity => None,
            },
            HostCommand::Relocate { instance, .. } => of_instance(*instance),
            HostCommand::Observe { process, .. } => Some(*process),
            HostCommand::Tune { .. }
            | HostCommand::Retarget { .. }
            | HostCommand::Resize { .. }
            | HostCommand::Combine { .. }
            | HostCommand::Commit { .. }
            | HostCommand::Follow { .. } => None,
        };
        for number in 0..self.len() {
            if process.is_none_or(|process| process == number) {
                let command = ProcessCommand::Host(command.clone());
                self.hearing.tell(number, command);
            }
        }
    }

    /// Tells the catalog how many bytes the sources of other processes have read.
    pub fn store_bytes_read(&self, catalog: &ProgramCatalog<'_>) {
        for (node, bytes) in self.hearing.bytes_read() {
            catalog.store_bytes_read(node, bytes);
        }
    }

    /// Ends all processes: they report their counts and exit, or are killed. Afterwards no process is left.
    /// If the query has failed, it matters more that it ends soon than that its report is complete.
    pub fn finish(&mut self, has_failed: bool) -> Vec<FinalCounts> {
        self.ask_all(|| ProcessCommand::Finish);
        let patience = match self.hearing.groups().count() {
            _ if !has_failed => FINISH_PATIENCE,
            0 | 1 => FAILED_PATIENCE,
            _ => FAILED_ELSEWHERE_PATIENCE,
        };
        let mut until = Instant::now() + patience;
        let mut finished = Vec::new();
        let mut running = (0..self.len()).collect::<BTreeSet<usize>>();
        let mut missing = Vec::new();
        while !running.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((process, counts)) = self.left.recv_timeout(left) else {
                break;
            };
            running.remove(&process);
            match counts {
                Some(counts) => finished.push(*counts),
                None => missing.push((process, "died before it reported them")),
            }
            if !has_failed {
                until = Instant::now() + patience;
            }
        }
        let stuck = "does not report them and is killed (is it stopped, or its host overloaded?)";
        missing.extend(running.into_iter().map(|process| (process, stuck)));
        for (process, what) in missing {
            // Of a query that has failed it says nothing new.
            if !has_failed {
                let name = self.hearing.name_of(process);
                say(&format!(
                    "warning: the report lacks counts: {name} {what}\n"
                ));
            }
        }
        self.kill();
        finished
    }

    /// Kills all processes. Afterwards none is left, but for those of a host that is stopped as a whole.
    pub fn kill(&mut self) {
        end_all(self.hearing.groups());
    }

    fn ask_all(&self, command: impl Fn() -> ProcessCommand) {
        for number in 0..self.len() {
            self.hearing.tell(number, command());
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the processes on their hosts.
fn start_on_hosts(work: &Work<'_>, hearing: &Arc<Hearing>) -> Result<Vec<Started>, Error> {
    let mut parts = Vec::<Started>::new();
    for (number, host) in work.hosts.iter().enumerate() {
        let all = 0..work.plan.processes;
        let own = all.filter(|&process| work.deployment.host(process) == number);
        let own = own.collect::<Vec<usize>>();
        let Some(&first) = own.first() else { continue };
        let group = Group {
            epoch: work.incarnation.map_or(1, |incarnation| incarnation.epoch),
            first,
            count: own.len(),
            records: work.incarnation.is_some(),
        };
        let hears = Arc::clone(hearing);
        match host.start(&group, Arc::new(move |news| hears.hear(news))) {
            Ok(processes) => parts.push(Started {
                group,
                host: number,
                processes,
            }),
            Err(error) => {
                end_all(parts.iter());
                return Err(error);
            }
        }
    }
    Ok(parts)
}

/// Kills processes, and waits until none is left, but for those of a host that is stopped as a whole.
fn end_all<'a>(parts: impl Iterator<Item = &'a Started>) {
    let ended = parts.map(|part| part.processes.end());
    for ended in ended.collect::<Vec<Ended>>() {
        ended.wait();
    }
}
