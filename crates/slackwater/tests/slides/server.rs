//! The server and its page, by clients over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;

use super::{Row, Slide, assembled, direct, example, request, served, slide};
use crate::process::{Folder, PATIENCE};

/// The status line and the body of an answer.
fn get(address: &str, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_string(), body.to_string())
}

#[test]
fn a_page_and_views_are_served() {
    let Some(program) = example("slides") else {
        return;
    };
    let folder = Folder::new();
    let slide = Slide::open(slide(&folder).to_str().unwrap()).unwrap();
    let (server, address) = served(&program, &folder, &[]);
    let (status, page) = get(&address, "/");
    assert!(
        status.contains("200") && page.contains("<canvas"),
        "{status}"
    );
    let (_, shape) = get(&address, "/slide.json");
    let shape = serde_json::from_str::<serde_json::Value>(&shape).unwrap();
    assert_eq!(
        (&shape["width"], &shape["height"]),
        (&700.into(), &531.into())
    );
    assert_eq!(shape["levels"][1]["halvings"], 2);
    let threads = (1..6).map(|number| {
        let address = address.clone();
        std::thread::spawn(move || {
            let path = format!(
                "/view?viewer=v{number}&request=1&kind=complete&level=1&x={number}&y=3&width=200&height=150"
            );
            get(&address, &path)
        })
    });
    let threads = threads.collect::<Vec<_>>();
    for (number, thread) in (1..).zip(threads) {
        let (status, body) = thread.join().unwrap();
        assert!(status.contains("200"), "{status} {body}");
        let rows = body
            .lines()
            .map(|line| serde_json::from_str::<Row>(line).unwrap());
        let request = request(1, 1, [number, 3, 200, 150], None);
        assert!(assembled(&rows.collect::<Vec<Row>>(), &request) == direct(&slide, &request));
    }
    let fails = |path: &str, status: &str, reason: &str| {
        let (said, body) = get(&address, path);
        assert!(
            said.contains(status) && body.contains(reason),
            "{path}: {said} {body}"
        );
    };
    fails("/other", "404", "/view");
    fails("/view?viewer=a", "400", "kind: must be complete or partial");
    fails(
        "/view?viewer=a&kind=partial&request=1",
        "400",
        "the parameter 'level' is missing",
    );
    fails(
        "/view?viewer=a&kind=partial&request=x",
        "400",
        "request: 'x' is not a whole number",
    );
    fails("/view?viewer=a%22&kind=partial", "400", "viewer: must have");
    let outside = "/view?viewer=a&kind=partial&request=2&level=0&x=0&y=0&width=9000&height=1";
    fails(outside, "200", "are not inside of level 0");
    check_page(&address);
    server.signal(Signal::TERM);
    assert_eq!(server.finish(PATIENCE).code, Some(0));
}

/// The page's own functions against the server, where there is node.
fn check_page(address: &str) {
    if Command::new("node").arg("--version").output().is_err() {
        eprintln!("skipped: no node to check the page's script");
        return;
    }
    let here = env!("CARGO_MANIFEST_DIR");
    let mut node = Command::new("node");
    node.arg(format!("{here}/tests/slides/page.js"));
    node.arg(format!("{here}/examples/slides/page.html"))
        .arg(address);
    let output = node.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "checked\n");
}

#[test]
fn a_server_says_what_is_wrong_with_its_options() {
    let Some(program) = example("slides") else {
        return;
    };
    let folder = Folder::with(&[("text.tif", "no slide")]);
    let fails = |arguments: &[&str], expected: &str| {
        let output = Command::new(&program)
            .args(arguments)
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    fails(
        &["serve", "--slide", "text.tif"],
        "error: text.tif: not a valid TIFF",
    );
    fails(
        &["serve", "--slide", "none.tif"],
        "error: none.tif: No such file",
    );
    fails(
        &["serve", "--slides", "x"],
        "--slides is not an option; there are --slide, ",
    );
    fails(&["serve", "--slide"], "--slide needs a value");
    fails(
        &["generate", "--tile", "100", "x.tif"],
        "--tile 100: must be a multiple of 16",
    );
    fails(
        &["generate", "--width", "many", "x.tif"],
        "--width: 'many' is not a valid number",
    );
    fails(&["generate"], "needs the name of one file");
    fails(&["info", "text.tif"], "not a valid TIFF");
    fails(
        &["info", "--all"],
        "--all is not an option; there are --help",
    );
    slide(&folder);
    let far = ["serve", "--slide", "slide.tif", "--listen", "0.0.0.0:0"];
    fails(
        &far,
        "--listen 0.0.0.0:0: must be an address of this host alone",
    );
    // The query says what is wrong, and is not started again.
    let near = [
        "serve",
        "--slide",
        "slide.tif",
        "--listen",
        "127.0.0.1:0",
        "--ports",
        "0",
    ];
    let wrong = [&near[..], &["--", "--paralelism", "2"]].concat();
    fails(&wrong, "--parallelism");
    fails(&wrong, "error: the query can't run as it is: see above");
    let help = Command::new(&program)
        .args(["serve", "--help"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&help.stdout);
    assert!(
        help.status.success() && said.contains("slides generate FILE"),
        "{said}"
    );
}
