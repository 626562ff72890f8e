//! What a query may use of this machine, or of a machine that it is planned for.

use slackwater_control::cluster::Cluster;
use slackwater_control::topology::Topology;

use super::{named, quota};

/// A machine that a query is planned for.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The machine's nodes and cores.
    pub topology: Topology,
    /// The CPU quota of this process in cores, if a container limits it.
    pub quota_cores: Option<f64>,
    /// Whether memory is bound to nodes: there are several, and this process is permitted to.
    pub binds_memory: bool,
    /// Notes for the user about restrictions.
    pub notes: Vec<String>,
    /// The hosts that the machine stands for, if there are several.
    pub hosts: Option<Cluster>,
}

impl Machine {
    /// Several hosts as one machine, with the distance between nodes of different hosts. On a host that is
    /// not `used`, nothing runs but what is bound to it.
    pub fn of_hosts(hosts: &[(Machine, bool)], distance_hosts: u32) -> Machine {
        let topologies = hosts.iter().map(|(host, used)| (&host.topology, *used));
        let cluster = Cluster::of(&topologies.collect::<Vec<_>>(), distance_hosts);
        let used = hosts.iter().filter(|(_, used)| *used);
        let quota_cores = used.map(|(host, _)| {
            let allowed = host.topology.allowed().len() as f64;
            host.quota_cores.unwrap_or(allowed)
        });
        let quota_cores = quota_cores.sum::<f64>();
        let has_quota = hosts
            .iter()
            .any(|(host, used)| *used && host.quota_cores.is_some());
        Machine {
            quota_cores: has_quota.then_some(quota_cores),
            binds_memory: hosts.iter().any(|(host, _)| host.binds_memory),
            hosts: Some(cluster.clone()),
            ..Machine::described(cluster.topology)
        }
    }

    /// The machine that this process runs on.
    pub fn this() -> Machine {
        Machine::of(super::topology()).with_quota()
    }

    /// A machine with one core, for what runs on one thread that exists already.
    pub fn of_one_core() -> Machine {
        Machine::described(Topology::of_nodes(1, 1, |_, _| 10))
    }

    /// A machine by its name or file, to plan for and not to run on.
    ///
    /// # Errors
    ///
    /// The errors of [`named`].
    pub fn planned_for(name_or_file: &str) -> Result<Machine, String> {
        let topology = named(name_or_file)?;
        let mut machine = Machine {
            binds_memory: topology.nodes.len() > 1,
            ..Machine::described(topology)
        };
        let note = format!("planned for {name_or_file}, not for this machine");
        machine.notes.insert(0, note);
        Ok(machine)
    }

    /// This machine as somebody described it: another order of nodes, or fewer cores.
    ///
    /// # Errors
    ///
    /// If it allows a core that this process may not use.
    pub fn described_as(name_or_file: &str) -> Result<Machine, String> {
        let topology = named(name_or_file)?;
        let here = slackwater_engine::link::allowed_cores();
        let described = topology.allowed();
        let foreign = described.iter().filter(|core| !here.contains(core)).count();
        if foreign > 0 {
            return Err(format!(
                "--topology {name_or_file}: {foreign} of its {} cores can't be used here: this \
                 process may use {}\n  = slackwater explain --topology plans for another machine; in the \
                 file, 'allowed' says which cores \
                 a query may use",
                described.len(),
                ranges(&here)
            ));
        }
        let mut machine = Machine::of(topology).with_quota();
        let note = format!("nodes and cores as {name_or_file} describes them");
        machine.notes.insert(0, note);
        Ok(machine)
    }

    /// This machine with a topology.
    fn of(topology: Topology) -> Machine {
        let refused = memory_refused(&topology);
        let mut machine = Machine {
            binds_memory: topology.nodes.len() > 1 && refused.is_none(),
            ..Machine::described(topology)
        };
        machine.notes.extend(refused.map(|reason| {
            format!("{reason}; memory stays where the kernel puts it, and threads are pinned")
        }));
        machine
    }

    fn described(topology: Topology) -> Machine {
        let allowed = topology.allowed();
        let mut notes = Vec::new();
        if allowed.len() < topology.cores.len() {
            notes.push(format!(
                "this process may use {} of {} cores: {}",
                allowed.len(),
                topology.cores.len(),
                ranges(&allowed)
            ));
        }
        Machine {
            topology,
            quota_cores: None,
            binds_memory: false,
            notes,
            hosts: None,
        }
    }

    fn with_quota(mut self) -> Machine {
        let allowed = self.topology.allowed().len() as f64;
        self.quota_cores = quota::quota_cores().filter(|&quota| quota < allowed);
        self.notes.extend(self.quota_cores.map(|quota| {
            format!("this process may use the CPU time of {quota:.2} cores (its control group)")
        }));
        self
    }

    /// The most cores that workers can use: the allowed cores, limited by the CPU quota.
    pub fn cores_max(&self) -> usize {
        let allowed = self.topology.allowed().len();
        let quota = self
            .quota_cores
            .map_or(allowed, |quota| quota.ceil() as usize);
        allowed.min(quota).max(1)
    }
}

/// Why memory can't be bound to nodes; `None` if it can, or if there is only one node.
fn memory_refused(topology: &Topology) -> Option<String> {
    if topology.nodes.len() < 2 {
        return None;
    }
    let nodes = topology.nodes.iter().filter(|node| !node.cores.is_empty());
    let nodes = nodes.map(|node| node.id).collect::<Vec<usize>>();
    // On a separate thread, because the preference for a node belongs to the thread.
    let tried = std::thread::spawn(move || {
        let tried = nodes.into_iter().map(slackwater_engine::link::prefer_node);
        tried.collect::<std::io::Result<()>>()
    });
    let tried = tried.join().expect("asking for a node does not panic");
    tried.err().map(|error| error.to_string())
}

/// Numbers in ascending order as the kernel writes them: `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let ranges = ranges.into_iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_written_as_the_kernel_does() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn a_quota_is_worth_whole_cores() {
        let machine = |quota_cores| Machine {
            quota_cores,
            ..Machine::described(Topology::of_nodes(1, 8, |_, _| 10))
        };
        let cores =
            [None, Some(2.5), Some(0.2), Some(64.0)].map(|quota| machine(quota).cores_max());
        assert_eq!(cores, [8, 3, 1, 8]);
    }

    #[test]
    fn restricted_cores_are_said() {
        let mut topology = Topology::of_nodes(1, 8, |_, _| 10);
        topology.allow_only(&[2, 3, 4]);
        let notes = Machine::described(topology).notes;
        assert_eq!(notes, ["this process may use 3 of 8 cores: 2-4"]);
    }
}
