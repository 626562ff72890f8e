//! The topology of a machine as Linux describes it in files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use slackwater_control::topology::{Cache, Core, DISTANCE_LOCAL, NumaNode, Topology};
use slackwater_control::topology::{parse_list, parse_size};

/// The folder in which Linux describes cores and nodes.
const SYSTEM: &str = "/sys/devices/system";

/// Nodes, cores and caches of this machine; cores outside this process's affinity are marked.
pub fn topology() -> Topology {
    let allowed = slackwater_engine::link::allowed_cores();
    read(Path::new(SYSTEM), &allowed)
}

/// Reads the topology from `system`, which is `/sys/devices/system` or a copy of it. Missing files are
/// tolerated: a machine without nodes is one node, and one without cores has those that are `allowed`.
pub fn read(system: &Path, allowed: &[usize]) -> Topology {
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let list = |path: &Path| parse_list(&text(path)).unwrap_or_default();
    let online = list(&system.join("cpu/online"));
    let online = if online.is_empty() {
        allowed.to_vec()
    } else {
        online
    };
    let mut cores = Vec::new();
    let mut caches = BTreeSet::new();
    for &id in &online {
        let cpu = system.join(format!("cpu/cpu{id}"));
        let siblings = list(&cpu.join("topology/thread_siblings_list"));
        let number = |path: &str| text(&cpu.join(path)).trim().parse().ok();
        cores.push(Core {
            id,
            allowed: allowed.contains(&id),
            siblings: if siblings.is_empty() {
                vec![id]
            } else {
                siblings
            },
            package: number("topology/physical_package_id").map(|id: u64| id as usize),
            frequency_max_khz: number("cpufreq/cpuinfo_max_freq"),
        });
        // Each core has a few caches, which are numbered without gaps.
        for index in 0..CACHES_MAX {
            let folder = cpu.join(format!("cache/index{index}"));
            let level = text(&folder.join("level")).trim().parse::<u32>();
            let (Ok(level), Some(size_bytes)) = (level, parse_size(&text(&folder.join("size"))))
            else {
                break;
            };
            if text(&folder.join("type")).trim() != "Instruction" {
                caches.insert((level, list(&folder.join("shared_cpu_list")), size_bytes));
            }
        }
    }
    let nodes = list(&system.join("node/online")).into_iter().map(|id| {
        let node = system.join(format!("node/node{id}"));
        let distances = text(&node.join("distance"));
        let distances = distances.split_whitespace();
        NumaNode {
            id,
            cores: list(&node.join("cpulist")),
            distances: distances.filter_map(|d| d.parse().ok()).collect(),
        }
    });
    let mut nodes = nodes.collect::<Vec<NumaNode>>();
    if nodes.is_empty() {
        nodes.push(NumaNode {
            id: 0,
            cores: online,
            distances: vec![DISTANCE_LOCAL],
        });
    }
    let caches = caches.into_iter().map(|(level, cores, size_bytes)| Cache {
        level,
        size_bytes,
        cores,
    });
    Topology {
        nodes,
        cores,
        caches: caches.collect(),
    }
}

/// The most caches per core that are read: three levels, the first in two halves, and some to spare.
const CACHES_MAX: usize = 8;
