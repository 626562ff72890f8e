//! Values of a tree of files.

use super::*;
use crate::cores::tests::tree;
use std::fs;

struct Bench {
    folder: tempfile::TempDir,
    clocks: Clocks,
    journal: Journal,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path(), 4, &[2, 3]);
    let cores = Cores::read(folder.path());
    let clocks = Clocks::open(&cores, &BTreeSet::from([1, 2, 3, 9]));
    let (journal, _) = Journal::open(&folder.path().join("journal")).unwrap();
    Bench {
        folder,
        clocks,
        journal,
    }
}

impl Bench {
    fn path(&self, cpu: Cpu, name: &str) -> std::path::PathBuf {
        let folder = self.folder.path().join("devices/system/cpu");
        folder.join(format!("cpu{cpu}/cpufreq")).join(name)
    }

    fn value(&self, cpu: Cpu, name: &str) -> String {
        fs::read_to_string(self.path(cpu, name))
            .unwrap()
            .trim()
            .to_string()
    }

    fn cap(&mut self, cpu: Cpu, khz: Option<u32>) -> Code {
        self.clocks.cap(&mut self.journal, cpu, khz).code
    }
}

#[test]
fn a_core_is_slowed_and_restored() {
    let mut bench = bench();
    assert!(bench.clocks.refused[&9].contains("offline"));
    assert_eq!(bench.cap(3, Some(1_400_000)), Code::Done);
    assert_eq!(bench.value(2, "scaling_max_freq"), "1400000");
    assert_eq!(bench.value(2, "energy_performance_preference"), "power");
    assert_eq!(bench.value(1, "scaling_max_freq"), "2200000");
    let entries = bench.journal.entries().files.clone();
    assert_eq!(entries.len(), 2);
    assert!(
        entries
            .values()
            .any(|changed| changed.set == "1400000" && changed.sure)
    );
    assert_eq!(bench.cap(2, None), Code::Done);
    assert_eq!(bench.value(3, "scaling_max_freq"), "2200000");
    assert_eq!(
        bench.value(3, "energy_performance_preference"),
        "balance_performance"
    );
    assert!(bench.journal.entries().is_empty());
}

#[test]
fn nothing_is_set_outside_of_plan_and_range() {
    let mut bench = bench();
    let out = [
        (0, Some(1_000_000)),
        (9, Some(1_000_000)),
        (1, Some(999_999)),
        (1, Some(2_200_001)),
    ];
    for (cpu, khz) in out {
        assert_eq!(bench.cap(cpu, khz), Code::NotAllowed, "{cpu} {khz:?}");
    }
    assert!(!Path::new(&bench.folder.path().join("journal")).exists());
}

#[test]
fn whoever_insists_is_left_alone() {
    let mut bench = bench();
    bench.cap(1, Some(1_000_000));
    for round in 0..AGAIN_MAX as u64 {
        fs::write(bench.path(1, "scaling_max_freq"), "1800000\n").unwrap();
        assert_eq!(bench.clocks.look(&mut bench.journal, round), []);
        assert_eq!(bench.value(1, "scaling_max_freq"), "1000000");
    }
    fs::write(bench.path(1, "scaling_max_freq"), "1800000\n").unwrap();
    let left = bench.clocks.look(&mut bench.journal, 9);
    let expected = LeftAlone {
        cpu: 1,
        khz: 1_800_000,
    };
    assert_eq!(left, [expected]);
    assert_eq!(bench.value(1, "scaling_max_freq"), "1800000");
    assert_eq!(bench.cap(1, Some(1_000_000)), Code::Conflict);
    assert_eq!(bench.cap(1, None), Code::Done);
    assert_eq!(bench.value(1, "scaling_max_freq"), "1800000");
    assert!(bench.journal.entries().is_empty());
}

/// As the kernel does it: what is written is in force a moment later.
#[test]
fn a_limit_that_comes_into_force_later_is_not_taken_for_somebody_else_s() {
    let mut bench = bench();
    bench.cap(1, Some(1_400_000));
    let clock = &mut bench.clocks.files[bench.clocks.by_cpu[&1]];
    // What was read back was still the old one.
    (clock.set, clock.before) = (Some("1000000".to_string()), Some("1400000".to_string()));
    fs::write(bench.path(1, "scaling_max_freq"), "1000000\n").unwrap();
    assert_eq!(bench.clocks.look(&mut bench.journal, 0), []);
    let clock = &bench.clocks.files[bench.clocks.by_cpu[&1]];
    assert_eq!((clock.again.len(), clock.before.as_ref()), (0, None));
    let clock = &mut bench.clocks.files[bench.clocks.by_cpu[&1]];
    (clock.set, clock.before) = (Some("1400000".to_string()), Some("1000000".to_string()));
    // It is restored before that: the old value is not somebody else's.
    assert_eq!(bench.cap(1, None), Code::Done);
    assert_eq!(bench.value(1, "scaling_max_freq"), "2200000");
}

#[test]
fn a_core_of_which_the_file_vanishes_is_an_answer() {
    let mut bench = bench();
    bench.cap(1, Some(1_000_000));
    fs::remove_file(bench.path(1, "scaling_max_freq")).unwrap();
    // The descriptor is still open; nothing fails, and nothing is left.
    assert_eq!(bench.cap(1, None), Code::Done);
    assert!(bench.journal.entries().is_empty());
}
