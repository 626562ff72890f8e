//! What the operating system says of this machine and this process.

use std::fs;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use slackwater_control::topology::{Core, NumaNode, Topology, parse_list};

/// CPU time of the whole process so far, in seconds.
pub fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time of child processes that have ended and were waited for, in seconds; the system counts
/// it in hundredths.
pub fn children_cpu_s() -> f64 {
    let Ok(text) = fs::read_to_string("/proc/self/stat") else {
        return 0.0;
    };
    // The second field is the program's name in brackets, which may hold anything.
    let Some((_, fields)) = text.rsplit_once(')') else {
        return 0.0;
    };
    // cutime and cstime, the 16th and 17th of all: the 14th and 15th behind the name.
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks = ticks.filter_map(|ticks| ticks.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Largest resident size of the process so far, in bytes.
pub fn peak_rss_bytes() -> u64 {
    status_field(Path::new("/proc/self/status"), "VmHWM:").unwrap_or(0) * 1024
}

/// Memory that could be used without swapping, in bytes, where the system says.
pub fn available_memory_bytes() -> Option<u64> {
    status_field(Path::new("/proc/meminfo"), "MemAvailable:").map(|kibibytes| kibibytes * 1024)
}

/// CPU time of a thread of this process, by its number; `None` where the system doesn't count it.
pub fn thread_cpu_s(thread: u64) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    let ns = text.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(ns as f64 / 1e9)
}

/// Voluntary context switches of all threads that are alive: how often one of them went to sleep.
pub fn voluntary_switches() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let tasks = tasks.flatten().map(|task| task.path().join("status"));
    tasks
        .filter_map(|path| status_field(&path, "voluntary_ctxt_switches:"))
        .sum()
}

fn status_field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}

/// Nodes and cores of this machine, from `/sys`; cores outside this process's affinity are marked.
pub fn topology() -> Topology {
    let system = Path::new("/sys/devices/system");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let allowed = slackwater_engine::link::allowed_cores();
    let online = parse_list(&read(&system.join("cpu/online"))).unwrap_or_default();
    let online = if online.is_empty() {
        allowed.clone()
    } else {
        online
    };
    let cores = online.iter().map(|&id| {
        let cpu = system.join(format!("cpu/cpu{id}"));
        let siblings = parse_list(&read(&cpu.join("topology/thread_siblings_list")));
        Core {
            id,
            allowed: allowed.contains(&id),
            siblings: siblings
                .ok()
                .filter(|list| !list.is_empty())
                .unwrap_or(vec![id]),
            frequency_max_khz: read(&cpu.join("cpufreq/cpuinfo_max_freq"))
                .trim()
                .parse()
                .ok(),
        }
    });
    let cores = cores.collect::<Vec<_>>();
    let ids = parse_list(&read(&system.join("node/online"))).unwrap_or_default();
    let mut nodes = Vec::new();
    for id in ids {
        let node = system.join(format!("node/node{id}"));
        let distances = read(&node.join("distance"));
        nodes.push(NumaNode {
            id,
            cores: parse_list(&read(&node.join("cpulist"))).unwrap_or_default(),
            distances: distances
                .split_whitespace()
                .filter_map(|d| d.parse().ok())
                .collect(),
        });
    }
    if nodes.is_empty() {
        nodes.push(NumaNode {
            id: 0,
            cores: online,
            distances: vec![10],
        });
    }
    Topology { nodes, cores }
}

/// The machine as text or JSON: this one, or the one in a file.
pub fn describe(from: Option<&Path>, json: bool) -> Result<String, String> {
    let topology = match from {
        None => topology(),
        Some(path) => {
            let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
            let read: Described = serde_json::from_str(&text).map_err(|error| failed(&error))?;
            read.into()
        }
    };
    if json {
        let described = Described::from(&topology);
        return Ok(serde_json::to_string_pretty(&described).map_err(|e| e.to_string())? + "\n");
    }
    let mut text = String::new();
    let list = |numbers: &[usize]| {
        numbers
            .iter()
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    for node in &topology.nodes {
        let distances = node
            .distances
            .iter()
            .map(|d| d.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        text.push_str(&format!(
            "node {}: cores {}; distances {distances}\n",
            node.id,
            list(&node.cores)
        ));
    }
    for core in &topology.cores {
        let frequency = core.frequency_max_khz;
        let frequency = frequency.map_or("frequency unknown".to_string(), |khz| {
            format!("up to {} MHz", khz / 1000)
        });
        let allowed = if core.allowed {
            ""
        } else {
            "; not allowed for this process"
        };
        text.push_str(&format!(
            "core {}: threads of its physical core {}; {frequency}{allowed}\n",
            core.id,
            list(&core.siblings)
        ));
    }
    Ok(text)
}

/// A machine as `--json` prints it and `--from` reads it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Described {
    nodes: Vec<DescribedNode>,
    cores: Vec<DescribedCore>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct DescribedNode {
    id: usize,
    cores: Vec<usize>,
    distances: Vec<u32>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct DescribedCore {
    id: usize,
    allowed: bool,
    siblings: Vec<usize>,
    frequency_max_khz: Option<u64>,
}

impl From<&Topology> for Described {
    fn from(topology: &Topology) -> Described {
        let nodes = topology.nodes.iter().cloned().map(|node| DescribedNode {
            id: node.id,
            cores: node.cores,
            distances: node.distances,
        });
        let cores = topology.cores.iter().cloned().map(|core| DescribedCore {
            id: core.id,
            allowed: core.allowed,
            siblings: core.siblings,
            frequency_max_khz: core.frequency_max_khz,
        });
        Described {
            nodes: nodes.collect(),
            cores: cores.collect(),
        }
    }
}

impl From<Described> for Topology {
    fn from(described: Described) -> Topology {
        let nodes = described.nodes.into_iter().map(|node| NumaNode {
            id: node.id,
            cores: node.cores,
            distances: node.distances,
        });
        let cores = described.cores.into_iter().map(|core| Core {
            id: core.id,
            allowed: core.allowed,
            siblings: core.siblings,
            frequency_max_khz: core.frequency_max_khz,
        });
        Topology {
            nodes: nodes.collect(),
            cores: cores.collect(),
        }
    }
}
