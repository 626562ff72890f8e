//! What is known of a machine: NUMA nodes, their distances, and cores, as Linux describes them in
//! the files under `/sys/devices/system`. The files are read by the caller; here is only text.

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// NUMA nodes; one when the machine does not say.
    pub nodes: Vec<NumaNode>,
    /// Online cores (hardware threads).
    pub cores: Vec<Core>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: usize,
    /// Its cores.
    pub cores: Vec<usize>,
    /// Distance to each node, in the order of `Topology::nodes` (10 is local).
    pub distances: Vec<u32>,
}

/// A core (a hardware thread).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Core {
    /// Its number.
    pub id: usize,
    /// This process may run on it.
    pub allowed: bool,
    /// Hardware threads of the same physical core, itself included.
    pub siblings: Vec<usize>,
    /// Highest frequency in kHz, where the kernel says.
    pub frequency_max_khz: Option<u64>,
}

/// Parses a list of numbers and ranges as the kernel writes it: `0-3,8,10-11`.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .map_err(|_| format!("'{text}' in '{}' is no number", part))
        };
        match part.split_once('-') {
            None => numbers.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                // No machine has more; a mistyped range must not fill memory.
                if last < first || last - first > CORES_MAX {
                    return Err(format!("'{part}' is no range"));
                }
                numbers.extend(first..=last);
            }
        }
    }
    Ok(numbers)
}

/// Cores of the largest machine that Linux supports (`NR_CPUS` is at most 8,192 on x86-64).
pub const CORES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(
            parse_list("0-3,8,10-11\n").unwrap(),
            [0, 1, 2, 3, 8, 10, 11]
        );
        assert_eq!(parse_list("\n").unwrap(), Vec::<usize>::new());
        assert!(parse_list("3-1").is_err());
        assert!(parse_list("0-99999999").is_err());
        assert!(parse_list("a").is_err());
    }
}
