//! How many hosts a query wants: what those who start and stop hosts read while it runs, and the report.

use rustix::process::Signal;
use serde_json::Value;

use super::{address, agent, folder, kill, query, start, wait_until};
use crate::process::{PATIENCE, free_address, request, status_and_body};

fn get(address: &str, path: &str) -> Option<String> {
    let answer = request(address, &format!("GET {path}"), "", b"")?;
    let (status, body) = status_and_body(&answer)?;
    (status == 200).then(|| body.to_string())
}

/// What `/v1/hosts` says of a query that runs.
fn hosts(metrics: &str) -> Option<Value> {
    let body = get(metrics, "/v1/hosts")?;
    let hosts = serde_json::from_str::<Value>(&body).unwrap();
    Some(hosts).filter(|hosts| !hosts.is_null())
}

fn joined(metrics: &str) -> Option<u64> {
    hosts(metrics)?["joined"].as_u64()
}

#[test]
fn hosts_are_counted_while_they_come_and_go_and_some_are_wanted() {
    let (folder, address, metrics) = (folder(), address(), free_address());
    let first = agent(&folder, &address, "h2");
    let more = ["--hosts", "1..3", "--state", "state", "--metrics", &metrics];
    // Whatever it does wants something at the second look.
    let more = [&more[..], &["--set", "hosts_more_after=0 s"]].concat();
    let more = [&more[..], &["--set", "hosts_fewer_after=0 s"]].concat();
    let running = start(&folder, &query(Some(200)), &address, &more);
    wait_until("the first host is counted", || joined(&metrics) == Some(1));
    let second = agent(&folder, &address, "h3");
    wait_until("the second host is counted", || joined(&metrics) == Some(2));
    let known = hosts(&metrics).unwrap();
    assert_eq!((&known["min"], &known["max"]), (&1.into(), &3.into()));
    // It is used from the next restart on.
    assert_eq!(known["used"], 1);
    wait_until("there is a reason", || {
        hosts(&metrics).is_some_and(|hosts| hosts["reason"] != "unknown")
    });
    let wanted = hosts(&metrics).unwrap()["wanted"].as_u64().unwrap();
    assert!((1..=3).contains(&wanted), "{wanted}");
    kill(&second, Signal::KILL);
    wait_until("the lost host is not counted", || {
        joined(&metrics) == Some(1)
    });
    let page = get(&metrics, "/metrics").unwrap();
    for (name, value) in [("wanted", None), ("used", Some(1)), ("joined", Some(1))] {
        let sample = format!("slackwater_hosts_{name}{{pipeline=\"query\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&sample));
        let found = line.unwrap_or_else(|| panic!("{sample}: {page}"));
        let found = found.parse::<u64>().unwrap();
        assert!((1..=3).contains(&found) && value.is_none_or(|value| value == found));
    }
    running.interrupt();
    running.finish(PATIENCE).ok();
    first.finish(PATIENCE).ok();
    let report = folder.json("report.json");
    let wanted = report["hosts_wanted"].as_u64().unwrap();
    assert!((1..=3).contains(&wanted), "{wanted}");
}

#[test]
fn a_query_on_one_host_says_nothing_of_hosts() {
    let (folder, metrics) = (folder(), free_address());
    let running = folder.start(&query(Some(200)), &["--metrics", &metrics]);
    wait_until("it runs", || get(&metrics, "/readyz").is_some());
    assert_eq!(get(&metrics, "/v1/hosts").unwrap(), "null\n");
    let page = get(&metrics, "/metrics").unwrap();
    assert!(!page.contains("slackwater_hosts_"), "{page}");
    running.interrupt();
    running.finish(PATIENCE).ok();
    assert_eq!(folder.json("report.json").get("hosts_wanted"), None);
}

#[test]
fn a_mark_is_there_while_an_agent_has_joined() {
    let (folder, address) = (folder(), address());
    let mark = folder.path("joined");
    // Of an agent that was killed.
    folder.write("joined", b"");
    let join = ["worker", "--join", &address, "--secret", "cluster.key"];
    let more = ["--name", "h2", "--joined", "joined"];
    let command = folder.command(&[&join[..], &more].concat());
    let agent = crate::process::Running::start_unread(command);
    wait_until("nobody listens yet", || !mark.exists());
    let more = ["--hosts", "1", "--state", "state"];
    let running = start(&folder, &query(Some(2_000)), &address, &more);
    wait_until("the agent has joined", || mark.exists());
    running.interrupt();
    running.finish(PATIENCE).ok();
    agent.finish(PATIENCE).ok();
    assert!(!mark.exists());
}

#[test]
fn a_mark_that_can_not_be_made_is_refused() {
    let (folder, address) = (folder(), address());
    let join = ["worker", "--join", &address, "--secret", "cluster.key"];
    let more = ["--joined", "missing/joined"];
    let refused = folder.slackwater(&[&join[..], &more].concat());
    refused.fails(
        1,
        &[
            "--joined missing/joined",
            "a folder that the agent may write",
        ],
    );
}
