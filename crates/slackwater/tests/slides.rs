//! The viewer of slides, the example `slides`: its query in processes of its own, whose updates are compared
//! with pixels that are read directly, its server, and its page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::functions::example;
use crate::process::{Folder, PATIENCE, Running};

#[path = "../examples/slides/bits.rs"]
mod bits;
#[path = "../examples/slides/decoder.rs"]
mod decoder;
#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../examples/slides/hub.rs"]
mod hub;
#[path = "../examples/slides/jpeg.rs"]
mod jpeg;
#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../examples/slides/pixels.rs"]
mod pixels;
#[path = "../examples/slides/planes.rs"]
mod planes;
#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../examples/slides/query.rs"]
mod query;
#[path = "../examples/slides/scan.rs"]
mod scan;
#[allow(dead_code, reason = "the example uses more of it")]
#[path = "../examples/slides/slide.rs"]
mod slide;
#[path = "../examples/slides/tiff.rs"]
mod tiff;
#[path = "../examples/slides/tissue.rs"]
mod tissue;
#[path = "../examples/slides/writer.rs"]
mod writer;

mod files;
mod jpegs;
mod server;

use hub::{Hub, Kind, Request, Update};
use query::Query;
use slide::Slide;

/// A row of an update.
#[derive(Debug, Deserialize)]
struct Row {
    block: usize,
    blocks: usize,
    done: usize,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    error: Option<String>,
    pixels: Option<String>,
}

/// The bytes of base64.
fn bytes(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |letter: u8| digits.iter().position(|&digit| digit == letter).unwrap() as u32;
    let letters = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(letters.len() * 3 / 4);
    for four in letters.chunks(4) {
        let bits = four
            .iter()
            .fold(0, |bits, &letter| bits << 6 | value(letter));
        let bits = bits << (6 * (4 - four.len())) << 8;
        bytes.extend(&bits.to_be_bytes()[..four.len() * 3 / 4]);
    }
    bytes
}

/// A slide in a folder: 700 × 531 pixels in tiles of 128, so that edges are not those of tiles, and a level
/// of a quarter of that.
fn slide(folder: &Folder) -> PathBuf {
    let path = folder.path("slide.tif");
    let plan = writer::Plan {
        width: 700,
        height: 531,
        tile: 128,
        quality: 85,
        seed: 7,
    };
    plan.write(&path).unwrap();
    path
}

fn request(number: i64, level: i64, place: [i64; 4], blocks: Option<i64>) -> Request {
    let [x, y, width, height] = place;
    Request {
        viewer: "test".to_string(),
        request: number,
        level,
        x,
        y,
        width,
        height,
        blocks,
    }
}

/// The pixels of a request, read directly: its whole rectangle first, which is then halved.
fn direct(slide: &Slide, request: &Request) -> Vec<u8> {
    let (number, halvings) = slide.level_for(request.level as u32).unwrap();
    let level = &slide.levels()[number];
    let across = level.width.div_ceil(level.tile_width) as usize;
    let [left, top, mut width, mut height] = [request.x, request.y, request.width, request.height]
        .map(|side| (side as usize) << halvings);
    let (tile_width, tile_height) = (level.tile_width as usize, level.tile_height as usize);
    let mut tiles = BTreeMap::new();
    let mut pixels = Vec::new();
    for y in top..top + height {
        for x in left..left + width {
            let tile = y / tile_height * across + x / tile_width;
            let tile = tiles
                .entry(tile)
                .or_insert_with(|| slide.tile(number, tile).unwrap());
            let at = (y % tile_height * tile_width + x % tile_width) * 3;
            pixels.extend(&tile[at..at + 3]);
        }
    }
    for _ in 0..halvings {
        pixels = pixels::halve(&pixels, width, height);
        (width, height) = (width / 2, height / 2);
    }
    pixels
}

/// The rows of an update.
fn rows(updates: &Receiver<Update>) -> Vec<Row> {
    let mut rows = Vec::new();
    loop {
        let update = updates
            .recv_timeout(PATIENCE)
            .expect("another row of the update");
        rows.push(serde_json::from_str::<Row>(&update.line).unwrap());
        if update.is_last {
            return rows;
        }
    }
}

/// The pixels of an update, put together.
fn assembled(rows: &[Row], request: &Request) -> Vec<u8> {
    let (width, height) = (request.width as usize, request.height as usize);
    let mut pixels = vec![0; width * height * 3];
    let mut there = vec![false; width * height];
    for row in rows {
        assert_eq!(row.error, None);
        let block = bytes(row.pixels.as_ref().unwrap());
        assert_eq!(block.len(), row.width * row.height * 3);
        for (line, part) in block.chunks_exact(row.width * 3).enumerate() {
            let at = (row.y + line) * width + row.x;
            pixels[at * 3..at * 3 + part.len()].copy_from_slice(part);
            assert!(
                !there[at..at + row.width].contains(&true),
                "blocks don't overlap"
            );
            there[at..at + row.width].fill(true);
        }
    }
    assert!(!there.contains(&false), "blocks cover the request");
    pixels
}

