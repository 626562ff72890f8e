//! Checkpoints that are not what was written: healed from their copy, refused, or passed over.

use super::*;

/// Flips a bit in the middle of a file; gives its bytes as they were.
fn flip(path: &Path) -> Vec<u8> {
    let kept = std::fs::read(path).unwrap();
    let mut bytes = kept.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
    kept
}

/// A part of the newest checkpoint.
fn newest_part(case: &Case) -> PathBuf {
    let newest = case.checkpoints().pop().unwrap();
    let manifest = std::fs::read_to_string(newest).unwrap();
    let name = manifest.split("\"object\":\"").last().unwrap();
    case.path("state").join(name.split('"').next().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_damaged_manifest_is_healed_from_its_copy() {
    let case = Case::new(COUNTS);
    case.run_for(Some(600), &[], false).unwrap();
    let newest = case.checkpoints().pop().unwrap();
    let kept = flip(&newest);
    let output = case.program(&["--state", "state", "--duration", "1ms"]);
    assert!(output.status.success(), "{}", said(&output));
    let name = newest.file_name().unwrap().to_string_lossy().into_owned();
    assert!(said(&output).contains(&name), "{}", said(&output));
    assert!(said(&output).contains("it was repaired from its second copy"));
    assert_eq!(std::fs::read(&newest).unwrap_or(kept.clone()), kept);
    // One that is gone, too, and whoever asks for the newest doesn't get the one before.
    let newest = case.checkpoints().pop().unwrap();
    std::fs::remove_file(&newest).unwrap();
    case.run(&[], false).unwrap();
    assert_eq!(case.counts(), case.expected());
}

#[test]
fn a_damaged_checkpoint_is_refused_where_rows_would_be_doubled() {
    for damage in ["manifest", "part"] {
        let case = Case::new(COUNTS);
        case.run_for(Some(600), &[], false).unwrap();
        let damaged = match damage {
            "manifest" => {
                let newest = case.checkpoints().pop().unwrap();
                flip(&case.copy_of(&newest));
                newest
            }
            _ => newest_part(&case),
        };
        let kept = flip(&damaged);
        let before = case.counts();
        assert!(!before.is_empty(), "windows had closed");
        // In several processes, the one that needs the part finds out.
        for processes in ["1", "2"] {
            let split = ["--processes", processes, "--workers", "2"];
            let split = [&split[..], &["--parallelism", "2"]].concat();
            let output = case.program(&[&["--state", "state"], &split[..]].concat());
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            let name = damaged.file_name().unwrap().to_string_lossy().into_owned();
            for word in [
                &*name,
                "is damaged",
                "restore the file",
                "--accept-duplicates",
                "are written again to file ",
            ] {
                assert!(said(&output).contains(word), "{word}: {}", said(&output));
            }
            assert_eq!(case.counts(), before, "nothing was written");
        }
        std::fs::write(&damaged, kept).unwrap();
        case.run(&[], false).unwrap();
        assert_eq!(case.counts(), case.expected());
    }
}

#[test]
fn duplicates_are_accepted_once_for_all() {
    let case = Case::new(COUNTS);
    case.run_for(Some(600), &[], false).unwrap();
    let damaged = newest_part(&case);
    flip(&damaged);
    let accepting = [
        "--state",
        "state",
        "--accept-duplicates",
        "--duration",
        "1ms",
    ];
    let output = case.program(&accepting);
    assert!(output.status.success(), "{}", said(&output));
    let name = damaged.file_name().unwrap().to_string_lossy().into_owned();
    assert!(said(&output).contains(&name), "{}", said(&output));
    assert!(
        said(&output).contains("may be written again"),
        "{}",
        said(&output)
    );
    case.run(&[], false).unwrap();
    let mut found = case.counts();
    found.dedup();
    assert_eq!(found, case.expected(), "no row is lost");
}

#[test]
fn sinks_with_weaker_guarantees_continue_with_a_warning() {
    let case = Case::new("SELECT k, COUNT(*) FROM events GROUP BY k;");
    case.run_for(Some(600), &[], false).unwrap();
    let damaged = newest_part(&case);
    flip(&damaged);
    let output = case.program(&["--state", "state", "--duration", "100ms"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("may be written again"),
        "{}",
        said(&output)
    );
}
