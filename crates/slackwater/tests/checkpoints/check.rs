//! `slackwater check`: it says before a run what the run then does, and changes nothing.

use std::collections::BTreeMap;

use serde_json::Value;
use slackwater::check::{Fate, Survival, check};
use slackwater::script::Script;

use super::*;

/// A query, and how its table is read.
struct Version {
    query: String,
    input: &'static str,
}

/// Versions of a query, from each of which any other one may be made.
fn versions() -> Vec<Version> {
    let of = |query: &str, input| Version {
        query: query.to_string(),
        input,
    };
    let copies = "INSERT INTO copies SELECT ms, k, v FROM events;";
    vec![
        of(COUNTS, "in.csv"),
        of(
            &COUNTS.replace("GROUP BY", "WHERE v < 1000000 GROUP BY"),
            "in.csv",
        ),
        of(
            &COUNTS
                .replace("AS BIGINT), k,", "AS BIGINT), UPPER(k),")
                .replace(", k;", ", UPPER(k);"),
            "in.csv",
        ),
        of(&COUNTS.replace("SUM(v)", "MAX(v)"), "in.csv"),
        of(&COUNTS.replace("'1' SECOND)\n", "'2' SECOND)\n"), "in.csv"),
        of(&format!("{COUNTS}\n{copies}"), "in.csv"),
        of(copies, "in.csv"),
        // Another file, which was not read.
        of(COUNTS, "in*.csv"),
        of(COUNTS, "in2.csv"),
    ]
}

fn settings() -> Vec<(String, String)> {
    vec![("checkpoint_interval".to_string(), "50 ms".to_string())]
}

impl Case {
    fn checked(&self) -> Result<Survival, String> {
        let script = Script::new("test.sql", &self.text());
        check(
            &script,
            &settings(),
            &self.path("state").display().to_string(),
        )
    }

    fn becomes(&mut self, version: &Version) {
        self.query.clone_from(&version.query);
        self.input = version.input.to_string();
    }

