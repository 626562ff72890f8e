//! `slackwater bench` starts another program.

use std::path::Path;
use std::process::{Command, Output};

/// The program in a folder without any other, and a command that starts it with this `PATH`.
fn alone(folder: &Path, path: &Path) -> Command {
    let program = folder.join("slackwater");
    if !program.exists() {
        // A link of the file and no copy: it has hundreds of megabytes.
        std::fs::hard_link(env!("CARGO_BIN_EXE_slackwater"), &program).unwrap();
    }
    let mut command = Command::new(program);
    command.arg("bench").env("PATH", path);
    command
}

/// A folder in which hard links of the program are possible.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Puts a program there that says its name, its arguments and the engine that it is to measure, and fails.
fn put_bench(folder: &Path, name: &str) {
    let path = folder.join("slackwater-bench");
    let script = format!("#!/bin/sh\necho {name} \"$@\" $SLACKWATER_PROGRAM\nexit 7\n");
    std::fs::write(&path, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn it_is_looked_for_beside_the_program_and_then_in_path() {
    let (own, path) = (folder(), folder());
    let missing = alone(own.path(), path.path()).output().unwrap();
    let error = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1), "{error}");
    for part in [
        own.path().to_str().unwrap(),
        "nor in PATH",
        "cargo build --release -p slackwater-bench",
    ] {
        assert!(error.contains(part), "no '{part}' in {error}");
    }
    let engine = own.path().join("slackwater").display().to_string();
    for (place, name) in [(&path, "in-path"), (&own, "beside")] {
        put_bench(place.path(), name);
        let mut command = alone(own.path(), path.path());
        let run = command
            .args(["link", "--quick", "--help"])
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(7));
        assert_eq!(said(&run), format!("{name} link --quick --help {engine}\n"));
    }
}

#[test]
fn the_help_of_the_program_says_where_it_comes_from() {
    let program = env!("CARGO_BIN_EXE_slackwater");
    let help = Command::new(program)
        .args(["help", "bench"])
        .output()
        .unwrap();
    assert!(help.status.success());
    let help = said(&help);
    for part in ["Usage: slackwater bench", "-p slackwater-bench"] {
        assert!(help.contains(part), "no '{part}' in {help}");
    }
}

#[test]
fn the_power_manager_is_such_a_program_too() {
    let (own, path) = (folder(), folder());
    let mut command = alone(own.path(), path.path());
    let missing = command.output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let mut command = Command::new(own.path().join("slackwater"));
    let missing = command.args(["power", "check"]).env("PATH", path.path());
    let error = missing.output().unwrap().stderr;
    let error = String::from_utf8_lossy(&error);
    assert!(
        error.contains("cargo build --release -p slackwater-power"),
        "{error}"
    );
}
