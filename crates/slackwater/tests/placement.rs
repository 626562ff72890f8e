//! Instances, workers, cores and nodes as the command line shows and takes them.

use crate::process::Folder;

/// A count per key over a few rows.
const COUNTING: &str = "
CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'in-*.csv');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'out.csv', 'overwrite' = 'true');
INSERT INTO o SELECT k, SUM(n) FROM t GROUP BY k;";

/// Three files of 2,000 rows over 50 keys.
fn counted() -> Folder {
    let folder = Folder::new();
    for file in 0..3 {
        let rows = (0..2_000).map(|row| format!("k{},{}\n", row % 50, row + file));
        folder.write(
            &format!("in-{file}.csv"),
            rows.collect::<String>().as_bytes(),
        );
    }
    folder.write("query.sql", COUNTING.as_bytes());
    folder
}

/// The last row of each key.
fn answer(folder: &Folder) -> Vec<String> {
    let rows = folder.read("out.csv");
    let rows = rows.lines().map(str::to_string).collect::<Vec<_>>();
    crate::support::last_per_key(&rows, ',')
}

/// This machine as two nodes, where it has two cores: the first core alone, and all others. Which
/// memory belongs to the second node nobody knows.
pub fn two_nodes() -> Option<String> {
    let cores = slackwater_engine::link::allowed_cores();
    if cores.len() < 2 {
        eprintln!("skipped: one core");
        return None;
    }
    let core = |id: &usize| serde_json::json!({"id": id, "allowed": true, "siblings": [id], "frequency_max_khz": null});
    let node = |id: usize, cores: &[usize], distances: [u32; 2]| serde_json::json!({"id": id, "cores": cores, "distances": distances});
    let machine = serde_json::json!({
        "nodes": [node(0, &cores[..1], [10, 20]), node(1, &cores[1..], [20, 10])],
        "cores": cores.iter().map(core).collect::<Vec<_>>(),
    });
    Some(machine.to_string())
}

