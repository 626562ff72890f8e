//! Clients at an open door.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn schema() -> TableSchema {
    let column = |name: &str, is_plain| Column {
        name: name.into(),
        is_plain,
    };
    TableSchema {
        name: "totals".into(),
        columns: vec![column("ip", false), column("visits", true)],
        key: vec![0],
    }
}

fn open(password: Option<&str>) -> (Door, Feed) {
    let options = Options {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        password: password.map(str::to_owned),
        role: Box::new(|offset| RoleAnswer::Master {
            offset,
            replicas: Vec::new(),
        }),
        cores: SplitCores::default(),
    };
    let (door, feed) = Door::open(options, vec![schema()]).unwrap();
    feed.apply(0, vec![Change::Clear]).unwrap();
    let mut client = Redis::connect(&door);
    let password = password.map(|password| format!("AUTH {password}"));
    password.inspect(|password| assert_eq!(client.ask(password), "+OK"));
    client.wait_for("DBSIZE", ":0");
    (door, feed)
}

fn put(ip: &str, visits: &str) -> Change {
    let values = [ip, visits].map(|value| Some(value.as_bytes().into()));
    Change::Put(key_of("totals", [Some(ip.as_bytes())]), Arc::new(values))
}

struct Redis {
    reader: BufReader<TcpStream>,
}

impl Redis {
    fn connect(door: &Door) -> Redis {
        let socket = TcpStream::connect(door.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Redis {
            reader: BufReader::new(socket),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    /// A reply, as it would be shown.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "$" => {
                let Ok(length) = rest.parse::<usize>() else {
                    return "nil".to_owned();
                };
                let mut bytes = vec![0; length + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes[..length].to_vec()).unwrap()
            }
            "*" | "%" => {
                let count = rest.parse::<usize>().unwrap() * if kind == "%" { 2 } else { 1 };
                let all = (0..count).map(|_| self.reply()).collect::<Vec<_>>();
                format!("[{}]", all.join(" "))
            }
            _ => line.trim_end().to_owned(),
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        self.reply()
    }

    fn wait_for(&mut self, command: &str, expected: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.ask(command);
            if said == expected {
                return;
            }
            assert!(
                Instant::now() < until,
                "{command}: {said}, and not {expected}"
            );
        }
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.reader.read(&mut [0; 100]), Ok(0) | Err(_))
    }
}

