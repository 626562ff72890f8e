//! Jobs on several hosts: agents wait at the server, which sends them to jobs.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

const ROWS: u64 = 6_000;

/// An agent; dropping it ends it.
struct Agent(Child);

impl Agent {
    fn start(folder: &Path, address: &str, name: &str) -> Agent {
        let child = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["worker", "--join", address, "--name", name])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Agent(child.unwrap())
    }

    fn has_workers(&self) -> bool {
        !crate::processes::children(self.0.id()).is_empty()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Its processes end with it; it may have ended.
        let _ = kill_process(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(folder: &Path, address: &str) -> Server {
    match Server::try_start(folder, &["--listen", address, "--name", "home"]) {
        Ok(server) => server,
        Err(log) => panic!("the server has not started: {log}"),
    }
}

/// Makes a job on `hosts` hosts that counts by key.
fn make(server: &Server, folder: &Path, name: &str, hosts: &str, rate: &str) {
    let mut client = server.client();
    let input = folder.join("in.csv").display().to_string();
    let sink = format!(
        "CREATE SINK {name} AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM {name}_in GROUP BY k
         WITH ('connector' = 'file', 'path' = '{name}.csv')"
    );
    let table = format!(
        "CREATE TABLE {name}_in (id BIGINT, k BIGINT, v BIGINT)
         WITH ('connector' = 'file', 'path' = '{input}', 'replay_rate' = '{rate}')"
    );
    let hosts = format!("SET 'hosts' = '{hosts}'");
    for statement in [
        &table,
        &hosts,
        "SET 'parallelism' = '2'",
        "SET 'emit' = 'final'",
        "SET 'checkpoint_interval' = '100 ms'",
        &sink,
    ] {
        if let Err(error) = client.batch_execute(statement) {
            panic!("{statement}: {}", message(&error));
        }
    }
}

fn counted(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().map(str::to_string).collect::<Vec<String>>();
    lines.sort();
    lines
}

/// What the jobs count, as one host counts it.
fn expected() -> Vec<String> {
    let mut sums = [(0, 0); 7];
    for id in 0..ROWS {
        let sum = &mut sums[(id % 7) as usize];
        *sum = (sum.0 + 1, sum.1 + id * 31 % 1000);
    }
    let lines = sums.iter().enumerate();
    let mut lines = lines
        .map(|(k, (n, s))| format!("{k},{n},{s}"))
        .collect::<Vec<String>>();
    lines.sort();
    lines
}

#[test]
fn agents_serve_one_job_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_input(folder, ROWS);
    let address = crate::process::free_address();
    // Whoever comes first waits for the other.
    let agent = Agent::start(folder, &address, "h2");
    let server = start(folder, &address);
    let finished = ["one|file|finished", "two|file|finished"];
    for (number, name) in ["one", "two"].into_iter().enumerate() {
        make(&server, folder, name, "2", "3000/s");
        wait_until("the agent serves no job", || agent.has_workers());
        server.wait_for("SHOW SINKS", &finished[..=number]);
        assert_eq!(counted(&folder.join(format!("{name}.csv"))), expected());
        wait_until("its workers go on", || !agent.has_workers());
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_job_goes_on_with_an_agent_that_waits_when_its_host_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_input(folder, ROWS);
    let address = crate::process::free_address();
    let server = start(folder, &address);
    let agents = ["h2", "h3"].map(|name| Agent::start(folder, &address, name));
    make(&server, folder, "one", "2", "1500/s");
    wait_until("no agent serves the job", || {
        agents.iter().any(Agent::has_workers)
    });
    // A moment for checkpoints.
    std::thread::sleep(Duration::from_millis(500));
    let (serves, waits): (Vec<Agent>, Vec<Agent>) =
        agents.into_iter().partition(Agent::has_workers);
    assert_eq!((serves.len(), waits.len()), (1, 1));
    drop(serves);
    wait_until("the other one does not serve", || waits[0].has_workers());
    server.wait_for("SHOW SINKS", &["one|file|finished"]);
    assert_eq!(counted(&folder.join("one.csv")), expected());
}

#[test]
fn what_can_not_run_on_hosts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_input(folder, 10);
    let view = "CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM numbers GROUP BY k";
    let sink = "CREATE SINK s AS SELECT k FROM numbers WITH ('connector' = 'blackhole')";
    let tries = |server: &Server| {
        let mut client = server.client();
        client.batch_execute(&table(folder, "")).unwrap();
        client.batch_execute("SET 'hosts' = '1..2'").unwrap();
        [view, sink].map(|made| match client.batch_execute(made) {
            Ok(()) => String::new(),
            Err(error) => message(&error),
        })
    };
    let alone = Server::start(folder);
    let [of_view, of_sink] = tries(&alone);
    assert!(
        of_view.contains("a materialized view is kept on the server's host"),
        "{of_view}"
    );
    assert!(
        of_sink.contains("this server does not listen for hosts"),
        "{of_sink}"
    );
    assert!(of_sink.contains("slackwater serve --listen"), "{of_sink}");
    drop(alone);
    for (listen, reason) in [
        ("10.99.0.1:7070", "without a secret"),
        ("0.0.0.0:7070", "without a secret"),
        ("nowhere", "is not an address"),
    ] {
        let refused = Server::try_start(folder, &["--listen", listen]);
        let log = refused.err().expect("it does not start");
        assert!(log.contains(reason), "{log}");
    }
}
