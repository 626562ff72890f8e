//! Memory of NUMA nodes: which node the pages of a thread, or of a piece of shared memory, come from.
//!
//! A worker's state (hash tables, open windows, buffers) is allocated by its own thread, so it is enough
//! to tell the kernel which node that thread prefers. Lanes of shared memory are written by other
//! processes and read by one: their pages are placed on the reader's node, so that received data is near
//! (UPM-CEP, `papers.md` P5).
//!
//! *Preferred* and not *bound*: a node without free memory then costs distance, not the process.

use std::io;

use crate::memory::Memory;

/// The most nodes: what Linux supports (`MAX_NUMNODES` is 1,024).
const NODES_MAX: usize = 1024;

const WORD_BITS: usize = usize::BITS as usize;

/// A set of nodes as the kernel reads it.
type Mask = [usize; NODES_MAX / WORD_BITS];

fn mask(node: usize) -> io::Result<Mask> {
    if node >= NODES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no NUMA node {node}: nodes are numbered below {NODES_MAX}"),
        ));
    }
    let mut mask = [0; NODES_MAX / WORD_BITS];
    mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
    Ok(mask)
}

/// Makes new memory of the calling thread come from this NUMA node from now on, as long as the node has
/// some.
///
/// # Errors
///
/// `InvalidInput` for a node that does not exist or that this process may not use; `Unsupported` if the
/// kernel has no NUMA support; `PermissionDenied` if a container forbids the call.
pub fn prefer_node(node: usize) -> io::Result<()> {
    let mask = mask(node)?;
    // SAFETY: set_mempolicy reads as many bits as it is told less one, which are those of the mask;
    // it changes nothing but this thread's policy.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES_MAX + 1,
        )
    };
    outcome(result, node)
}

/// Places a piece of shared memory on a NUMA node, both the pages that it has and those that it gets,
/// whichever process touches them first.
pub(crate) fn put_on_node(memory: &Memory, node: usize) -> io::Result<()> {
    let mask = mask(node)?;
    // SAFETY: the mapping is `memory`'s own and lives as long as the call; mbind changes where its pages
    // are and not their contents. The mask is read as above.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            memory.base(),
            memory.len(),
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES_MAX + 1,
            MPOL_MF_MOVE,
        )
    };
    outcome(result, node)
}

/// Moves pages that exist already (`linux/mempolicy.h`).
const MPOL_MF_MOVE: libc::c_uint = 1 << 1;

fn outcome(result: libc::c_long, node: usize) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(
        error.kind(),
        format!("memory of NUMA node {node} can't be preferred: {error}"),
    ))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_exist_is_an_error_that_names_it() {
        for node in [NODES_MAX - 1, NODES_MAX, usize::MAX] {
            // On a thread of its own: the policy is the thread's.
            let error = std::thread::spawn(move || prefer_node(node).expect_err("no such node"));
            let error = error.join().expect("no panic");
            assert!(error.to_string().contains(&node.to_string()), "{error}");
        }
    }

    /// The kernel's description of where pages of this thread's mappings come from, one line each.
    fn policies() -> Vec<String> {
        let text = std::fs::read_to_string("/proc/thread-self/numa_maps").unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    /// Whether the call is possible: a kernel without NUMA, or a container that forbids it, says so.
    fn is_possible(result: io::Result<()>) -> bool {
        if let Err(error) = &result {
            eprintln!("skipped: {error}");
            assert!(error.to_string().contains("node 0"), "{error}");
        }
        result.is_ok()
    }

    /// Mappings without a policy of their own, which are most, have that of the thread.
    fn most_prefer(policies: &[String]) -> bool {
        let preferring = policies.iter().filter(|line| line.contains(" prefer"));
        2 * preferring.count() > policies.len()
    }

    #[test]
    fn a_thread_prefers_the_node_that_it_was_told_and_no_other_does() {
        let preferring = std::thread::spawn(|| (prefer_node(0), policies()));
        let (result, here) = preferring.join().expect("no panic");
        if is_possible(result) && !here.is_empty() {
            assert!(most_prefer(&here), "{here:?}");
        }
        let elsewhere = std::thread::spawn(policies).join().expect("no panic");
        assert!(!most_prefer(&elsewhere), "{elsewhere:?}");
    }

    #[test]
    fn shared_memory_is_on_the_node_that_it_was_put_on() {
        let (_descriptor, memory) = Memory::create("slackwater-test", 1 << 16).expect("memory");
        if !is_possible(put_on_node(&memory, 0)) {
            return;
        }
        let begin = format!("{:x} ", memory.base() as usize);
        let policies = policies();
        let line = policies
            .iter()
            .find(|line| line.trim_start_matches('0').starts_with(&begin));
        match line {
            Some(line) => assert!(line.contains(" prefer"), "{line}"),
            None => assert!(policies.is_empty(), "no {begin} in {policies:?}"),
        }
    }
}
