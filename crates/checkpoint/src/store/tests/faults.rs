//! A real directory whose files are torn or flipped, or that is full, forbidden or gone.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;
use crate::manifest::record::checksum_text;

/// Stores two checkpoints; returns their manifests.
fn two(place: &Place) -> (CheckpointWriter, Manifest, Manifest) {
    let (mut incarnation, _) = place.begin();
    let one = place.checkpoint(&mut incarnation, 1).unwrap();
    let two = place.checkpoint(&mut incarnation, 2).unwrap();
    (incarnation, one, two)
}

/// Checks that with the file changed the newest checkpoint is the first one, with a warning that names the
/// file.
fn falls_back(place: &Place, one: &Manifest, words: &[&str]) {
    let found = place.newest();
    assert_eq!(found.manifest.unwrap().number, one.number);
    let [warning] = &found.warnings[..] else {
        panic!("{:?}", found.warnings);
    };
    for word in words {
        assert!(warning.contains(word), "{warning}");
    }
}

#[test]
fn a_torn_or_flipped_manifest_leads_to_the_one_before() {
    let place = Place::new();
    let (mut incarnation, one, two) = two(&place);
    let name = record_name(two.number);
    let whole = fs::read(place.file(&name)).unwrap();
    fs::write(place.file(&copy_name(two.number)), b"").unwrap();
    for length in 0..whole.len() {
        fs::write(place.file(&name), &whole[..length]).unwrap();
        falls_back(&place, &one, &[&name, "and of its copy"]);
        let mut flipped = whole.clone();
        flipped[length] ^= 1 << (length % 8);
        fs::write(place.file(&name), &flipped).unwrap();
        falls_back(&place, &one, &[&name, "and of its copy"]);
    }
    // It is skipped, and so is its number.
    place.checkpoint(&mut incarnation, 3).unwrap();
    let (_, found) = place.begin();
    assert_eq!(found.manifest.unwrap().barrier, 3);
    assert!(found.warnings.is_empty());
}

#[test]
fn one_damaged_file_of_a_manifest_is_written_again_from_the_other() {
    let place = Place::new();
    let (_, _, two) = two(&place);
    let (name, copy) = (record_name(two.number), copy_name(two.number));
    let whole = fs::read(place.file(&name)).unwrap();
    assert_eq!(fs::read(place.file(&copy)).unwrap(), whole);
    for damaged in [&name, &copy] {
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        for damage in [Some(&b""[..]), Some(&whole[..9]), Some(&flipped), None] {
            match damage {
                Some(bytes) => fs::write(place.file(damaged), bytes).unwrap(),
                None => fs::remove_file(place.file(damaged)).unwrap(),
            }
            let found = place.newest();
            assert_eq!(found.manifest.unwrap().number, two.number, "{damage:?}");
            assert_eq!(found.warnings, [] as [&str; 0]);
            let (_, found) = place.begin();
            assert_eq!(found.manifest.unwrap().number, two.number);
            assert_eq!(fs::read(place.file(&name)).unwrap(), whole);
            assert_eq!(fs::read(place.file(&copy)).unwrap(), whole);
            let is_said = found.healed.iter().any(|said| said.contains(&**damaged));
            assert_eq!(is_said, !(damage.is_none() && *damaged == copy));
        }
    }
}

#[test]
fn a_damaged_claim_fences_all_the_same() {
    let place = Place::new();
    let (mut old, _) = place.begin();
    let (new, _) = place.begin();
    fs::remove_file(place.file(&record_name(new.epoch()))).unwrap();
    let error = place.checkpoint(&mut old, 1).unwrap_err();
    assert_eq!(error.kind, Kind::Fenced, "{error}");
}

#[test]
fn an_own_record_without_a_copy_does_not_fence() {
    let place = Place::new();
    let (mut incarnation, _, two) = two(&place);
    // There is no space for the copy.
    let copies = place.file("copies");
    fs::rename(&copies, place.file("elsewhere")).unwrap();
    fs::write(&copies, b"").unwrap();
    let error = place.checkpoint(&mut incarnation, 3).unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    fs::remove_file(&copies).unwrap();
    fs::rename(place.file("elsewhere"), &copies).unwrap();
    assert!(place.file(&record_name(two.number + 1)).exists());
    assert_eq!(place.runner.run(incarnation.check()), Ok(()));
    let last = place.checkpoint(&mut incarnation, 4).unwrap();
    assert_eq!(place.newest().manifest.unwrap().number, last.number);
}