/// Requests of all kinds: whole levels, parts, single pixels, levels of the file and between them.
fn requests() -> Vec<(Kind, Request)> {
    let whole = [(700, 531), (350, 265), (175, 132), (87, 66), (43, 33)];
    let mut requests = Vec::new();
    for (level, (width, height)) in (0..).zip(whole) {
        requests.push((Kind::Complete, [level, 0, 0, width, height]));
        requests.push((
            Kind::Partial,
            [level, width / 3, height / 5, width / 2, height / 2],
        ));
        requests.push((Kind::Partial, [level, width - 1, height - 1, 1, 1]));
    }
    let numbered = requests.into_iter().zip(1..);
    let requests = numbered.map(|((kind, [level, x, y, width, height]), number)| {
        (kind, request(number, level, [x, y, width, height], None))
    });
    requests.collect()
}

/// Asks for all at once, and compares what comes with the slide.
fn check(hub: &Hub, slide: &Slide) {
    let requests = requests();
    let asked = requests
        .iter()
        .map(|(kind, request)| hub.ask(*kind, request).unwrap());
    let asked = asked.collect::<Vec<Receiver<Update>>>();
    for ((_, request), updates) in requests.iter().zip(&asked) {
        let rows = rows(updates);
        assert!(
            rows.iter().all(|row| row.blocks == rows.len()),
            "{request:?}"
        );
        assert!(
            assembled(&rows, request) == direct(slide, request),
            "the pixels of {request:?} differ"
        );
    }
}

fn start(program: &Path, folder: &Folder, hub: &Hub, arguments: &[&str]) -> Query {
    let slide = folder.path("slide.tif");
    let text = query::text(None, slide.to_str().unwrap(), hub).unwrap();
    let arguments = arguments.iter().map(|argument| (*argument).to_string());
    Query::start(program, &text, &arguments.collect::<Vec<String>>()).unwrap()
}

#[test]
fn updates_are_the_pixels_of_the_slide_however_the_query_runs() {
    let Some(program) = example("slides") else {
        return;
    };
    let folder = Folder::new();
    let slide = Slide::open(slide(&folder).to_str().unwrap()).unwrap();
    assert_eq!(slide.levels().len(), 2);
    for arguments in [
        ["--parallelism", "1", "--workers", "1"].as_slice(),
        &["--parallelism", "3", "--workers", "2"],
        &["--parallelism", "2", "--processes", "2", "--link", "tcp"],
        &["--parallelism", "2", "--processes", "2", "--link", "shm"],
        &["--set", "balancer=round_robin"],
        &["--set", "order=keep"],
        &["--set", "latency_target=20ms"],
    ] {
        let hub = Hub::listen(0).unwrap();
        let query = start(&program, &folder, &hub, arguments);
        check(&hub, &slide);
        // Numbers may be used again once an update is complete.
        check(&hub, &slide);
        drop(query);
    }
}

