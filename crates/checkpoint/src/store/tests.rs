use std::fs;
use std::path::Path as FilePath;

use serde_json::Value;

use super::*;
use crate::manifest::{Identity, Meaning, Node, NodeKind};
use crate::part::tests::state;
use crate::simulation::random::Random;
use crate::{PartRequest, Runner};

mod claims;
mod faults;
#[cfg(feature = "s3")]
mod s3;

/// A store in its own directory.
pub(super) struct Place {
    pub directory: tempfile::TempDir,
    pub store: Store,
    pub runner: Runner,
}

impl Place {
    pub fn new() -> Place {
        Place::at(tempfile::tempdir().unwrap())
    }

    pub fn at(directory: tempfile::TempDir) -> Place {
        let store = Store::open(directory.path().to_str().unwrap()).unwrap();
        let runner = Runner::new().unwrap();
        Place {
            directory,
            store,
            runner,
        }
    }

    pub fn begin(&self) -> (CheckpointWriter, Found) {
        self.runner.run(self.store.begin(None)).unwrap()
    }

    pub fn newest(&self) -> Found {
        self.runner.run(self.store.newest(None)).unwrap()
    }

    /// Stores a checkpoint with a base of some rows, and returns its manifest.
    pub fn checkpoint(&self, incarnation: &mut CheckpointWriter, barrier: u64) -> Result<Manifest> {
        self.runner.run(async {
            let mut manifest = manifest(barrier);
            let (parts, request) = (incarnation.parts(), request(barrier));
            let part = parts.put(&request, &[state(2)]).await?;
            manifest.nodes[0].parts.push(part);
            manifest.number = incarnation.put_manifest(manifest.clone()).await?;
            manifest.epoch = incarnation.epoch();
            Ok(manifest)
        })
    }

    pub fn files(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names = names.collect::<Vec<String>>();
        names.sort();
        names
    }

    pub fn file(&self, object: &str) -> PathBuf {
        self.directory.path().join(object)
    }
}

pub(super) fn request(barrier: u64) -> PartRequest<'static> {
    PartRequest {
        barrier,
        since: None,
        node: "per_user",
        instance: 0,
        piece: 0,
        buckets: (0, 4_095),
        owners: None,
        watermark: None,
    }
}

pub(super) fn manifest(barrier: u64) -> Manifest {
    let identity = Identity {
        key: "per_user".to_string(),
        kind: NodeKind::Stateful,
        meaning: Meaning::State(Value::Null),
    };
    Manifest {
        barrier,
        buckets: 4_096,
        nodes: vec![Node {
            identity,
            instances: 1,
            watermark: None,
            parts: Vec::new(),
            partitions: Vec::new(),
            pending: Vec::new(),
        }],
        ..Manifest::default()
    }
}

#[test]
fn a_checkpoint_is_found_again_with_its_state() {
    let place = Place::new();
    let (mut first, found) = place.begin();
    assert!(found.manifest.is_none() && found.warnings.is_empty());
    let one = place.checkpoint(&mut first, 1).unwrap();
    let two = place.checkpoint(&mut first, 2).unwrap();
    assert!(one.number < two.number);
    let (second, found) = place.begin();
    assert!(second.epoch() > first.epoch());
    let found = found.manifest.unwrap();
    assert_eq!((found.number, found.epoch), (two.number, first.epoch()));
    let part = &found.nodes[0].parts[0];
    let read = place.runner.run(place.store.read_part(part)).unwrap();
    assert_eq!(read, [state(2)]);
    let (_, before) = place
        .runner
        .run(place.store.begin(Some(two.number)))
        .unwrap();
    assert_eq!(before.manifest.unwrap().number, one.number);
}

#[test]
fn an_earlier_incarnation_can_neither_store_nor_remove() {
    let place = Place::new();
    let (mut old, _) = place.begin();
    place.checkpoint(&mut old, 1).unwrap();
    let (mut new, _) = place.begin();
    for barrier in 2..9 {
        let error = place.checkpoint(&mut old, barrier).unwrap_err();
        assert_eq!(error.kind, Kind::Fenced, "{error}");
        let error = place.runner.run(old.sweep(1)).unwrap_err();
        assert_eq!(error.kind, Kind::Fenced, "{error}");
        // Also if the number that it would write is long gone.
        place.checkpoint(&mut new, barrier).unwrap();
        place.runner.run(new.sweep(1)).unwrap();
    }
    assert_eq!(place.files("checkpoints").len(), 1);
    assert_eq!(place.newest().manifest.unwrap().epoch, new.epoch());
}

