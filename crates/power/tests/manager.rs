//! A manager that runs: both of its processes, and what it says.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use slackwater_power::status::Status;

use crate::tree;

/// Cores of the tree.
pub const CPUS: u32 = 4;
/// How long a busy machine may take for anything.
const EVENTUALLY: Duration = Duration::from_secs(60);

/// Waits for something.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + EVENTUALLY;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A folder with a tree, a configuration and a journal.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A new one. Roles settle quickly.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        tree::make(&folder.path().join("sys"), CPUS);
        let config = "[slow]\nsettle = \"100 ms\"\npolicy = \"saturation\"\n";
        fs::write(folder.path().join("power.toml"), config).unwrap();
        Self { folder }
    }

    /// One whose cores have no clocks that could be set.
    pub fn without_clocks() -> Self {
        let place = Self::new();
        for cpu in 0..CPUS {
            let clock = tree::cap(&place.sys(), cpu);
            fs::remove_dir_all(clock.parent().unwrap()).unwrap();
        }
        place
    }

    /// The tree.
    pub fn sys(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("run/power.journal")
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with the options of this place.
    pub fn command(&self, arguments: &[&str]) -> Command {
        // Measured is what was optimized.
        let program = std::env::var("POWER_PROGRAM");
        let program =
            program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_slackwater-power").to_string());
        let mut command = Command::new(program);
        command.args(arguments);
        command
            .arg("--sysfs")
            .arg(self.sys())
            .arg("--journal")
            .arg(self.journal());
        command
            .arg("--config")
            .arg(self.folder.path().join("power.toml"));
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a manager of a server.
    pub fn manage(&self, server: SocketAddr, more: &[&str]) -> Manager {
        let url = format!("redis://{server}");
        self.manage_configured(&[&[url.as_str()], more].concat())
    }

    /// Starts a manager of what the configuration names.
    pub fn manage_configured(&self, arguments: &[&str]) -> Manager {
        let log = self.folder.path().join("log");
        let mut options = fs::File::options();
        let file = options.create(true).append(true).open(&log).unwrap();
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let child = command.spawn().unwrap();
        Manager {
            hand: child.id(),
            head: None,
            child,
            log,
        }
    }

    /// What a running manager says, if it runs.
    pub fn status(&self) -> Option<Status> {
        let output = self.run(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Whether all cores are as they were found.
    pub fn is_as_found(&self) -> bool {
        !tree::any_slow(&self.sys(), CPUS)
            && tree::values(&self.sys(), CPUS)[CPUS as usize..]
                .iter()
                .all(|value| value == "balance_performance")
    }
}

/// A manager, ended with the test.
pub struct Manager {
    child: Child,
    /// The process that changes things.
    pub hand: u32,
    head: Option<u32>,
    log: PathBuf,
}

impl Manager {
    /// The process with the network, once it has started.
    pub fn head(&mut self) -> Option<u32> {
        self.head = self.head.or_else(|| child_of(self.hand));
        self.head
    }

    /// Ends a process at once.
    pub fn kill(pid: u32) {
        signal(pid, Signal::KILL);
    }

    /// Waits for both processes to end; the hand's exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let head = self.head();
        let mut code = None;
        eventually("the hand ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        if let Some(head) = head {
            eventually("the head ends", || !is_there(head));
        }
        code.and_then(|status| status.code())
    }

    /// Asks it to end.
    pub fn stop(&mut self) -> Option<i32> {
        signal(self.hand, Signal::TERM);
        self.wait()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let head = self.head();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(head) = head.filter(|head| is_there(*head)) {
            signal(head, Signal::KILL);
        }
        if thread::panicking() {
            eprintln!("--- what the manager said:\n{}", self.log());
        }
    }
}

/// Sends a signal to a process that this test has started.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).unwrap();
    let _ = kill_process(pid, signal);
}

/// Whether a process runs: one that has ended and was not waited for does not.
pub fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn child_of(parent: u32) -> Option<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_string());
        let of = rest.and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        of == Some(parent)
    })
}
