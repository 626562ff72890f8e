//! Two incarnations at once: the earlier one can't write into what the later one keeps.

use super::*;

/// A query that has written one row, with a checkpoint of it, and continues to write as incarnation 1.
struct Earlier {
    folder: tempfile::TempDir,
    connector: Arc<dyn SinkConnector>,
    sink: Box<dyn Sink>,
    prepared: String,
}

impl Earlier {
    fn new() -> Earlier {
        let folder = tempfile::tempdir().unwrap();
        let connector = crate::sink(&of_file(&folder.path().join("out.csv"), &[])).unwrap();
        connector.begin(true).unwrap();
        connector.recover(1, None).unwrap();
        let mut sink = sink_of(&*connector, 0, 1, 1);
        sink.write(&chunk(&[1])).unwrap();
        let prepared = sink.prepare(false).unwrap().unwrap();
        Earlier {
            folder,
            connector,
            sink,
            prepared,
        }
    }

    /// A connector of another process.
    fn other(&self) -> Arc<dyn SinkConnector> {
        crate::sink(&of_file(&self.folder.path().join("out.csv"), &[])).unwrap()
    }

    fn names(&self) -> Vec<String> {
        names(self.folder.path())
    }

    /// Incarnation `epoch` writes one more row and ends.
    fn ends(&self, epoch: u64) {
        let connector = self.other();
        let mut sink = sink_of(&*connector, 0, 1, epoch);
        sink.write(&chunk(&[3])).unwrap();
        let last = sink.prepare(true).unwrap().unwrap();
        sink.finish(true).unwrap();
        connector.commit(&last).unwrap();
        assert_eq!(self.names(), ["out.csv"]);
        let text = fs::read_to_string(self.folder.path().join("out.csv")).unwrap();
        assert_eq!(text, "1,x\n3,xxx\n");
    }
}

#[test]
fn an_earlier_incarnation_that_is_still_alive_writes_into_a_discarded_file() {
    let mut earlier = Earlier::new();
    let prepared = [earlier.prepared.clone()];
    // The incarnation is stopped, and still holds its file.
    earlier.other().recover(2, Some(&prepared)).unwrap();
    assert_eq!(earlier.names(), [".out.csv.0000000002.unfinished"]);
    earlier.sink.write(&chunk(&[2])).unwrap();
    earlier.sink.flush().unwrap();
    let late = earlier.sink.prepare(true).unwrap().unwrap();
    let error = earlier.connector.secure(&late).unwrap_err().to_string();
    assert!(error.contains("a later run has taken over"), "{error}");
    earlier.sink.finish(true).unwrap();
    let error = earlier.connector.commit(&late).unwrap_err().to_string();
    assert!(error.contains("out.csv: neither it nor"), "{error}");
    earlier.ends(2);
}

#[test]
fn an_earlier_incarnation_that_opens_its_file_late_finds_it_gone() {
    let mut earlier = Earlier::new();
    let prepared = [earlier.prepared.clone()];
    earlier.sink.finish(false).unwrap();
    let request = SinkRequest {
        epoch: Some(2),
        ..SinkRequest::new(0, 1)
    };
    // Incarnation 2 has taken the file over; 3 takes it over before 2 opens it.
    earlier.other().recover(2, Some(&prepared)).unwrap();
    earlier.other().recover(3, Some(&prepared)).unwrap();
    let mut slow = earlier.other().sink(&request).unwrap();
    let error = slow.open(&mut Waiter::new().unwrap()).unwrap_err();
    assert!(error.to_string().contains("a later run has taken over"));
    assert_eq!(earlier.names(), [".out.csv.0000000003.unfinished"]);
    // It takes nothing back, either.
    let error = earlier.other().recover(2, Some(&prepared)).unwrap_err();
    assert!(error.to_string().contains("a later run has taken over"));
    earlier.ends(3);
}

#[test]
fn files_of_a_late_earlier_incarnation_are_not_mistaken_for_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let connector = crate::sink(&of_file(&path, &[])).unwrap();
    connector.recover(2, None).unwrap();
    let mut sink = sink_of(&*connector, 0, 1, 2);
    sink.write(&chunk(&[1])).unwrap();
    let first = sink.prepare(false).unwrap().unwrap();
    // Incarnation 1 is late, and writes now.
    let slow = crate::sink(&of_file(&path, &[])).unwrap();
    slow.recover(1, None).unwrap();
    let mut late = sink_of(&*slow, 0, 1, 1);
    late.write(&chunk(&[7, 8, 9])).unwrap();
    late.flush().unwrap();
    drop(sink);
    connector.recover(3, Some(&[first])).unwrap();
    let mut sink = sink_of(&*connector, 0, 1, 3);
    let last = sink.prepare(true).unwrap().unwrap();
    sink.finish(true).unwrap();
    connector.commit(&last).unwrap();
    assert_eq!(names(folder.path()), ["out.csv"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "1,x\n");
}

#[test]
fn a_file_of_an_earlier_version_is_taken_over() {
    let earlier = Earlier::new();
    let Earlier {
        folder, prepared, ..
    } = earlier;
    let unnumbered = folder.path().join(".out.csv.unfinished");
    fs::rename(
        folder.path().join(".out.csv.0000000001.unfinished"),
        &unnumbered,
    )
    .unwrap();
    let connector = crate::sink(&of_file(&folder.path().join("out.csv"), &[])).unwrap();
    connector.recover(2, Some(&[prepared])).unwrap();
    assert_eq!(names(folder.path()), [".out.csv.0000000002.unfinished"]);
    // Files of other programs stay.
    for name in [
        ".out.csv.2.unfinished",
        ".out.csv.old.unfinished",
        ".out.csv2.unfinished",
    ] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    connector.recover(3, Some(&[])).unwrap();
    assert_eq!(names(folder.path()).len(), 4);
}

#[test]
fn an_earlier_incarnation_removes_no_part_of_a_later_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let open = || crate::sink(&of_file(&path, &[("overwrite", "true")])).unwrap();
    let connector = open();
    connector.recover(2, None).unwrap();
    let mut sink = sink_of(&*connector, 0, 1, 2);
    sink.write(&chunk(&[1])).unwrap();
    let prepared = sink.prepare(false).unwrap().unwrap();
    open().recover(1, None).unwrap();
    connector.commit(&prepared).unwrap();
    open().recover(1, None).unwrap();
    assert_eq!(names(&path), ["part-00000-0000000002-0000000000.csv"]);
    // A part of an earlier incarnation can't be committed once a later one has started from nothing.
    let mut sink = sink_of(&*connector, 0, 1, 1);
    sink.write(&chunk(&[2])).unwrap();
    let late = sink.prepare(false).unwrap().unwrap();
    open().recover(3, None).unwrap();
    assert!(connector.commit(&late).is_err());
    assert_eq!(names(&path), [] as [&str; 0]);
}