#[test]
fn incarnations_that_start_at_once_have_different_epochs() {
    let place = Place::new();
    let path = place.directory.path().to_str().unwrap();
    let epochs = std::thread::scope(|scope| {
        let threads = (0..8).map(|_| {
            scope.spawn(|| {
                let runner = Runner::new().unwrap();
                let store = Store::open(path).unwrap();
                runner.run(store.begin(None)).map(|begun| begun.0.epoch())
            })
        });
        let threads = threads.collect::<Vec<_>>();
        let epochs = threads.into_iter().map(|thread| thread.join().unwrap());
        epochs.collect::<Vec<Result<u64>>>()
    });
    assert_eq!(place.files("checkpoints").len(), 8);
    assert!(
        epochs.contains(&Ok(8)),
        "the last one has begun: {epochs:?}"
    );
    let (begun, fenced) = epochs.into_iter().partition::<Vec<_>, _>(Result::is_ok);
    let begun = begun.into_iter().flatten().collect::<Vec<u64>>();
    let distinct = begun.iter().collect::<BTreeSet<&u64>>();
    assert_eq!(distinct.len(), begun.len());
    let kinds = fenced.into_iter().map(|failed| failed.unwrap_err().kind);
    assert!(kinds.into_iter().all(|kind| kind == Kind::Fenced));
}

#[test]
fn a_sweep_keeps_what_is_needed_and_what_may_be_in_flight() {
    let place = Place::new();
    let (mut earlier, _) = place.begin();
    place.checkpoint(&mut earlier, 1).unwrap();
    let (mut incarnation, _) = place.begin();
    let put = |request: PartRequest<'_>| {
        let parts = incarnation.parts();
        place.runner.run(parts.put(&request, &[state(1)])).unwrap()
    };
    // A base, an increment upon it, a part of an aborted barrier, one of a barrier in flight.
    let base = put(request(1));
    let increment = put(PartRequest {
        since: Some(1),
        ..request(3)
    });
    put(request(2));
    let flying = put(request(4));
    let mut stored = Vec::new();
    for (barrier, parts) in [
        (1, vec![base.clone()]),
        (3, vec![base.clone(), increment.clone()]),
    ] {
        let mut manifest = manifest(barrier);
        manifest.nodes[0].parts = parts;
        let number = place.runner.run(incarnation.put_manifest(manifest));
        stored.push(number.unwrap());
    }
    for folder in ["checkpoints", "parts"] {
        let left = format!("{folder}/{}#1", place.files(folder)[0]);
        fs::write(place.file(&left), b"half").unwrap();
    }
    let swept = place.runner.run(incarnation.sweep(1)).unwrap();
    // Two claims and two checkpoints; the earlier incarnation's part, and the aborted one.
    assert_eq!(
        swept,
        Swept {
            records: 4,
            parts: 2
        }
    );
    let name = |part: &Part| part.object.strip_prefix("parts/").unwrap().to_string();
    assert_eq!(
        place.files("parts"),
        [name(&base), name(&increment), name(&flying)]
    );
    assert_eq!(place.files("checkpoints").len(), 1);
    let found = place.newest();
    assert_eq!(found.manifest.unwrap().number, stored[1]);
    let again = place.runner.run(incarnation.sweep(1)).unwrap();
    assert_eq!(again, Swept::default());
}

#[test]
fn three_of_many_checkpoints_are_kept() {
    let place = Place::new();
    let (mut incarnation, _) = place.begin();
    for barrier in 1..20 {
        place.checkpoint(&mut incarnation, barrier).unwrap();
        place.runner.run(incarnation.sweep(3)).unwrap();
    }
    assert_eq!(place.files("checkpoints").len(), 3);
    assert_eq!(place.files("parts").len(), 3);
}

