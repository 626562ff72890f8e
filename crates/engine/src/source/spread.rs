//! Which instances read the partitions that only some host has.

/// The hosts of a source whose partitions are each on one host, and how its instances are divided among them.
///
/// Partitions are numbered host by host, in the order of the hosts. Hosts get instances in turn, none more
/// than it has partitions, and the instances of a host get its partitions in turn. The planner, which places
/// the instances, and the source, which reads, follow the same rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spread {
    hosts: Vec<(String, usize)>,
}

impl Spread {
    /// The hosts, each with the number of its partitions; hosts without any are left out.
    pub fn new(hosts: impl IntoIterator<Item = (String, usize)>) -> Spread {
        let hosts = hosts.into_iter().filter(|(_, partitions)| *partitions > 0);
        Spread {
            hosts: hosts.collect(),
        }
    }

    /// Whether any host reads any partition.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|(host, _)| host.as_str())
    }

    /// The least and the most instances.
    pub fn bounds(&self) -> (usize, usize) {
        let partitions = self.hosts.iter().map(|(_, partitions)| partitions);
        (self.hosts.len(), partitions.sum())
    }

    /// The host that an instance has to run on; `None` if there are more instances than partitions.
    pub fn host_of(&self, instance: usize) -> Option<&str> {
        let (host, _) = self.place(instance)?;
        Some(&self.hosts[host].0)
    }

    /// The partitions of an instance. `None` if there are fewer instances than hosts, so that nobody would
    /// read those of some host.
    pub fn partitions_of(&self, instance: usize, instances: usize) -> Option<Vec<usize>> {
        if instances < self.hosts.len() {
            return None;
        }
        let Some((host, number)) = self.place(instance) else {
            return Some(Vec::new());
        };
        let places = (0..instances).filter_map(|instance| self.place(instance));
        let of_host = places.filter(|(other, _)| *other == host).count();
        let before = self.hosts[..host].iter().map(|(_, partitions)| partitions);
        let first = before.sum::<usize>();
        let own = (number..self.hosts[host].1).step_by(of_host);
        Some(own.map(|partition| first + partition).collect())
    }

    /// The host of an instance, and the instance's number there.
    fn place(&self, instance: usize) -> Option<(usize, usize)> {
        let most = self.hosts.iter().map(|(_, partitions)| *partitions).max()?;
        let turns = (0..most).flat_map(|turn| {
            let hosts = self.hosts.iter().enumerate();
            let hosts = hosts.filter(move |(_, (_, partitions))| *partitions > turn);
            hosts.map(move |(host, _)| (host, turn))
        });
        turns.into_iter().nth(instance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_get_instances_in_turn() {
        let hosts = [("h1", 1), ("h2", 0), ("h3", 3)];
        let spread = Spread::new(hosts.map(|(host, partitions)| (host.to_string(), partitions)));
        assert_eq!(spread.bounds(), (2, 4));
        assert_eq!(spread.hosts().collect::<Vec<_>>(), ["h1", "h3"]);
        let hosts = (0..5).map(|instance| spread.host_of(instance));
        let expected = [Some("h1"), Some("h3"), Some("h3"), Some("h3"), None];
        assert_eq!(hosts.collect::<Vec<_>>(), expected);
        assert_eq!(spread.partitions_of(1, 2), Some(vec![1, 2, 3]));
        assert_eq!(spread.partitions_of(1, 3), Some(vec![1, 3]));
        assert_eq!(spread.partitions_of(2, 3), Some(vec![2]));
        assert_eq!(spread.partitions_of(0, 1), None);
    }

    proptest! {
        #[test]
        fn each_partition_has_one_instance_and_that_is_on_its_host(
            partitions in proptest::collection::vec(1..6usize, 1..5),
            more in 0..30usize,
        ) {
            let named = partitions.iter().enumerate();
            let spread = Spread::new(named.map(|(host, count)| (host.to_string(), *count)));
            let (least, most) = spread.bounds();
            let instances = least + more;
            let hosts = partitions.iter().enumerate();
            let hosts = hosts.flat_map(|(host, count)| vec![host.to_string(); *count]);
            let hosts = hosts.collect::<Vec<String>>();
            let mut read = vec![0; most];
            for instance in 0..instances {
                for partition in spread.partitions_of(instance, instances).unwrap() {
                    read[partition] += 1;
                    prop_assert_eq!(spread.host_of(instance), Some(&*hosts[partition]));
                }
            }
            prop_assert!(read.iter().all(|times| *times == 1));
        }
    }
}
