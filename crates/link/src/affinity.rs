//! Which cores this thread may run on.
//!
//! Workers are pinned, one per core, so that a link's two ends stay where the placement put them.

use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to one core.
///
/// # Errors
///
/// `InvalidInput` for a core that does not exist, is offline, or is forbidden to this process (by
/// its cgroup's cpuset).
pub fn pin_to_core(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "can't pin a thread to core {core}: cores are numbered below {}",
                CpuSet::MAX_CPU
            ),
        ));
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!(
                "can't pin a thread to core {core}: {error}; this thread may use cores {:?}",
                allowed_cores()
            ),
        )
    })
}

/// The cores that the calling thread may run on, in ascending order; never empty.
///
/// New threads inherit the set and [`pin_to_core`] narrows it, so call this before pinning. If the kernel
/// doesn't tell (more cores than its caller's mask holds), the first ones are assumed, as many as the
/// standard library counts.
pub fn allowed_cores() -> Vec<usize> {
    let allowed: Vec<usize> = match sched_getaffinity(None) {
        Ok(cores) => (0..CpuSet::MAX_CPU)
            .filter(|core| cores.is_set(*core))
            .collect(),
        Err(_) => Vec::new(),
    };
    if allowed.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        return (0..count).collect();
    }
    allowed
}

/// The only core that a thread of this process may run on; `None` if there are others, or no such thread.
pub fn pinned_core(thread: u64) -> Option<usize> {
    let cores = sched_getaffinity(Some(pid(thread)?)).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
    let core = cores.next()?;
    cores.next().is_none().then_some(core)
}

/// Lets a thread of this process run on these cores only.
///
/// # Errors
///
/// When the thread has ended, or may use none of the cores.
pub fn allow_cores(thread: u64, cores: &[usize]) -> io::Result<()> {
    let thread = pid(thread).ok_or(io::ErrorKind::InvalidInput)?;
    let mut set = CpuSet::new();
    let known = cores.iter().filter(|core| **core < CpuSet::MAX_CPU);
    known.for_each(|&core| set.set(core));
    Ok(sched_setaffinity(Some(thread), &set)?)
}

/// The process id by which the kernel knows a thread.
fn pid(thread: u64) -> Option<Pid> {
    Pid::from_raw(i32::try_from(thread).ok()?)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_allowed_that_core_only() {
        let cores = allowed_cores();
        let core = *cores.last().expect("never empty");
        let all = cores.clone();
        let again = std::thread::spawn(move || {
            pin_to_core(core).expect("an allowed core");
            assert_eq!(allowed_cores(), [core]);
            assert_eq!(rustix::thread::sched_getcpu(), core);
            let all = std::thread::spawn(move || {
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                allow_cores(thread as u64, &all).expect("the cores of the process");
                allowed_cores()
            });
            all.join().expect("a thread of a pinned one")
        })
        .join()
        .expect("the pinned thread");
        assert_eq!(again, cores);
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error_that_names_it() {
        for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            if allowed_cores().contains(&core) {
                continue;
            }
            let error = pin_to_core(core).expect_err("no such core");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&core.to_string()), "{error}");
        }
    }
}