#[test]
fn an_update_is_completed_when_the_query_is_killed() {
    let Some(program) = example("slides") else {
        return;
    };
    let folder = Folder::new();
    let slide = Slide::open(slide(&folder).to_str().unwrap()).unwrap();
    let state = folder.path("state");
    let hub = Hub::listen(0).unwrap();
    let arguments = [
        "--state",
        state.to_str().unwrap(),
        "--set",
        "checkpoint_interval=20ms",
    ];
    let query = start(&program, &folder, &hub, &arguments);
    for kill in 0..3 {
        let requests = requests();
        let asked = requests
            .iter()
            .map(|(kind, request)| hub.ask(*kind, request).unwrap());
        let asked = asked.collect::<Vec<Receiver<Update>>>();
        let first = asked[0].recv_timeout(PATIENCE).unwrap();
        let mut first = vec![serde_json::from_str::<Row>(&first.line).unwrap()];
        std::thread::sleep(std::time::Duration::from_millis(kill * 30));
        let killed = query.process().unwrap();
        kill_process(Pid::from_raw(killed as i32).unwrap(), Signal::KILL).unwrap();
        for ((_, request), updates) in requests.iter().zip(&asked) {
            let mut found = std::mem::take(&mut first);
            found.extend(rows(updates));
            assert!(
                assembled(&found, request) == direct(&slide, request),
                "{request:?}"
            );
        }
        let until = std::time::Instant::now() + PATIENCE;
        while query.process() == Some(killed) {
            assert!(
                std::time::Instant::now() < until,
                "another process continues"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_request_that_is_wrong_and_a_damaged_tile_fail_alone() {
    let Some(program) = example("slides") else {
        return;
    };
    let folder = Folder::new();
    let path = slide(&folder);
    let whole = Slide::open(path.to_str().unwrap()).unwrap();
    // Tile 8 is the third of the second row.
    files::damage(&path, 8);
    let hub = Hub::listen(0).unwrap();
    let _query = start(&program, &folder, &hub, &["--parallelism", "2"]);
    let errors = |request: Request| {
        let found = rows(&hub.ask(Kind::Complete, &request).unwrap());
        let errors = found.iter().filter_map(|row| row.error.clone());
        (found.len(), errors.collect::<Vec<String>>())
    };
    let wrong = |number: i64, level: i64, place: [i64; 4], expected: &str| {
        let (rows, errors) = errors(request(number, level, place, None));
        assert_eq!((rows, errors.len()), (1, 1), "{errors:?}");
        assert!(errors[0].contains(expected), "{}", errors[0]);
    };
    wrong(1, 9, [0, 0, 1, 1], "level 9 is not one of 0 to 6");
    wrong(2, -1, [0, 0, 1, 1], "level -1 is not one of 0 to 6");
    wrong(
        3,
        0,
        [0, 0, 701, 1],
        "701 x 1 pixels at (0, 0) are not inside of level 0, 700 x 531 pixels",
    );
    wrong(
        4,
        0,
        [-1, 0, 5, 5],
        "5 x 5 pixels at (-1, 0) are not inside",
    );
    wrong(5, 0, [0, 0, 0, 5], "0 x 5 pixels");
    wrong(
        6,
        2,
        [0, i64::from(i32::MAX), 5, 5],
        "are not inside of level 2, 175 x 132 pixels",
    );
    let all = request(7, 0, [0, 0, 700, 531], None);
    let (rows_of_all, damaged) = errors(all.clone());
    assert_eq!(
        (rows_of_all, damaged.len()),
        (30, 1),
        "the other tiles come"
    );
    assert!(
        damaged[0].contains("slide.tif: directory 0, tile 8 (at byte "),
        "{}",
        damaged[0]
    );
    assert!(
        damaged[0].contains("not a valid JPEG stream"),
        "{}",
        damaged[0]
    );
    // At most so many blocks, the first ones.
    let few = Request {
        request: 8,
        blocks: Some(3),
        ..all
    };
    let found = rows(&hub.ask(Kind::Partial, &few).unwrap());
    let mut blocks = found
        .iter()
        .map(|row| (row.block, row.blocks))
        .collect::<Vec<_>>();
    blocks.sort_unstable();
    assert_eq!(blocks, [(0, 3), (1, 3), (2, 3)]);
    let mut done = found.iter().map(|row| row.done).collect::<Vec<usize>>();
    done.sort_unstable();
    assert_eq!(done, [1, 2, 3]);
    // Requests around the damaged tile are whole.
    let beside = request(9, 0, [0, 0, 128, 531], None);
    let found = rows(&hub.ask(Kind::Complete, &beside).unwrap());
    assert!(assembled(&found, &beside) == direct(&whole, &beside));
}

/// What EXPLAIN says of the query.
#[test]
fn blocks_are_dealt_among_copies_by_demand() {
    let Some(program) = example("slides") else {
        return;
    };
    let folder = Folder::new();
    let slide = slide(&folder);
    let hub = Hub::listen(0).unwrap();
    let text = query::text(None, slide.to_str().unwrap(), &hub).unwrap();
    folder.write("slides.sql", text.as_bytes());
    let explain = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&program);
        let command = command.args(["explain", "slides.sql"]).args(arguments);
        let output = command.current_dir(folder.path("")).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    for arguments in [[].as_slice(), &["--set", "balancer=demand"]] {
        let dealt = explain(arguments);
        let has_line = |parts: &[&str]| {
            let mut lines = dealt.lines();
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        assert!(has_line(&["union", "2 inputs", "by demand"]), "{dealt}");
        // The copies run the union: one of its own would be a hop more, and would deal for both sources.
        assert!(
            has_line(&["union #", "-> operator #", "(3 instances)"]),
            "{dealt}"
        );
    }
    let in_turn = explain(&["--set", "balancer=round_robin"]);
    assert!(
        in_turn.contains("in turn") && !in_turn.contains("by demand"),
        "{in_turn}"
    );
    let kept = explain(&["--set", "order=keep"]);
    assert!(
        !kept.contains("by demand") && !kept.contains("in turn"),
        "{kept}"
    );
}

/// A server of the example.
fn served(program: &Path, folder: &Folder, arguments: &[&str]) -> (Running, String) {
    let mut command = std::process::Command::new(program);
    command
        .args([
            "serve",
            "--slide",
            "slide.tif",
            "--listen",
            "127.0.0.1:0",
            "--ports",
            "0",
        ])
        .args(arguments)
        .current_dir(folder.path(""))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let server = Running::start(command);
    let line = server.line();
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{line}")).to_string();
    (server, address)
}
