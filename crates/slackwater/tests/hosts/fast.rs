//! Latency targets and control messages over hosts.

use super::*;

/// Rows are read at home, and go to the host of their key.
const PACED: &str = "
    SET 'latency_target' = '20 ms';
    CREATE TABLE visits (ts_ms BIGINT, country STRING,
      ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts)
    WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rows' = '20000', 'rate' = '5000/s');
    CREATE TABLE seen (country STRING, visits BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO seen SELECT country, COUNT(*) OVER (PARTITION BY country ORDER BY ts) FROM visits;";

/// One law corrects the whole path: it asks the processes of all hosts, tells them what it has decided, and
/// knows by how much latencies between them may be wrong.
#[test]
fn a_target_is_corrected_on_all_hosts() {
    let (folder, address) = (folder(), address());
    let agent = agent(&folder, &address, "h2");
    let parallel = ["--parallelism", "4"];
    let more = [
        &["--hosts", "2", "--here", "--processes", "2"],
        &parallel[..],
    ]
    .concat();
    start(&folder, PACED, &address, &more).finish(PATIENCE).ok();
    agent.finish(PATIENCE).ok();
    let report = folder.json("report.json");
    assert!(report["latency_error_ms"].as_f64() > Some(0.0), "{report}");
    let plan = &report["plan"];
    let processes = plan["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 4);
    for process in processes {
        assert!(process["looks"].as_u64() > Some(0), "{process}");
        assert!(process["settings"].as_u64() > Some(0), "{process}");
    }
    let tuning = &plan["tuning"];
    assert!(tuning["corrections"].as_u64() > Some(0), "{tuning}");
    assert!(tuning["changes"].as_u64() > Some(0), "{tuning}");
    // What it has cost is known: home's own processes are told over no network.
    let bytes = |host: usize, field: &str| report["hosts"][host][field].as_u64().unwrap();
    for field in ["control_bytes_sent", "control_bytes_received"] {
        assert_eq!(bytes(0, field), 0, "{report}");
        assert!(bytes(1, field) > 0, "{report}");
    }
}

/// A table of a join is sent to all instances, and so is a stream that a hint names: through a tree its
/// messages enter each other host once, whatever the shape, and the answer is the same. The other stream
/// stays.
#[test]
fn a_broadcast_is_sent_once_to_each_host() {
    const TABLE_ROWS: usize = 300;
    let table = "SELECT s.file, s.k, t.name FROM s JOIN t ON s.k = t.k";
    let stream = "SELECT /*+ BROADCAST(t) */ s.file, s.k, t.name FROM s JOIN t
                  ON t.ts BETWEEN s.ts AND s.ts";
    let broadcast = |query: &str, algorithm: &str, processes: usize| {
        let time = match query == stream {
            true => ", ts AS TO_TIMESTAMP_LTZ(k, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND",
            false => "",
        };
        let (folder, address) = (folder(), address());
        let instances = 3 * processes;
        for file in 0..instances {
            let rows = (0..100).map(|row| format!("{},{file}\n", row * 7 % TABLE_ROWS));
            folder.write(
                &format!("stream-{file}.csv"),
                rows.collect::<String>().as_bytes(),
            );
        }
        let rows = (0..TABLE_ROWS).map(|row| format!("{row},name {row}\n"));
        folder.write("table.csv", rows.collect::<String>().as_bytes());
        let text = format!(
            "SET 'broadcast' = '{algorithm}'; SET 'chunk_rows' = '64'; SET 'parallelism' = '{instances}';
             CREATE TABLE s (k BIGINT, file BIGINT{time})
             WITH ('connector' = 'file', 'path' = 'stream-*.csv');
             CREATE TABLE t (k BIGINT, name STRING{time}) WITH ('connector' = 'file', 'path' = 'table.csv');
             CREATE TABLE o (file BIGINT, k BIGINT, name STRING)
             WITH ('connector' = 'file', 'path' = 'out');
             INSERT INTO o {query};"
        );
        let agents = ["h2", "h3"].map(|name| agent(&folder, &address, name));
        let processes = processes.to_string();
        let more = ["--hosts", "3", "--here", "--processes", &processes];
        start(&folder, &text, &address, &more).finish(PATIENCE).ok();
        for agent in agents {
            agent.finish(PATIENCE).ok();
        }
        let expected = (0..instances).flat_map(|file| {
            let keys = (0..100).map(|row| row * 7 % TABLE_ROWS);
            keys.map(move |key| format!("{file},{key},name {key}"))
        });
        let mut expected = expected.collect::<Vec<String>>();
        expected.sort();
        assert_eq!(output(&folder), expected, "{algorithm}");
        let report = folder.json("report.json");
        let links = report["plan"]["remote_links"].as_array().unwrap().clone();
        let rows = |link: &serde_json::Value| link["receive"]["rows"].as_u64().unwrap();
        // What all links of a broadcast carry is the table.
        assert!(
            links.iter().all(|link| rows(link) == TABLE_ROWS as u64),
            "{links:?}"
        );
        let (wire, shared): (Vec<_>, Vec<_>) =
            links.into_iter().partition(|link| link["kind"] == "tcp");
        (wire.len(), shared.len())
    };
    assert_eq!(broadcast(table, "serial", 2), (4, 1));
    assert_eq!(broadcast(table, "flat_tree", 4), (2, 9));
    assert_eq!(broadcast(table, "binary_tree", 2), (2, 3));
    assert_eq!(broadcast(table, "ring", 2), (2, 3));
    assert_eq!(broadcast(stream, "serial", 2), (4, 1));
    assert_eq!(broadcast(stream, "binary_tree", 2), (2, 3));
    assert_eq!(broadcast(stream, "ring", 2), (2, 3));
}

/// A copy of the query on each host: rows stay where they are read, groups go to the other host, and one
/// answer comes out.
#[test]
fn copies_on_hosts_give_one_answer() {
    const FILES: i64 = 4;
    let run = |copies: &str| {
        let (folder, address) = (folder(), address());
        for file in 0..FILES {
            let rows = (0..2_000).map(|row| format!("{},{}\n", row * 3, (row * 7 + file) % 40));
            let rows = rows.collect::<String>();
            folder.write(&format!("in-{file}.csv"), rows.as_bytes());
        }
        let text = format!(
            "SET 'copies' = '{copies}'; SET 'parallelism' = '{FILES}'; SET 'chunk_rows' = '200';
             CREATE TABLE t (ms BIGINT, k BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3),
               WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
             WITH ('connector' = 'file', 'path' = 'in-*.csv');
             CREATE TABLE o (at BIGINT, k BIGINT, n BIGINT, first_ms BIGINT)
             WITH ('connector' = 'file', 'path' = 'out');
             INSERT INTO o SELECT CAST(window_start AS BIGINT) * 1000, k, COUNT(*), MIN(ms)
             FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)
             GROUP BY window_start, window_end, k;"
        );
        let agent = agent(&folder, &address, "h2");
        let more = ["--hosts", "2", "--here"];
        start(&folder, &text, &address, &more).finish(PATIENCE).ok();
        agent.finish(PATIENCE).ok();
        let report = folder.json("report.json");
        let links = report["plan"]["remote_links"].as_array().unwrap().clone();
        let rows = |link: &serde_json::Value| link["receive"]["rows"].as_u64().unwrap();
        let rows = links.iter().map(rows).sum::<u64>();
        (output(&folder), rows, report["plan"]["copies"].clone())
    };
    let (expected, rows_of_one, none) = run("none");
    assert_eq!(none, serde_json::Value::Null);
    assert!(expected.len() > 100, "{expected:?}");
    let (found, rows, copies) = run("hosts");
    assert_eq!(found, expected);
    assert_eq!(copies["copies"], 2, "{copies}");
    assert_eq!(copies["places"], "hosts", "{copies}");
    assert_eq!(copies["first_phases"].as_array().unwrap().len(), 1);
    // 40 groups a window and instance instead of the 2,000 / 3 rows.
    assert!(4 * rows < rows_of_one, "{rows} of {rows_of_one}");
}
