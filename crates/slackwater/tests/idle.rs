//! Idle costs nothing (I7): pipelines with open but silent sockets neither wake up nor use the CPU,
//! in whatever way their workers wait; and the answer does not depend on it.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::{Folder, PATIENCE, Running, eventually, free_address};
use crate::support::{data, rows, run_text};

/// How long nothing may happen.
const SILENCE: Duration = Duration::from_secs(10);

/// CPU time that a silent process may use meanwhile.
const CPU_NS_MAX: u64 = 5_000_000;

const TABLE: &str =
    "CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'tcp', 'address' = '${ADDRESS}' ${OPTIONS});\n";

const PLAIN: &str = "SELECT k FROM t;";

const WINDOW: &str = "SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k;";

/// Ways to wait, all but polling, after which a silent pipeline has no timer left.
const SILENT_MODES: [(&str, &[&str]); 7] = [
    ("auto, 200 us", &["--set", "wait_delay=200 us"]),
    ("auto, 50 ms", &["--set", "wait_delay=50 ms"]),
    ("interrupt", &["--set", "wait=interrupt"]),
    ("sleep", &["--set", "wait=sleep:200us"]),
    ("long sleep", &["--set", "wait=sleep:50ms"]),
    ("spin, then park", &["--set", "wait=spin:50us"]),
    ("back-off", &["--set", "wait=backoff"]),
];

/// What all threads of a process have done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    threads: usize,
    voluntary_switches: u64,
    pub cpu_ns: u64,
}

pub fn activity(process: u32) -> Activity {
    let mut activity = Activity {
        threads: 0,
        voluntary_switches: 0,
        cpu_ns: 0,
    };
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let read = |name: &str| {
            let task: &Path = &task.as_ref().unwrap().path();
            std::fs::read_to_string(task.join(name)).ok()
        };
        // A thread may end while they are read.
        let (Some(status), Some(schedstat)) = (read("status"), read("schedstat")) else {
            continue;
        };
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches:"));
        let switches = line
            .and_then(|line| line.split_whitespace().nth(1))
            .unwrap();
        activity.threads += 1;
        activity.voluntary_switches += switches.parse::<u64>().unwrap();
        // The first number is the time on the CPU in nanoseconds.
        let on_cpu_ns = schedstat.split_whitespace().next().unwrap().parse::<u64>();
        activity.cpu_ns += on_cpu_ns.unwrap();
    }
    activity
}

/// Waits until nothing has happened for half a second: threads have started, rows have been worked
/// off, what was due is done.
pub fn settled(process: u32) -> Activity {
    eventually("rest", || {
        let before = activity(process);
        std::thread::sleep(Duration::from_millis(500));
        (activity(process) == before).then_some(before)
    })
}

/// A pipeline, and how rows get into it.
struct Pipeline {
    name: &'static str,
    running: Running,
    peer: Option<TcpStream>,
    address: String,
    /// The test's end of connections, and the folder, live as long as the process.
    _folder: Folder,
}

fn connecting(name: &'static str, options: &str, query: &str, arguments: &[&str]) -> Pipeline {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut pipeline = start(name, address, options, query, arguments);
    pipeline.peer = Some(listener.accept().unwrap().0);
    pipeline
}

fn listening(name: &'static str, query: &str, arguments: &[&str]) -> Pipeline {
    start(
        name,
        free_address(),
        ", 'mode' = 'listen'",
        query,
        arguments,
    )
}

fn start(
    name: &'static str,
    address: String,
    options: &str,
    query: &str,
    arguments: &[&str],
) -> Pipeline {
    let folder = Folder::new();
    let table = TABLE
        .replace("${ADDRESS}", &address)
        .replace("${OPTIONS}", options);
    let running = folder.start(&(table + query), arguments);
    Pipeline {
        name,
        running,
        peer: None,
        address,
        _folder: folder,
    }
}

