//! Memory and disks that are full: the query ends with the reason, and nothing is lost.

use super::*;

#[test]
fn operators_that_hold_too_much_end_the_query_with_its_state_saved() {
    let case = Case::new("INSERT INTO copies SELECT MAX(ms), MAX(k), v FROM events GROUP BY v;");
    let limit = ("memory_limit", "600 KB");
    let (reason, report) = failed(case.run(&[limit], false));
    assert!(
        reason.contains("held more than 600.0 KB") && reason.contains("aggregate #"),
        "{reason}"
    );
    assert!(
        reason.contains("all that was read is checkpointed"),
        "{reason}"
    );
    assert!(report.checkpoints.unwrap().stored > 0);
    // It was saved with everything that was read: nothing comes twice, nothing is missing.
    let rest = case
        .run(&[("processes", "2"), ("parallelism", "2")], false)
        .unwrap();
    assert_eq!(report.rows_in + rest.report.rows_in, ROWS);
    let copies = std::fs::read_to_string(case.path("copies.csv")).unwrap();
    assert_eq!(copies.lines().count() as u64, ROWS);
    // Without checkpoints it just ends.
    let output = case.program(&["--set", "memory_limit=600 KB", "--set", "chunk_rows=512"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("copies.csv already exists") || output.status.code() == Some(2),
        "{said}"
    );
    std::fs::remove_file(case.path("copies.csv")).unwrap();
    let output = case.program(&["--set", "memory_limit=600 KB"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("set a larger limit"), "{said}");
}

/// A small file system of its own; gone when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` for who may not mount one.
    fn mount(place: &Path) -> Option<SmallDisk> {
        std::fs::create_dir(place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
        let mounted = mount.arg(place).stderr(Stdio::null()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk(place.to_path_buf()));
        }
        eprintln!("skipped: no file system can be mounted here");
        None
    }

    fn fill(&self) {
        use std::io::Write;
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[1; 512]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_query_with_the_reason_and_nothing_is_lost() {
    let case = Case::new(COUNTS);
    let Some(disk) = SmallDisk::mount(&case.path("disk")) else {
        return;
    };
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| case.program(&["--state", "disk"]));
        let until = Instant::now() + Duration::from_secs(20);
        let third = case.path("disk/checkpoints/00000000000000000003.json");
        while !third.exists() {
            assert!(Instant::now() < until, "no checkpoint came");
            std::thread::sleep(Duration::from_millis(5));
        }
        disk.fill();
        running.join().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("6 checkpoints in a row failed"), "{said}");
    assert!(
        said.contains("disk") && said.contains("No space left"),
        "{said}"
    );
    let expected = case.expected();
    let committed = case.counts();
    assert!(
        committed.len() < expected.len(),
        "it did not get to its end"
    );
    std::fs::remove_file(disk.0.join("filler")).unwrap();
    let output = case.program(&["--state", "disk", "--parallelism", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(case.counts(), expected);
}