#[test]
fn rows_are_read_as_they_change() {
    let (door, feed) = open(None);
    let mut client = Redis::connect(&door);
    assert_eq!(client.ask("GET totals:10.0.0.1"), "nil");
    feed.apply(0, vec![put("10.0.0.1", "7"), put("a:b", "1")])
        .unwrap();
    client.wait_for("DBSIZE", ":2");
    for (command, expected) in [
        ("GET totals:10.0.0.1", "7"),
        ("HGETALL totals:10.0.0.1", "[ip 10.0.0.1 visits 7]"),
        ("HGET totals:10.0.0.1 visits", "7"),
        ("HGET totals:10.0.0.1 other", "nil"),
        ("HMGET totals:10.0.0.1 visits other", "[7 nil]"),
        ("MGET totals:10.0.0.1 totals:a%3Ab totals:c", "[7 1 nil]"),
        ("EXISTS totals:10.0.0.1 totals:c totals:10.0.0.1", ":2"),
        ("TYPE totals:10.0.0.1", "+hash"),
        ("STRLEN totals:10.0.0.1", ":1"),
        ("HLEN totals:10.0.0.1", ":2"),
        ("HKEYS totals:10.0.0.1", "[ip visits]"),
        ("TTL totals:c", ":-2"),
        ("ping", "+PONG"),
        ("ECHO x", "x"),
        ("SELECT 0", "+OK"),
        ("READONLY", "+OK"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "me"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        (
            "SET a b",
            "-READONLY You can't write to a materialized view: its query does",
        ),
        ("NOTHING", "-ERR unknown command 'NOTHING'"),
    ] {
        assert_eq!(client.ask(command), expected, "{command}");
    }
    assert!(client.ask("INFO keyspace").contains("view_totals:rows=2"));
    assert!(client.ask("ROLE").starts_with("[master :"));
    feed.apply(
        0,
        vec![
            put("10.0.0.1", "8"),
            Change::Remove(key_of("totals", [Some(&b"a:b"[..])])),
        ],
    )
    .unwrap();
    client.wait_for("MGET totals:10.0.0.1 totals:a%3Ab", "[8 nil]");
    feed.apply(0, vec![Change::Clear]).unwrap();
    client.wait_for("DBSIZE", ":0");
    drop(door);
    assert_eq!(feed.apply(0, vec![Change::Clear]), Err(FeedClosed));
    assert!(client.has_ended());
}

#[test]
fn a_scan_finds_each_row_once() {
    let (door, feed) = open(None);
    let names = (0..5000).map(|row| format!("{row}"));
    let changes = names.map(|name| put(&name, "1"));
    feed.apply(0, changes.collect()).unwrap();
    let mut client = Redis::connect(&door);
    client.wait_for("DBSIZE", ":5000");
    for (options, count) in [
        ("", 5000),
        (" MATCH totals:49?? COUNT 500", 100),
        (" TYPE string", 0),
    ] {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let said = client.ask(&format!("SCAN {cursor}{options}"));
            let (next, keys) = said[1..].split_once(" [").unwrap();
            let keys = keys.trim_end_matches(']');
            found.extend(
                keys.split(' ')
                    .filter(|key| !key.is_empty())
                    .map(str::to_owned),
            );
            cursor = next.to_owned();
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        let all = found.len();
        found.dedup();
        assert_eq!((all, found.len()), (count, count), "{options}");
    }
}

#[test]
fn replies_keep_the_order_of_a_pipeline_that_is_longer_than_every_ring() {
    let (door, feed) = open(None);
    feed.apply(0, vec![put("a", "1")]).unwrap();
    let mut client = Redis::connect(&door);
    client.wait_for("DBSIZE", ":1");
    const COMMANDS: usize = 30_000;
    let mut writer = client.reader.get_ref().try_clone().unwrap();
    let sends = std::thread::spawn(move || {
        for number in 0..COMMANDS {
            let command = match number % 3 {
                0 => format!("ECHO {number}\r\n"),
                1 => "GET totals:a\r\n".to_owned(),
                _ => "WRONG\r\n".to_owned(),
            };
            writer.write_all(command.as_bytes()).unwrap();
        }
    });
    for number in 0..COMMANDS {
        let expected = match number % 3 {
            0 => number.to_string(),
            1 => "1".to_owned(),
            _ => "-ERR unknown command 'WRONG'".to_owned(),
        };
        assert_eq!(client.reply(), expected);
    }
    sends.join().unwrap();
}

/// A client that sends and does not read holds nobody up, and gets everything when it reads.
#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let (door, feed) = open(None);
    let long = "x".repeat(100_000);
    feed.apply(0, vec![put("a", &long)]).unwrap();
    let mut other = Redis::connect(&door);
    other.wait_for("DBSIZE", ":1");
    let mut slow = Redis::connect(&door);
    let writer = slow.reader.get_ref().try_clone().unwrap();
    writer.set_nonblocking(true).unwrap();
    // Until it is not read from: the kernel takes some megabytes of commands first, on both sides.
    let command = b"GET totals:a\r\n".repeat(100);
    let (mut sent, until) = (0, Instant::now() + PATIENCE);
    let mut refused = 0;
    while refused < 200 {
        match (&writer).write(&command[sent % command.len()..]) {
            Ok(count) => (sent, refused) = (sent + count, 0),
            Err(_) => {
                refused += 1;
                assert_eq!(other.ask("PING"), "+PONG");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(
            Instant::now() < until,
            "{sent} bytes of commands were taken"
        );
    }
    writer.set_nonblocking(false).unwrap();
    for _ in 0..sent / 14 {
        assert_eq!(slow.reply().len(), 100_000);
    }
}

#[test]
fn a_password_is_asked_for() {
    let (door, feed) = open(Some("open sesame".replace(' ', "-").as_str()));
    feed.apply(0, vec![put("a", "1")]).unwrap();
    let mut client = Redis::connect(&door);
    assert_eq!(
        client.ask("GET totals:a"),
        "-NOAUTH Authentication required."
    );
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH"));
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(client.ask("AUTH default open-sesame"), "+OK");
    client.wait_for("GET totals:a", "1");
    let mut other = Redis::connect(&door);
    let said = other.ask("HELLO 3 AUTH default open-sesame SETNAME x");
    assert!(said.contains("proto :3"), "{said}");
    assert_eq!(other.ask("GET totals:none"), "_");
    let (door, _feed) = open(None);
    assert!(
        Redis::connect(&door)
            .ask("AUTH x")
            .contains("this server has none")
    );
}

#[test]
fn strangers_are_told_and_left() {
    let (door, _feed) = open(None);
    for (bytes, expected) in [
        (
            &b"*x\r\n"[..],
            "-ERR Protocol error: invalid multibulk length",
        ),
        (
            b"*1\r\n$9999999\r\n",
            "-ERR Protocol error: invalid bulk length",
        ),
        (
            &[b'x'; 70_000],
            "-ERR Protocol error: too big inline request",
        ),
    ] {
        let mut client = Redis::connect(&door);
        client.send(bytes);
        assert_eq!(client.reply(), expected);
        assert!(client.has_ended());
    }
    let mut client = Redis::connect(&door);
    client.send(b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(
        (client.reply(), client.reply()),
        ("+PONG".into(), "+OK".into())
    );
    assert!(client.has_ended());
    // Half a command, and gone.
    for _ in 0..200 {
        let mut client = Redis::connect(&door);
        client.send(b"*2\r\n$3\r\nGET\r\n$100\r\nab");
    }
    let mut client = Redis::connect(&door);
    client.wait_for("PING", "+PONG");
    let until = Instant::now() + PATIENCE;
    while !client.ask("INFO clients").contains("connected_clients:1\r") {
        assert!(Instant::now() < until, "{}", client.ask("INFO clients"));
    }
}

#[test]
fn rows_that_never_came_are_not_said_to_be_missing() {
    let master = Some((Ipv4Addr::LOCALHOST, 6380).into());
    let options = Options {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        password: None,
        role: Box::new(move |offset| RoleAnswer::Replica {
            master,
            is_connected: offset > 0,
            offset,
        }),
        cores: SplitCores::default(),
    };
    let others = TableSchema {
        name: "others".into(),
        ..schema()
    };
    let (door, feed) = Door::open(options, vec![schema(), others]).unwrap();
    let mut client = Redis::connect(&door);
    assert_eq!(client.ask("ROLE"), "[slave 127.0.0.1 :6380 connect :0]");
    feed.apply(0, vec![put("10.0.0.1", "7")]).unwrap();
    client.wait_for("ROLE", "[slave 127.0.0.1 :6380 connected :24]");
    for command in ["GET totals:10.0.0.1", "DBSIZE", "EXISTS others:1"] {
        let said = client.ask(command);
        assert!(said.starts_with("-LOADING"), "{command}: {said}");
    }
    assert!(client.ask("INFO persistence").contains("loading:1"));
    assert!(client.ask("GET").contains("wrong number"));
    assert_eq!(client.ask("PING"), "+PONG");
    // Both at once: whoever sees one sees the other.
    let both = vec![(0, vec![put("10.0.0.1", "8")]), (1, vec![Change::Clear])];
    feed.apply_all(both).unwrap();
    client.wait_for("GET totals:10.0.0.1", "8");
    assert!(client.ask("INFO persistence").contains("loading:0"));
    let said = client.ask("INFO replication");
    for line in [
        "role:slave",
        "master_port:6380",
        "master_link_status:up",
        "slave_repl_offset:",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn those_that_follow_are_listed() {
    let replicas = vec![((Ipv4Addr::LOCALHOST, 6381).into(), 11)];
    let master = RoleAnswer::Master {
        offset: 12,
        replicas,
    };
    let said = master.info().join("\n");
    let line = "slave0:ip=127.0.0.1,port=6381,state=online,offset=11,lag=0";
    assert!(
        said.contains("connected_slaves:1") && said.contains(line),
        "{said}"
    );
}

#[test]
fn random_bytes_are_commands_or_an_error() {
    let mut random = fastrand::Rng::with_seed(7);
    let pieces: [&[u8]; 9] = [
        b"*",
        b"$",
        b"1",
        b"3",
        b"\r\n",
        b"GET",
        b"\n",
        b" ",
        b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    ];
    for _ in 0..3000 {
        let mut bytes = Vec::new();
        for _ in 0..random.usize(0..12) {
            match random.u8(0..4) {
                0 => bytes.push(random.u8(..)),
                _ => bytes.extend_from_slice(pieces[random.usize(..pieces.len())]),
            }
        }
        fuzz::fuzz_requests(&bytes);
    }
}