#[test]
fn a_skipped_checkpoint_is_never_used_again() {
    let place = Place::new();
    let (_, one, two) = two(&place);
    let part = place.file(&two.nodes[0].parts[0].object);
    let whole = fs::read(&part).unwrap();
    fs::write(&part, b"").unwrap();
    let (mut incarnation, found) = place.begin();
    assert_eq!(found.manifest.unwrap().number, one.number);
    // It is not reported again, and not used when it is back.
    fs::write(&part, whole).unwrap();
    let found = place.newest();
    assert_eq!(found.manifest.unwrap().number, one.number);
    assert!(found.warnings.is_empty());
    let three = place.checkpoint(&mut incarnation, 1).unwrap();
    assert_eq!(place.newest().manifest.unwrap().number, three.number);
}

#[test]
fn an_earlier_run_learns_that_another_one_has_started() {
    let place = Place::new();
    let (mut first, _) = place.begin();
    place.checkpoint(&mut first, 1).unwrap();
    let is_latest =
        |writer: &CheckpointWriter| place.runner.run(place.store.check_latest(writer.epoch()));
    assert_eq!(is_latest(&first), Ok(()));
    let (second, _) = place.begin();
    let error = is_latest(&first).unwrap_err();
    assert_eq!(error.kind, Kind::Fenced);
    assert!(error.to_string().contains("has taken over"), "{error}");
    assert_eq!(is_latest(&second), Ok(()));
}

#[test]
fn a_torn_part_leads_to_the_checkpoint_before() {
    let place = Place::new();
    let (_, one, two) = two(&place);
    let part = &two.nodes[0].parts[0];
    let whole = fs::read(place.file(&part.object)).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(place.file(&part.object), &whole[..length]).unwrap();
        let bytes = format!("has {length} bytes instead of {}", whole.len());
        falls_back(&place, &one, &[&part.object, &bytes]);
    }
    fs::remove_file(place.file(&part.object)).unwrap();
    falls_back(&place, &one, &[&part.object, "is not there"]);
}

#[test]
fn no_flipped_bit_of_a_part_is_read() {
    let place = Place::new();
    let (_, _, two) = two(&place);
    let part = &two.nodes[0].parts[0];
    let whole = fs::read(place.file(&part.object)).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(place.file(&part.object), &flipped).unwrap();
        let error = place.runner.run(place.store.read_part(part)).unwrap_err();
        assert_eq!(error.kind, Kind::Corrupt);
        assert!(error.place.ends_with(&part.object), "{error}");
    }
    // Its length is right: only reading it shows the damage, and the reader asks for the checkpoint before.
    assert_eq!(place.newest().manifest.unwrap().number, two.number);
}

#[test]
fn invalid_parts_with_a_matching_checksum_are_refused() {
    let place = Place::new();
    let (_, _, two) = two(&place);
    let mut part = two.nodes[0].parts[0].clone();
    let mut random = Random(5);
    let whole = fs::read(place.file(&part.object)).unwrap();
    for _ in 0..500 {
        let mut changed = whole.clone();
        let at = random.below(changed.len() as u64) as usize;
        changed[at] = random.next() as u8;
        fs::write(place.file(&part.object), &changed).unwrap();
        part.checksum = checksum_text(crc32fast::hash(&changed));
        // It is read or refused, and never panics.
        if let Err(error) = place.runner.run(place.store.read_part(&part)) {
            assert_eq!(error.kind, Kind::Corrupt);
        }
    }
    part.rows += 1;
    fs::write(place.file(&part.object), &whole).unwrap();
    part.checksum = checksum_text(crc32fast::hash(&whole));
    let error = place.runner.run(place.store.read_part(&part)).unwrap_err();
    assert!(error.reason.contains("rows"), "{error}");
}

#[test]
fn records_of_a_later_version_are_neither_skipped_nor_removed() {
    let place = Place::new();
    let (mut incarnation, _, two) = two(&place);
    let name = record_name(two.number);
    let text = fs::read_to_string(place.file(&name)).unwrap();
    let body = text.lines().nth(1).unwrap();
    let later = crate::manifest::record::with_later_head("checkpoint", body.as_bytes());
    fs::write(place.file(&name), later).unwrap();
    let error = place.runner.run(place.store.newest(None)).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    let text = error.to_string();
    assert!(text.contains(&name) && text.contains("a later version wrote it"));
    assert!(place.runner.run(place.store.begin(None)).is_err());
    assert!(place.runner.run(incarnation.sweep(1)).is_err());
    assert_eq!(place.files("parts").len(), 2);
}

