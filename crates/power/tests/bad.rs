//! Bad input: each is told with its place, what is wrong, and how to fix it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::fake::Fake;
use crate::manager::{Place, eventually};

fn told(place: &Place, arguments: &[&str], code: i32, what: &str) {
    let output = place.run(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.contains(what), "{arguments:?}: {text}");
    assert!(text.contains("error: "), "{arguments:?}: {text}");
}

#[test]
fn the_command_line_is_checked() {
    let place = Place::new();
    told(&place, &[], 2, "no server is named");
    told(&place, &["127.0.0.1:6379"], 2, "has no scheme");
    told(
        &place,
        &["redis://user:hidden@127.0.0.1:1"],
        2,
        "every user of this host",
    );
    told(
        &place,
        &["redis://127.0.0.1:1", "--lag", "20"],
        2,
        "'20' is not a valid duration",
    );
    told(
        &place,
        &["redis://127.0.0.1:1", "--lag", "100us"],
        2,
        "2 ms are the least",
    );
    told(
        &place,
        &["redis://127.0.0.1:1", "--metrics", "0.0.0.0:1"],
        2,
        "on this host only",
    );
    told(
        &place,
        &["redis://127.0.0.1:1", "--bogus"],
        2,
        "unexpected argument",
    );
    told(
        &place,
        &["promote", "nowhere"],
        2,
        "invalid value 'nowhere'",
    );
    told(&place, &["status"], 1, "is a manager running?");
    told(&place, &["head", "0", "1"], 2, "no server is named");
    told(
        &place,
        &["redis://127.0.0.1:1", "head", "0", "1"],
        2,
        "is started by slackwater-power only",
    );
}

#[test]
fn the_configuration_is_checked() {
    for (config, place_of, what) in [
        ("lagg = \"20 ms\"\n", "power.toml:1", "unknown field `lagg`"),
        (
            "[slow]\nfloor = \"1 GHs\"\n",
            "power.toml:2",
            "'1 GHs' is not a valid frequency",
        ),
        (
            "[slow]\nfloor = \"9 GHz\"\n",
            "[slow]",
            "floor 9.00 GHz is out of range",
        ),
        (
            "[cores]\nfast = \"1\"\nslow = \"1-2\"\n",
            "power.toml",
            "cores 1 are listed as fast and slow",
        ),
    ] {
        let place = Place::new();
        fs::write(place.path().join("power.toml"), config).unwrap();
        told(&place, &["redis://127.0.0.1:1"], 2, what);
        told(&place, &["redis://127.0.0.1:1"], 2, place_of);
    }
    let place = Place::new();
    let config = "[[redis]]\nurl = \"redis://127.0.0.1:1\"\npassword_file = \"/missing/secret\"\n";
    fs::write(place.path().join("power.toml"), config).unwrap();
    told(&place, &[], 2, "/missing/secret");
    let config = "[[redis]]\nurl = \"redis://127.0.0.1:1\"\n[cores]\nslow = \"9\"\n";
    fs::write(place.path().join("power.toml"), config).unwrap();
    told(&place, &[], 2, "cpu9");
    fs::remove_file(place.path().join("power.toml")).unwrap();
    told(&place, &[], 2, "power.toml");
}

#[test]
fn a_journal_that_can_t_be_written_stops_the_start() {
    let place = Place::new();
    fs::write(place.path().join("run"), "a file").unwrap();
    told(&place, &["redis://127.0.0.1:1"], 1, "journal");
}

/// What a server answers that is none.
const HOSTILE: [&[u8]; 10] = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\0\xff\xfe",
    b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
    b"$99999999999999\r\n",
    b"*2147483647\r\n",
    b"*6\r\n",
    b"-NOAUTH Authentication required.\r\n",
    b"*3\r\n$6\r\nmaster\r\n:-7\r\n*1\r\n*3\r\n$1\r\n?\r\n$5\r\n99999\r\n$1\r\n0\r\n",
    b"*5\r\n$5\r\nslave\r\n$0\r\n\r\n:99999\r\n$9\r\nconnected\r\n:1\r\n",
];

#[test]
fn hostile_servers_change_nothing_and_end_nothing() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, served) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for at in 0.. {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(HOSTILE[at % HOSTILE.len()]);
            if sender.send(at).is_err() {
                return;
            }
        }
    });
    // A good server beside it is managed all the same.
    let master = Fake::master();
    let good = format!("redis://{}", master.address);
    let mut manager = place.manage(address, &[&good]);
    let mut count = 0;
    eventually("all answers were tried", || {
        count += served.try_iter().count();
        count >= HOSTILE.len()
    });
    eventually("the good one is managed", || {
        place.status().is_some_and(|status| {
            let mut servers = status.servers.iter();
            servers.any(|server| {
                server.address == master.address.to_string() && server.pid == Some(master.pid())
            })
        })
    });
    assert!(place.is_as_found());
    assert_eq!(manager.stop(), Some(0));
}
