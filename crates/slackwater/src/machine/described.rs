//! Topologies as JSON and as text, and those with built-in names.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use slackwater_control::topology::{BULLION_S16, Cache, Core, NumaNode, Topology};

/// The most bytes that are read from a description; the largest machine that Linux supports needs 2 MB.
const BYTES_MAX: u64 = 16 << 20;

/// A machine with a built-in name, or one that a file describes (JSON, as `topology --json` prints it).
///
/// # Errors
///
/// If there is neither, or the description is not valid.
pub fn named(name_or_file: &str) -> Result<Topology, String> {
    if let Some(topology) = Topology::named(name_or_file) {
        return Ok(topology);
    }
    let failed = |error: &dyn std::fmt::Display| format!("{name_or_file}: {error}");
    let text = read(Path::new(name_or_file)).map_err(|error| {
        let known = format!("the only machine with a built-in name is {BULLION_S16}");
        format!("{}\n  = {known}", failed(&error))
    })?;
    let described: Described = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let topology = Topology::from(described);
    topology.check().map_err(|error| failed(&error))?;
    Ok(topology)
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    fs::File::open(path)?
        .take(BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The machine as text or JSON.
pub fn describe(topology: &Topology, json: bool) -> Result<String, String> {
    if json {
        let described = Described::from(topology);
        return Ok(serde_json::to_string_pretty(&described).map_err(|e| e.to_string())? + "\n");
    }
    let mut text = String::new();
    for node in &topology.nodes {
        let distances = node.distances.iter().map(|&distance| distance as usize);
        text.push_str(&format!(
            "node {}: cores {}; distances {}\n",
            node.id,
            list(&node.cores),
            list(&distances.collect::<Vec<usize>>())
        ));
    }
    for core in &topology.cores {
        let frequency = core.frequency_max_khz;
        let frequency = frequency.map_or("frequency unknown".to_string(), |khz| {
            format!("up to {} MHz", khz / 1000)
        });
        let package = core.package;
        let package = package.map_or(String::new(), |id| format!("; package {id}"));
        let allowed = if core.allowed {
            ""
        } else {
            "; not allowed for this process"
        };
        text.push_str(&format!(
            "core {}: threads of its physical core {}; {frequency}{package}{allowed}\n",
            core.id,
            list(&core.siblings)
        ));
    }
    for cache in &topology.caches {
        text.push_str(&format!(
            "cache of level {}: {} KiB for cores {}\n",
            cache.level,
            cache.size_bytes / 1024,
            list(&cache.cores)
        ));
    }
    Ok(text)
}

/// The numbers with spaces between them.
fn list(numbers: &[usize]) -> String {
    let numbers = numbers.iter().map(|number| number.to_string());
    numbers.collect::<Vec<_>>().join(" ")
}

/// A machine as `--json` prints it and `--topology` reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Described {
    nodes: Vec<DescribedNode>,
    cores: Vec<DescribedCore>,
    /// Files of earlier versions don't have this field.
    #[serde(default)]
    caches: Vec<DescribedCache>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct DescribedNode {
    id: usize,
    cores: Vec<usize>,
    distances: Vec<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct DescribedCore {
    id: usize,
    allowed: bool,
    siblings: Vec<usize>,
    #[serde(default)]
    package: Option<usize>,
    frequency_max_khz: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct DescribedCache {
    level: u32,
    size_bytes: u64,
    cores: Vec<usize>,
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
            package: core.package,
            frequency_max_khz: core.frequency_max_khz,
        });
        let caches = topology.caches.iter().cloned().map(|cache| DescribedCache {
            level: cache.level,
            size_bytes: cache.size_bytes,
            cores: cache.cores,
        });
        Described {
            nodes: nodes.collect(),
            cores: cores.collect(),
            caches: caches.collect(),
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
            package: core.package,
            frequency_max_khz: core.frequency_max_khz,
        });
        let caches = described.caches.into_iter().map(|cache| Cache {
            level: cache.level,
            size_bytes: cache.size_bytes,
            cores: cache.cores,
        });
        Topology {
            nodes: nodes.collect(),
            cores: cores.collect(),
            caches: caches.collect(),
        }
    }
}