#[test]
fn a_removed_directory_is_not_silently_created_again() {
    let place = Place::new();
    let (mut incarnation, _, two) = two(&place);
    for name in place.files("parts") {
        fs::remove_file(place.file(&format!("parts/{name}"))).unwrap();
    }
    let mut upon = manifest(3);
    upon.nodes = two.nodes.clone();
    let error = place
        .runner
        .run(incarnation.put_manifest(upon))
        .unwrap_err();
    assert!(error.reason.contains("is not there"), "{error}");
    fs::remove_dir_all(place.directory.path()).unwrap();
    let error = place.checkpoint(&mut incarnation, 3).unwrap_err();
    assert_eq!(error.kind, Kind::Missing);
    assert!(
        error.to_string().contains("removed by somebody else"),
        "{error}"
    );
}

#[test]
fn folders_that_are_files_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("checkpoints"), b"x").unwrap();
    let place = Place::at(directory);
    let error = place.runner.run(place.store.begin(None)).unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.place.contains("checkpoints"), "{error}");
}

/// Switches this thread, and those that it starts, to the user `nobody`, who has no special permissions.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = rustix::fs::Uid::from_raw(65_534);
            if rustix::process::getuid().is_root() {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            work()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_lost_permission_is_named_with_a_hint() {
    let place = Place::new();
    let (mut incarnation, one, _) = two(&place);
    let forbid = |folder: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.file(folder), permissions).unwrap();
    };
    for folder in ["", "checkpoints", "parts"] {
        forbid(folder, 0o555);
    }
    let path = place.directory.path().to_str().unwrap();
    let part = &one.nodes[0].parts[0];
    let epoch = incarnation.epoch();
    as_nobody(|| {
        let runner = Runner::new().unwrap();
        let store = Store::open(path).unwrap();
        assert!(
            runner.run(store.read_part(part)).is_ok(),
            "reading is allowed"
        );
        let writer = PartWriter::new(store.clone(), epoch);
        let failures = [
            runner.run(store.begin(None)).map(drop),
            runner.run(writer.put(&request(3), &[state(1)])).map(drop),
            Store::open(&format!("{path}/new")).map(drop),
        ];
        for failure in failures {
            let error = failure.unwrap_err();
            assert_eq!(error.kind, Kind::Unavailable, "{error}");
            let text = error.to_string();
            assert!(text.contains("permission to write there"), "{text}");
        }
    });
    // A record that can't be read is no reason to resume from an earlier one.
    forbid("checkpoints", 0o000);
    as_nobody(|| {
        let runner = Runner::new().unwrap();
        let store = Store::open(path).unwrap();
        let error = runner.run(store.newest(None)).unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
    });
    for folder in ["", "checkpoints", "parts"] {
        forbid(folder, 0o755);
    }
    place.checkpoint(&mut incarnation, 3).unwrap();
}

/// Unmounts a directory, also if a test fails.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).status());
    }
}

#[test]
fn a_full_disk_is_named_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs", path])
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("note: skipped: no small file system can be mounted here");
        return;
    }
    let place = Place::at(directory);
    // Dropped before the place, which removes its directory.
    let _mounted = Mounted(place.directory.path().to_owned());
    let (mut incarnation, _, newest) = two(&place);
    let large = [state(20_000)];
    let put = incarnation.parts();
    let error = place.runner.run(put.put(&request(3), &large)).unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.to_string().contains("make room there"), "{error}");
    fs::write(place.file("filler"), vec![0; 200_000]).unwrap_err();
    let error = place.checkpoint(&mut incarnation, 4).unwrap_err();
    assert!(error.to_string().contains("make room there"), "{error}");
    assert_eq!(place.newest().manifest.unwrap().number, newest.number);
    assert!(place.newest().warnings.is_empty());
    fs::remove_file(place.file("filler")).unwrap();
    let last = place.checkpoint(&mut incarnation, 5).unwrap();
    assert_eq!(place.newest().manifest.unwrap().number, last.number);
}
