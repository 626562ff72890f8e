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
    let more = ["--hosts", "2", "--here", "--processes", "2"];
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
