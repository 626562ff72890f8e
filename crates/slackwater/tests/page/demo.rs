//! `slackwater demo`, and what it promises: the page, and the same answer after `kill -9`.

use crate::process::Folder;

#[test]
fn the_demo_runs_without_files_and_ends_in_time() {
    let folder = Folder::new();
    let demo = ["demo", "--duration", "2s", "--rate", "5000", "--no-browser"];
    let ended = folder.slackwater(&demo).ok();
    assert!(
        ended.err.contains("page at http://127.0.0.1:"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("Open the page"), "{}", ended.err);
    assert!(ended.err.contains("target"), "{}", ended.err);
    assert!(folder.names().is_empty(), "it leaves nothing behind");
}

#[test]
fn without_a_page_the_demo_prints_windows() {
    let folder = Folder::new();
    let demo = ["demo", "--duration", "3s", "--rate", "5000", "--no-page"];
    let ended = folder.slackwater(&demo).ok();
    assert!(!ended.err.contains("page at"), "{}", ended.err);
    let mut lines = ended.out.lines();
    let titles = lines.next().unwrap_or_default();
    let titles = titles.split_whitespace().collect::<Vec<_>>();
    assert_eq!(titles, ["window_start", "bids", "auctions", "highest"]);
    let first = lines.next().unwrap_or_default();
    assert!(
        first.contains(" 4600 "),
        "92 of 100 events are bids: {first}"
    );
}

#[test]
fn a_killed_demo_has_the_same_answer() {
    let folder = Folder::new();
    let demo = [
        "demo",
        "--kill",
        "--duration",
        "6s",
        "--rate",
        "3000",
        "--no-browser",
    ];
    let mut command = folder.command(&demo);
    let temporary = folder.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let output = command.env("TMPDIR", &temporary).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("kill -9 ").count(), 2, "{said}");
    assert_eq!(
        said.matches("page at http://127.0.0.1:").count(),
        3,
        "{said}"
    );
    assert!(said.contains("The same answer as undisturbed: "), "{said}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{said}");
}