    /// All files, with their contents.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.folder.path().to_path_buf()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => open.push(path),
                    false => drop(files.insert(path.clone(), std::fs::read(path).unwrap())),
                }
            }
        }
        files
    }

    /// The same files in a folder of its own.
    fn copy(&self) -> Case {
        let folder = tempfile::tempdir().unwrap();
        for (path, bytes) in self.files() {
            let path = folder
                .path()
                .join(path.strip_prefix(self.folder.path()).unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        Case {
            folder,
            query: self.query.clone(),
            rate: self.rate,
            input: self.input.clone(),
        }
    }
}

#[test]
fn a_run_does_what_the_check_has_said() {
    let (mut resumed, mut refused) = (0, 0);
    for (number, old) in versions().iter().enumerate() {
        let mut saved = Case::new("");
        std::fs::copy(saved.path("in.csv"), saved.path("in2.csv")).unwrap();
        saved.becomes(old);
        saved.run_for(Some(250), &[], false).unwrap();
        for (other, new) in versions().iter().enumerate() {
            // Paths are part of positions: the copy has the place of the original.
            let kept = saved.copy();
            saved.becomes(new);
            saved.rate = 1_000_000_000;
            let before = saved.files();
            let survival = saved.checked().unwrap();
            assert_eq!(saved.files(), before, "nothing is changed");
            let told = format!("from {number} to {other}: {survival}");
            match saved.run(&[], false) {
                Ok(finished) => {
                    resumed += 1;
                    assert!(survival.resumes, "{told}");
                    assert_eq!(finished.report.restored_from, Some(survival.checkpoint));
                    let source = &survival.nodes[0];
                    let read = source
                        .partitions
                        .iter()
                        .filter(|one| one.fate != Fate::Dropped);
                    // Positions are numbers of lines, and the first line is the header.
                    let left = read.map(|one| ROWS + 2 - one.position.unwrap_or(2).max(2));
                    assert_eq!(finished.report.rows_in, left.sum::<u64>(), "{told}");
                }
                Err(Failure::Usage(error) | Failure::Query(error, _)) => {
                    refused += 1;
                    assert!(!survival.resumes, "{told}\n{error}");
                    // A run stops at the first kind of reason, and the check names all.
                    let all = survival.refusal("test.sql").unwrap();
                    for line in error.lines() {
                        assert!(all.contains(line.trim()), "{told}\n{error}");
                    }
                }
            }
            // As it was before the run.
            for path in saved.files().into_keys() {
                std::fs::remove_file(path).unwrap();
            }
            for (path, bytes) in kept.files() {
                let path = saved
                    .folder
                    .path()
                    .join(path.strip_prefix(kept.folder.path()).unwrap());
                std::fs::write(path, bytes).unwrap();
            }
            saved.rate = RATE;
        }
    }
    assert!(
        resumed > 15 && refused > 15,
        "{resumed} resumed, {refused} refused"
    );
}

#[test]
fn what_survives_is_said_for_each_table_and_operator() {
    let mut case = Case::new(COUNTS);
    case.run_for(Some(300), &[], false).unwrap();
    let fates = |case: &Case| {
        let survival = case.checked().unwrap();
        let nodes = survival.nodes.iter();
        let fates = nodes
            .map(|node| (node.key.clone(), node.fate))
            .collect::<Vec<_>>();
        (fates, survival)
    };
    let of = |fates: &[(&str, Fate)]| {
        let fates = fates.iter().map(|(key, fate)| (key.to_string(), *fate));
        fates.collect::<Vec<_>>()
    };
    let (found, survival) = fates(&case);
    let same = [
        ("source events", Fate::Continues),
        ("aggregate of sink counts", Fate::Continues),
        ("sink counts", Fate::Continues),
    ];
    assert_eq!(found, of(&same));
    let partition = &survival.nodes[0].partitions[0];
    assert!(partition.position > Some(1) && partition.fate == Fate::Continues);
    assert!(survival.nodes[1].state_rows > 0);
    assert!(survival.refusal("x").is_none());

    case.query = format!(
        "{}\nINSERT INTO copies SELECT ms, k, v FROM events;",
        COUNTS.replace("SUM(v)", "MAX(v)")
    );
    let (found, survival) = fates(&case);
    let changed = [
        ("source events", Fate::Continues),
        ("aggregate of sink counts", Fate::Changed),
        ("sink counts", Fate::Continues),
        ("sink copies", Fate::Begins),
    ];
    let sorted = |mut fates: Vec<(String, Fate)>| {
        fates.sort_by(|one, other| one.0.cmp(&other.0));
        fates
    };
    assert_eq!(sorted(found), sorted(of(&changed)));
    let text = survival.to_string();
    assert!(text.contains("a run refuses to resume from it"), "{text}");
    assert!(text.contains("would begin empty: "), "{text}");
    assert!(text.contains("MAX(v BIGINT)"), "{text}");

    case.query = "INSERT INTO copies SELECT ms, k, v FROM events;".to_string();
    let (found, _) = fates(&case);
    assert!(
        found.contains(&("aggregate of sink counts".to_string(), Fate::Lost)),
        "{found:?}"
    );
    // A new operator would have missed the rows that were read.
    let more = COUNTS.replace("counts", "more").replace("SUM(v)", "MAX(v)");
    case.query = format!("{COUNTS}\n{more}");
    let text = case.text().replace(
        "CREATE TABLE copies",
        "CREATE TABLE more (start_ms BIGINT, k STRING, n BIGINT, total BIGINT)
             WITH ('connector' = 'blackhole'); CREATE TABLE copies",
    );
    let state = case.path("state").display().to_string();
    let survival = check(&Script::new("test.sql", &text), &settings(), &state).unwrap();
    let missed = survival
        .nodes
        .iter()
        .find(|node| node.fate == Fate::Missed)
        .unwrap();
    assert_eq!(missed.key, "aggregate of sink more");
    assert!(!survival.resumes);
}

#[test]
fn scripts_read_the_exit_code_and_json() {
    let mut case = Case::new(COUNTS);
    let run = |case: &Case, arguments: &[&str]| {
        std::fs::write(case.path("query.sql"), case.text()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_slackwater"))
            .args(["check", "query.sql"])
            .args(arguments)
            .current_dir(case.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let [out, err] = [output.stdout, output.stderr];
        let [out, err] = [out, err].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), out, err)
    };
    let (code, out, err) = run(&case, &["--state", "state"]);
    assert_eq!((code, &out[..]), (Some(2), ""), "{err}");
    assert!(err.contains("state: there is no such directory"), "{err}");
    assert!(!case.path("state").exists());
    std::fs::create_dir(case.path("state")).unwrap();
    let (code, _, err) = run(&case, &["--state", "state"]);
    assert_eq!(code, Some(2));
    assert!(
        err.contains("there is no checkpoint: a run starts from nothing"),
        "{err}"
    );

    case.run_for(Some(300), &[], false).unwrap();
    let (code, out, err) = run(&case, &["--state", "state", "--parallelism", "2"]);
    assert_eq!((code, &err[..]), (Some(0), ""));
    assert!(out.contains("a run resumes from it"), "{out}");
    assert!(out.contains("source events"), "{out}");
    case.query = COUNTS.replace("SUM(v)", "MAX(v)");
    let (code, out, _) = run(&case, &["--state", "state", "--json"]);
    assert_eq!(code, Some(1));
    let json = serde_json::from_str::<Value>(&out).unwrap();
    assert_eq!(json["resumes"], false);
    let nodes = json["nodes"].as_array().unwrap();
    let aggregate = nodes
        .iter()
        .find(|node| node["kind"] == "stateful")
        .unwrap();
    assert_eq!(aggregate["fate"], "changed");
    assert!(
        aggregate["reason"]
            .as_str()
            .unwrap()
            .contains("its state has other aggregates")
    );
    case.query = "SELECT nothing;".to_string();
    let (code, _, err) = run(&case, &["--state", "state"]);
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn a_damaged_checkpoint_is_no_surprise() {
    let case = Case::new(COUNTS);
    for _ in 0..2 {
        case.run_for(Some(300), &[], false).unwrap();
    }
    let newest = case.checkpoints().into_iter().max().unwrap();
    std::fs::write(case.copy_of(&newest), "").unwrap();
    std::fs::write(&newest, "").unwrap();
    let survival = case.checked().unwrap();
    assert!(!survival.resumes);
    assert!(
        survival
            .reasons()
            .next()
            .unwrap()
            .contains("the newest checkpoint in"),
        "{survival}"
    );
    let reason = refused(case.run(&[], false));
    assert!(
        reason.contains(&survival.reasons().next().unwrap()),
        "{reason}"
    );
    for checkpoint in case.checkpoints() {
        std::fs::write(case.copy_of(&checkpoint), "").unwrap();
        std::fs::write(checkpoint, "").unwrap();
    }
    let error = case.checked().unwrap_err();
    assert!(error.contains("no checkpoint in"), "{error}");
}