#[test]
fn a_query_can_be_planned_for_another_machine_and_not_run_on_it() {
    let folder = counted();
    let explain = ["explain", "query.sql", "--parallelism", "36"];
    let other = [&explain[..], &["--topology", "bullion-s16"]].concat();
    let out = folder.slackwater(&other).ok().out;
    for part in [
        "Instances on 36 workers",
        "placement 'numa': a byte travels a mean distance of ",
        "worker 0 (core 0 of node 0)",
        "of node 1)",
        "note: planned for bullion-s16, not for this machine",
    ] {
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
    let out = folder.slackwater(&[&other[..], &["--set", "placement=os"]].concat());
    assert!(out.ok().out.contains("worker 35 (not pinned)"));
    let spread = [&other[..], &["--set", "placement=spread"]].concat();
    let out = folder.slackwater(&spread).ok().out;
    assert!(out.contains("of node 15)"), "{out}");
    let run = ["run", "query.sql", "--topology", "bullion-s16"];
    let parts = [
        "--topology bullion-s16",
        "of its 288 cores",
        "slackwater explain",
    ];
    folder.slackwater(&run).fails(2, &parts);
    let unknown = ["explain", "query.sql", "--topology", "cray.json"];
    folder
        .slackwater(&unknown)
        .fails(2, &["cray.json: No such file", "bullion-s16"]);
    folder.write("wrong.json", br#"{"nodes": [], "cores": []}"#);
    let wrong = ["explain", "query.sql", "--topology", "wrong.json"];
    folder
        .slackwater(&wrong)
        .fails(2, &["wrong.json: no core may be used"]);
    let out = folder.slackwater(&["topology", "--topology", "bullion-s16"]);
    assert!(out.ok().out.contains("node 15: cores 270 "));
}

#[test]
fn nodes_that_were_described_are_run_on() {
    let folder = counted();
    let Some(machine) = two_nodes() else { return };
    folder.write("machine.json", machine.as_bytes());
    folder.run(COUNTING, &[]).ok();
    let expected = answer(&folder);
    for processes in ["1", "nodes"] {
        let finished = folder.run(
            COUNTING,
            &[
                "--topology",
                "machine.json",
                "--parallelism",
                "2",
                "--processes",
                processes,
            ],
        );
        let finished = finished.ok();
        assert_eq!(answer(&folder), expected, "{processes}");
        let plan = &folder.json("report.json")["plan"];
        assert_eq!(plan["placement"], "numa");
        let mut nodes = plan["nodes"].as_array().unwrap().clone();
        nodes.sort_by_key(serde_json::Value::as_u64);
        assert_eq!(nodes, [0, 1]);
        let count = plan["processes"].as_array().unwrap().len();
        assert_eq!(count, if processes == "nodes" { 2 } else { 0 });
        // Where there is no second node its memory can't be had, which is said once and no failure.
        if !std::path::Path::new("/sys/devices/system/node/node1").exists() {
            let note = "memory of NUMA node 1 can't be preferred";
            assert_eq!(finished.err.matches(note).count(), 1, "{}", finished.err);
            assert!(plan["notes"].to_string().contains(note), "{plan}");
        }
    }
    let os = [
        "--processes",
        "nodes",
        "--set",
        "placement=os",
        "--topology",
    ];
    folder
        .run(COUNTING, &[&os[..], &["machine.json"]].concat())
        .fails(2, &["needs workers that are bound to nodes", "'numa'"]);
}

#[test]
fn a_restricted_process_uses_what_it_is_given_and_says_so() {
    let folder = counted();
    let cores = slackwater_engine::link::allowed_cores();
    if cores.len() < 2 {
        eprintln!("skipped: one core");
        return;
    }
    let last = *cores.last().unwrap();
    // A process inherits the cores of the thread that starts it.
    let (out, plan) = std::thread::spawn(move || {
        slackwater_engine::link::pin_to_core(last).unwrap();
        let arguments = ["explain", "query.sql", "--parallelism", "2"];
        let out = folder.slackwater(&arguments).ok().out;
        folder.run(COUNTING, &["--parallelism", "2"]).ok();
        (out, folder.json("report.json")["plan"].clone())
    })
    .join()
    .unwrap();
    let note = "this process may use 1 of ";
    assert!(out.contains(note), "{out}");
    assert!(out.contains(&format!("worker 0 (core {last})")), "{out}");
    assert!(plan["notes"].to_string().contains(note), "{plan}");
    assert_eq!(plan["cores"], serde_json::json!([last]));
}

#[test]
fn sixty_four_instances_share_the_cores_and_never_spin() {
    let folder = counted();
    folder.run(COUNTING, &[]).ok();
    let expected = answer(&folder);
    let cores = slackwater_engine::link::allowed_cores().len();
    for (workers, wait) in [(None, "auto"), (Some("64"), "auto"), (Some("64"), "poll")] {
        let wait = format!("wait={wait}");
        let mut arguments = vec!["--parallelism", "64", "--set", &wait];
        arguments.extend(workers.iter().flat_map(|workers| ["--workers", workers]));
        let finished = folder.run(COUNTING, &arguments).ok();
        assert_eq!(answer(&folder), expected, "{arguments:?}");
        let plan = &folder.json("report.json")["plan"];
        assert_eq!(plan["parallelism"], 64);
        if workers.is_none() || cores >= 64 {
            continue;
        }
        let shared = format!("64 workers share {cores} cores");
        assert!(finished.err.contains(&shared), "{}", finished.err);
        let woken = "workers wait to be woken instead";
        assert_eq!(finished.err.contains(woken), wait == "wait=poll");
        let used = if wait == "wait=poll" {
            "interrupt"
        } else {
            "auto"
        };
        assert_eq!(plan["wait"], used);
        // A worker that polls never waits to be woken.
        let threads = plan["threads"].as_array().unwrap().iter();
        let parks = threads.map(|thread| thread["parks"].as_u64().unwrap());
        assert!(parks.sum::<u64>() > 0, "{plan}");
    }
}

#[test]
fn each_statement_has_its_own_parallelism() {
    let folder = counted();
    let text =
        "CREATE TABLE t (k STRING, n BIGINT) WITH ('connector' = 'file', 'path' = 'in-*.csv');
        CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
        CREATE TABLE b (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
        CREATE TABLE c (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO a SELECT k, SUM(n) FROM t GROUP BY k;
        SET 'parallelism' = '3';
        INSERT INTO b SELECT k, MIN(n) FROM t GROUP BY k;
        SET 'parallelism' = '2';
        INSERT INTO c SELECT k, MAX(n) FROM t GROUP BY k;";
    let instances = |arguments: &[&str]| {
        folder.run(text, arguments).ok();
        let plan = folder.json("report.json")["plan"].clone();
        let subqueries = plan["subqueries"].as_array().unwrap().iter();
        let instances = subqueries.map(|part| part["instances"].as_u64().unwrap());
        instances.collect::<Vec<u64>>()
    };
    // The source is shared by all three, and read by as many as the one that wants most.
    assert_eq!(instances(&[]), [3, 1, 3, 2]);
    assert_eq!(instances(&["--parallelism", "2"]), [2, 2, 2, 2]);
}

#[test]
fn automatic_parallelism_learns_what_rows_cost() {
    let folder = Folder::new();
    let text = "SET 'parallelism' = 'auto';
        CREATE TABLE v (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen',
          'generator' = 'uservisits', 'rows' = '40000');
        CREATE TABLE o (ip STRING, n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT ip, COUNT(*) FROM v GROUP BY ip;";
    folder.write("query.sql", text.as_bytes());
    let slackwater = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env("SLACKWATER_CACHE", folder.path("cache"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let explained = slackwater(&["explain", "query.sql"]);
    let assumed = "the costs of 0 of ";
    assert!(explained.contains(assumed), "{explained}");
    let ran = slackwater(&["run", "query.sql"]);
    assert!(
        ran.contains("parallelism ") && ran.contains(assumed),
        "{ran}"
    );
    let explained = slackwater(&["explain", "query.sql"]);
    let measured = "operators were measured by an earlier run";
    assert!(
        explained.contains(measured) && !explained.contains(assumed),
        "{explained}"
    );
    let learned = folder.json("cache/costs.json");
    let learned = learned["operators"].as_object().unwrap();
    assert!(
        learned.keys().any(|key| key.starts_with("aggregate ")),
        "{learned:?}"
    );
    // A file that somebody has broken is no figures, and no error.
    folder.write("cache/costs.json", b"{\"operators\": 5}");
    assert!(slackwater(&["explain", "query.sql"]).contains(assumed));
    // Who says a number leaves nothing behind.
    std::fs::remove_file(folder.path("cache/costs.json")).unwrap();
    slackwater(&["run", "query.sql", "--parallelism", "1"]);
    assert!(!folder.path("cache/costs.json").exists());
}

#[test]
fn a_plan_is_drawn_for_people_graphviz_browsers_and_scripts() {
    let folder = counted();
    let write = |format: &str| {
        let arguments = [
            "explain",
            "query.sql",
            "--parallelism",
            "2",
            "--workers",
            "2",
            "--format",
            format,
        ];
        folder.slackwater(&arguments).ok().out
    };
    assert!(write("text").starts_with("Query graph\n"));

    let dot = write("dot");
    for part in [
        "digraph slackwater {",
        "subgraph cluster_query {",
        "subgraph cluster_subqueries {",
        "subgraph cluster_instances_1 {",
        "query0 -> query1",
        "label=\"by t.k\"",
    ] {
        assert!(dot.contains(part), "'{part}' is not in:\n{dot}");
    }
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    folder.write("plan.dot", dot.as_bytes());
    let graphviz = std::process::Command::new("dot")
        .args(["-Tplain", "-o", "/dev/null"])
        .arg(folder.path("plan.dot"))
        .output();
    match graphviz {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("skipped: dot: {error}"),
    }

    let svg = write("svg");
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    for part in [
        "Query graph",
        "Subqueries",
        "Instances",
        "worker 1 (",
        "by t.k",
    ] {
        assert!(svg.contains(part), "'{part}' is not in:\n{svg}");
    }

    let json = serde_json::from_str::<serde_json::Value>(&write("json")).unwrap();
    let fields = json.as_object().unwrap().keys().map(String::as_str);
    let mut fields = fields.collect::<Vec<_>>();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "copies",
            "instances",
            "links",
            "notes",
            "parsers",
            "placement",
            "query",
            "subqueries",
            "targets",
            "workers"
        ]
    );
    let count = |name: &str| json[name].as_array().unwrap().len();
    assert_eq!(count("workers"), 2);
    assert_eq!(json["query"][0]["kind"], "source");
    let by_key = json["query"].as_array().unwrap().iter();
    let mut by_key = by_key.flat_map(|node| node["inputs"].as_array().unwrap());
    assert!(by_key.any(|input| input["exchange"] == "by t.k"));
    for link in json["links"].as_array().unwrap() {
        for end in ["from", "to"] {
            assert!(link[end].as_u64().unwrap() < count("instances") as u64);
        }
    }

    folder.write(
        "both.sql",
        format!("{COUNTING} EXPLAIN SELECT k FROM t;").as_bytes(),
    );
    let both = ["explain", "both.sql", "--format", "json"];
    folder
        .slackwater(&both)
        .fails(2, &["a single plan", "EXPLAIN"]);
}

/// Hosts that are not there can be planned for: a row of the plan for each worker with its host, and what
/// would cross the wire.
#[test]
fn a_query_is_planned_for_several_hosts() {
    let folder = counted();
    let explain = |more: &[&str]| {
        folder.slackwater(&[&["explain", "query.sql", "--parallelism", "4"], more].concat())
    };
    let three = explain(&["--hosts", "2", "--workers", "4"]).ok().out;
    for part in [
        "(h1, process 0, ",
        "(h2, process 1, ",
        "\nBetween hosts (tcp)\n",
        " links, about ",
    ] {
        assert!(three.contains(part), "{part}: {three}");
    }
    let one = explain(&[]).ok().out;
    assert!(!one.contains("hosts") && !one.contains("(h1"), "{one}");
    let json = explain(&["--hosts", "2", "--workers", "4", "--format", "json"])
        .ok()
        .out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let workers = json["workers"].as_array().unwrap().iter();
    let hosts = workers.map(|worker| worker["host"].as_u64().unwrap());
    assert_eq!(
        hosts.collect::<std::collections::BTreeSet<u64>>(),
        [0, 1].into()
    );
    for wrong in ["0", "many", "1001"] {
        explain(&["--hosts", wrong]).fails(2, &["--hosts", "from 1 to 1000"]);
    }
}

#[test]
fn a_hint_begins_a_subquery_on_a_worker_of_its_own() {
    let folder = counted();
    let hinted = COUNTING.replace(
        "SELECT k, SUM(n) FROM t GROUP BY k",
        "SELECT /*+ SUBQUERY('twice') */ k, n * 2 FROM t WHERE n > 5",
    );
    folder.write("query.sql", hinted.as_bytes());
    let explain = [
        "explain",
        "query.sql",
        "--parallelism",
        "1",
        "--workers",
        "2",
    ];
    let out = folder.slackwater(&explain).ok().out;
    for part in [
        "subquery   twice  <- #0 apart",
        "0    source #0  (1 instance)",
        "1    subquery #1 -> filter #2 -> ",
        "): source #0\n",
        "): subquery #1",
    ] {
        assert!(out.contains(part), "'{part}' is not in:\n{out}");
    }
}