#[test]
fn a_sweep_keeps_the_committed_checkpoint() {
    let place = Place::new();
    let (mut incarnation, _) = place.begin();
    let stored = (1..8).map(|barrier| place.checkpoint(&mut incarnation, barrier).unwrap());
    let stored = stored.collect::<Vec<Manifest>>();
    let committed = stored[1].number;
    let sweep = incarnation.sweep_before(committed, 3);
    place.runner.run(sweep).unwrap();
    assert_eq!(place.files("checkpoints").len(), 6);
    let before = Some(stored[2].number);
    let found = place.runner.run(place.store.newest(before)).unwrap();
    assert_eq!(found.manifest.unwrap().number, committed);
    // Later ones are committed, too.
    let sweep = incarnation.sweep_before(stored[6].number, 3);
    place.runner.run(sweep).unwrap();
    assert_eq!(place.files("checkpoints").len(), 3);
}

#[test]
fn the_first_checkpoint_is_known_as_long_as_nothing_was_removed() {
    let place = Place::new();
    let is_first = |number| place.runner.run(place.store.is_first(number)).unwrap();
    place.begin();
    let (mut incarnation, _) = place.begin();
    let first = place.checkpoint(&mut incarnation, 1).unwrap().number;
    let second = place.checkpoint(&mut incarnation, 2).unwrap().number;
    assert_eq!((is_first(first), is_first(second)), (true, false));
    // An unreadable record may have been a checkpoint.
    let claim = place
        .file("checkpoints/")
        .join(&place.files("checkpoints")[0]);
    let copy = place.file("copies/").join(&place.files("copies")[0]);
    let kept = fs::read(&claim).unwrap();
    fs::write(&claim, b"torn").unwrap();
    assert!(is_first(first), "there is a copy of it");
    fs::write(&copy, b"torn").unwrap();
    assert!(!is_first(first));
    fs::write(&claim, kept).unwrap();
    assert!(is_first(first));
    place.runner.run(incarnation.sweep(1)).unwrap();
    assert!(!is_first(second));
    let anew = place.runner.run(place.store.begin_from_scratch());
    let (mut incarnation, _) = anew.unwrap();
    let first = place.checkpoint(&mut incarnation, 1).unwrap().number;
    assert!(is_first(first));
}

#[test]
fn a_part_may_be_written_again_but_not_changed() {
    let place = Place::new();
    let (incarnation, _) = place.begin();
    let put = |rows| {
        let parts = incarnation.parts();
        place.runner.run(parts.put(&request(1), &[state(rows)]))
    };
    assert_eq!(put(2).unwrap(), put(2).unwrap());
    let error = put(3).unwrap_err();
    assert!(error.reason.contains("something else"), "{error}");
}

#[test]
fn a_writer_skips_its_own_record_that_seemed_to_fail() {
    let place = Place::new();
    let (mut incarnation, _) = place.begin();
    let first = place.checkpoint(&mut incarnation, 1).unwrap();
    // As if the response had been lost.
    incarnation.last = first.number - 1;
    let second = place.checkpoint(&mut incarnation, 2).unwrap();
    assert_eq!(second.number, first.number + 1);
}

#[test]
fn invalid_places_are_refused_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let file = file.to_str().unwrap();
    let below = format!("{file}/below");
    for (location, words) in [
        ("", "there is no path"),
        ("gs://bucket/x", "checkpoints can't be stored in 'gs://'"),
        ("http://host/x", "s3://bucket/folder"),
        ("file://host/x", "three slashes"),
        ("file:///a%20b", "write the path itself"),
        (file, "it must be a directory"),
        (&below, "it must be a directory"),
        ("/proc/nothing/here", "/proc/nothing/here: "),
        #[cfg(not(feature = "s3"))]
        ("s3://bucket/x", "build it with the feature 's3'"),
        #[cfg(feature = "s3")]
        ("s3:///x", "it names no bucket"),
    ] {
        let error = Store::open(location).unwrap_err().to_string();
        assert!(error.contains(words), "{location}: {error}");
    }
    let new = directory.path().join("a/b");
    assert!(Store::open(&format!("file://{}", new.display())).is_ok());
    assert!(FilePath::is_dir(&new));
}

#[test]
fn names_of_records_are_numbers() {
    assert_eq!(number_of(RECORDS, &record_name(7)), Some(7));
    assert_eq!(number_of(RECORDS, &record_name(u64::MAX)), Some(u64::MAX));
    for other in [
        "checkpoints/7.json",
        "parts/00000000000000000007.json",
        "checkpoints/+0000000000000000007.json",
        "checkpoints/99999999999999999999.json",
    ] {
        assert_eq!(number_of(RECORDS, other), None);
    }
}
