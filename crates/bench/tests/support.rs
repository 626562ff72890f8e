//! Runs the program as a child process in a folder of its own.

use std::process::{Command, Stdio};

/// A folder in which experiments are run.
pub struct Folder(tempfile::TempDir);

/// The result of an experiment.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// Whether the engine's program is beside this one.
    pub fn has_engine(&self) -> bool {
        let bench = std::path::Path::new(env!("CARGO_BIN_EXE_slackwater-bench"));
        bench.with_file_name("slackwater").is_file()
    }

    /// Runs an experiment to its end.
    pub fn bench(&self, arguments: &[&str]) -> Finished {
        let output = Command::new(env!("CARGO_BIN_EXE_slackwater-bench"))
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("RUST_BACKTRACE")
            .env_remove("SLACKWATER_PROGRAM")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Finished {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The content of a file.
    pub fn read(&self, name: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The content of a JSON file.
    pub fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// The names of everything in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names = names.collect::<Vec<_>>();
        names.sort();
        names
    }
}

impl Finished {
    /// Checks that the experiment succeeded.
    #[track_caller]
    pub fn ok(self) -> Finished {
        self.with_code(0)
    }

    /// Checks that the experiment ended with this code, and that standard error contains all of `parts`.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Finished {
        let finished = self.with_code(code);
        for part in parts {
            let err = &finished.err;
            assert!(err.contains(part), "'{part}' is not in:\n{err}");
        }
        finished
    }

    #[track_caller]
    fn with_code(self, code: i32) -> Finished {
        let (out, err) = (&self.out, &self.err);
        assert_eq!(self.code, Some(code), "out: {out}\nerr: {err}");
        assert!(!err.contains("panicked"), "{err}");
        self
    }
}