impl Pipeline {
    fn send(&mut self, text: &str) {
        let address = self.address.clone();
        let peer = self
            .peer
            .get_or_insert_with(|| eventually("listener", || TcpStream::connect(&address).ok()));
        peer.write_all(text.as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn a_silent_pipeline_makes_no_wake_ups() {
    let two = ["--parallelism", "2"];
    let mut after_rows = connecting("connected, after rows", "", WINDOW, &two);
    after_rows.send("1000,a\n1500,b\n2500,c\n");
    assert!(
        after_rows.running.line().contains('k'),
        "the header comes first"
    );
    let mut idle_partition = connecting(
        "connected, idle partition",
        ", 'idle_timeout' = '50 ms'",
        WINDOW,
        &two,
    );
    idle_partition.send("1000,a\n1500,b\n2500,c\n");
    idle_partition.running.line();
    let saving = ["--state", "state", "--set", "checkpoint_interval=50 ms"];
    let mut saved = connecting("saved", "", WINDOW, &[&two[..], &saving].concat());
    saved.send("1000,a\n1500,b\n2500,c\n");
    saved.running.line();
    let early = ["--set", "emit=every 20 ms"];
    let mut emitted_early = connecting("emitted early", "", WINDOW, &[&two[..], &early].concat());
    emitted_early.send("1000,a\n1500,b\n2500,c\n");
    emitted_early.running.line();
    let modes = SILENT_MODES.map(|(name, arguments)| {
        let arguments = [&["--parallelism", "2"], arguments].concat();
        let mut pipeline = connecting(name, "", WINDOW, &arguments);
        pipeline.send("1000,a\n1500,b\n2500,c\n");
        pipeline.running.line();
        pipeline
    });
    let mut pipelines = vec![
        connecting("connected", "", PLAIN, &[]),
        listening("listening", PLAIN, &[]),
        connecting("connected, two instances", "", WINDOW, &two),
        listening("listening, two instances", WINDOW, &two),
        after_rows,
        idle_partition,
        saved,
        emitted_early,
    ];
    pipelines.extend(modes);
    let settled = pipelines
        .iter()
        .map(|pipeline| settled(pipeline.running.id()));
    settled.for_each(drop);
    let begin = Instant::now();
    let before = pipelines
        .iter()
        .map(|pipeline| activity(pipeline.running.id()));
    let before = before.collect::<Vec<_>>();
    std::thread::sleep(SILENCE);
    for (pipeline, before) in pipelines.iter().zip(&before) {
        let after = activity(pipeline.running.id());
        let name = pipeline.name;
        assert_eq!(after.threads, before.threads, "{name}");
        assert_eq!(
            after.voluntary_switches,
            before.voluntary_switches,
            "{name}: wake-ups in {:?}",
            begin.elapsed()
        );
        let cpu_ns = after.cpu_ns - before.cpu_ns;
        assert!(cpu_ns < CPU_NS_MAX, "{name}: {cpu_ns} ns of CPU time");
    }
    // They were silent, not dead.
    for pipeline in &mut pipelines {
        pipeline.send("10000,again\n20000,again\n");
    }
    for (pipeline, before) in pipelines.into_iter().zip(before) {
        let name = pipeline.name;
        eventually(name, || {
            pipeline.running.line().contains("again").then_some(())
        });
        let after = activity(pipeline.running.id());
        assert!(
            after.voluntary_switches > before.voluntary_switches && after.cpu_ns > before.cpu_ns,
            "{name}: the measurement sees nothing"
        );
        pipeline.running.interrupt();
        pipeline.running.finish(PATIENCE).ok();
    }
}

/// Who keeps a latency target asks worker processes what they have done, and stops to ask when they have done
/// nothing.
#[test]
fn a_target_over_several_processes_makes_no_wake_ups_in_a_silence() {
    for link in ["shm", "tcp"] {
        let arguments = [
            "--processes",
            "2",
            "--parallelism",
            "2",
            "--link",
            link,
            "--set",
            "latency_target=20 ms",
        ];
        let mut pipeline = connecting("two processes", "", WINDOW, &arguments);
        pipeline.send("1000,a\n1500,b\n2500,c\n");
        assert!(pipeline.running.line().contains('k'), "the header");
        pipeline.running.line();
        let children = crate::processes::children(pipeline.running.id());
        let numbers = children.iter().map(|pid| pid.as_raw_nonzero().get());
        let mut processes = numbers.map(|pid| pid as u32).collect::<Vec<u32>>();
        assert_eq!(processes.len(), 2, "{link}");
        processes.push(pipeline.running.id());
        processes.iter().for_each(|&process| {
            settled(process);
        });
        let before = processes.iter().map(|&process| activity(process));
        let before = before.collect::<Vec<_>>();
        std::thread::sleep(SILENCE / 2);
        for (&process, before) in processes.iter().zip(&before) {
            assert_eq!(activity(process), *before, "{link}: process {process}");
        }
        // The first row ends the silence, and the processes are asked again.
        for row in 0..20 {
            pipeline.send(&format!("{},again\n", 10_000 + row * 1_000));
            std::thread::sleep(Duration::from_millis(50));
        }
        eventually("rows", || {
            pipeline.running.line().contains("again").then_some(())
        });
        let report = pipeline._folder.path("report.json");
        pipeline.running.interrupt();
        pipeline.running.finish(PATIENCE).ok();
        let report = std::fs::read_to_string(report).unwrap();
        let report = serde_json::from_str::<serde_json::Value>(&report).unwrap();
        let plan = &report["plan"];
        assert!(plan["tuning"]["corrections"].as_u64() > Some(1), "{plan}");
        for process in plan["processes"].as_array().unwrap() {
            assert!(process["looks"].as_u64() > Some(1), "{process}");
        }
    }
}

/// A worker that polls hears sockets, its peer and Ctrl-C without being woken, and one in a long
/// sleep is woken by what can't wait.
#[test]
#[ignore = "slow: make test-all"]
fn every_way_to_wait_hears_the_end() {
    let two = ["--parallelism", "2", "--set"];
    let mut polling = connecting("poll", "", WINDOW, &[&two[..], &["wait=poll"]].concat());
    polling.send("1000,a\n1500,b\n2500,c\n");
    assert!(polling.running.line().contains('k'), "the header");
    assert!(polling.running.line().starts_with(['a', 'b']));
    let sleep = [&two[..], &["wait=sleep:10s"]].concat();
    let sleeping = connecting("sleep", "", WINDOW, &sleep);
    for pipeline in [polling, sleeping] {
        let begin = Instant::now();
        pipeline.running.interrupt();
        let name = pipeline.name;
        pipeline.running.finish(PATIENCE).ok();
        // Less than what the program allows a stopped query before it drops it.
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(4), "{name}: {took:?}");
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn the_answer_does_not_depend_on_how_workers_wait() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("answers/quakes.tumble1h_per_net.sql")
        .replace("${DATA}", &data.display().to_string());
    let mut expected: Option<Vec<String>> = None;
    for wait in [
        "interrupt",
        "auto",
        "poll",
        "sleep:200us",
        "sleep:20ms",
        "spin:50us",
        "backoff",
    ] {
        for parallelism in ["1", "3"] {
            let settings = [
                ("wait", wait),
                ("parallelism", parallelism),
                ("chunk_rows", "100"),
            ];
            let out = folder.path().join(format!("{wait}-{parallelism}.csv"));
            let text = text.replace("${OUT}", &out.display().to_string());
            run_text(&text, &settings).unwrap_or_else(|error| panic!("{wait}: {error}"));
            let found = rows(&out);
            let expected = expected.get_or_insert_with(|| found.clone());
            assert!(found == *expected, "{wait} at parallelism {parallelism}");
        }
    }
    assert!(expected.is_some_and(|rows| !rows.is_empty()));
}
