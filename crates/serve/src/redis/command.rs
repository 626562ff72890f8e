//! What commands answer.

use super::options::RoleAnswer;
use super::reply::{Reply, Version};
use super::table::{PARTS, Row, Tables};

/// How many keys one step of a scan looks at, unless the client says: as Redis.
const SCAN_COUNT: usize = 10;

/// The most keys that a client may ask for in one step: a part more than that is the answer's limit.
const SCAN_COUNT_MAX: usize = 10_000;

/// Commands that change something in Redis: nothing changes a view but its query.
const WRITES: &[&str] = &[
    "APPEND",
    "COPY",
    "DECR",
    "DECRBY",
    "DEL",
    "EXPIRE",
    "EXPIREAT",
    "FLUSHALL",
    "FLUSHDB",
    "GETDEL",
    "GETEX",
    "GETSET",
    "HDEL",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HMSET",
    "HSET",
    "HSETNX",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "LPOP",
    "LPUSH",
    "LREM",
    "LSET",
    "LTRIM",
    "MOVE",
    "MSET",
    "MSETNX",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PSETEX",
    "RENAME",
    "RENAMENX",
    "RESTORE",
    "RPOP",
    "RPUSH",
    "SADD",
    "SET",
    "SETBIT",
    "SETEX",
    "SETNX",
    "SETRANGE",
    "SPOP",
    "SREM",
    "SWAPDB",
    "UNLINK",
    "XADD",
    "XDEL",
    "XTRIM",
    "ZADD",
    "ZINCRBY",
    "ZREM",
];

/// Who a client is, as far as commands care.
#[derive(Default)]
pub(super) struct Client {
    pub number: u64,
    pub version: Version,
    pub is_known: bool,
    pub name: Vec<u8>,
}

/// What a server is, as far as commands say it.
pub(super) struct Server<'a> {
    pub tables: &'a Tables,
    pub password: Option<&'a str>,
    pub role: &'a dyn Fn() -> RoleAnswer,
    pub port: u16,
    pub clients: usize,
    pub uptime_s: u64,
}

/// The reply, and whether the connection ends after it.
pub(super) fn answer(words: &[&[u8]], client: &mut Client, server: &Server<'_>) -> (Reply, bool) {
    let [name, arguments @ ..] = words else {
        return (Reply::Error("ERR empty command".to_owned()), false);
    };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let needs_password = server.password.is_some() && !client.is_known;
    if needs_password && !matches!(&*name, "AUTH" | "HELLO" | "QUIT") {
        let text = "NOAUTH Authentication required.";
        return (Reply::Error(text.to_owned()), false);
    }
    if name == "QUIT" {
        return (Reply::Simple("OK"), true);
    }
    let reply = connection(&name, arguments, client, server)
        .or_else(|| read(&name, arguments, server.tables))
        .or_else(|| about(&name, arguments, server));
    let reply = reply.unwrap_or_else(|| match WRITES.contains(&&*name) {
        true => Err("READONLY You can't write to a materialized view: its query does".to_owned()),
        false => Err(format!("ERR unknown command '{name}'")),
    });
    (reply.unwrap_or_else(Reply::Error), false)
}

type Answer = Result<Reply, String>;

fn wrong_number(name: &str) -> Answer {
    let name = name.to_ascii_lowercase();
    Err(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

/// Commands about the connection itself.
fn connection(
    name: &str,
    arguments: &[&[u8]],
    client: &mut Client,
    server: &Server<'_>,
) -> Option<Answer> {
    let ok = Ok(Reply::Simple("OK"));
    Some(match (name, arguments) {
        ("PING", []) => Ok(Reply::Simple("PONG")),
        ("PING" | "ECHO", [text]) => Ok(Reply::Bytes((*text).into())),
        ("AUTH", [password] | [_, password]) => authenticate(password, client, server),
        ("HELLO", arguments) => hello(arguments, client, server),
        ("SELECT", [b"0"]) => ok,
        ("SELECT", [_]) => Err("ERR DB index is out of range".to_owned()),
        ("READONLY" | "READWRITE" | "RESET", []) => ok,
        ("CLIENT", [sub, rest @ ..]) => {
            match (&*String::from_utf8_lossy(sub).to_ascii_uppercase(), rest) {
                ("ID", []) => Ok(Reply::Integer(client.number as i64)),
                ("GETNAME", []) if client.name.is_empty() => Ok(Reply::Null),
                ("GETNAME", []) => Ok(Reply::Bytes((*client.name).into())),
                ("SETNAME", [name]) => {
                    client.name = name.to_vec();
                    ok
                }
                ("SETINFO" | "NO-EVICT" | "NO-TOUCH", _) => ok,
                (other, _) => Err(format!("ERR unknown subcommand '{other}' of CLIENT")),
            }
        }
        ("PING" | "ECHO" | "AUTH" | "SELECT" | "CLIENT" | "READONLY" | "READWRITE", _) => {
            wrong_number(name)
        }
        _ => return None,
    })
}

fn authenticate(password: &[u8], client: &mut Client, server: &Server<'_>) -> Answer {
    match server.password {
        None => Err(
            "ERR AUTH called without a password: this server has none (set one in 'serve')"
                .to_owned(),
        ),
        Some(expected) if is_same(expected.as_bytes(), password) => {
            client.is_known = true;
            Ok(Reply::Simple("OK"))
        }
        Some(_) => Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned()),
    }
}

/// Compares in a time that tells only the length.
fn is_same(expected: &[u8], given: &[u8]) -> bool {
    let different = expected
        .iter()
        .zip(given)
        .fold(0, |all, (a, b)| all | (a ^ b));
    expected.len() == given.len() && different == 0
}

fn hello(arguments: &[&[u8]], client: &mut Client, server: &Server<'_>) -> Answer {
    let (version, mut rest) = match arguments {
        [] => (client.version, arguments),
        [b"2", rest @ ..] => (Version::Two, rest),
        [b"3", rest @ ..] => (Version::Three, rest),
        _ => return Err("NOPROTO unsupported protocol version".to_owned()),
    };
    while let [option, after @ ..] = rest {
        rest = match (&*option.to_ascii_uppercase(), after) {
            (b"AUTH", [_, password, after @ ..]) => {
                authenticate(password, client, server)?;
                after
            }
            (b"SETNAME", [name, after @ ..]) => {
                client.name = name.to_vec();
                after
            }
            _ => return Err("ERR Syntax error in HELLO".to_owned()),
        };
    }
    if server.password.is_some() && !client.is_known {
        return Err("NOAUTH HELLO must be called with the client already authenticated".to_owned());
    }
    client.version = version;
    let three = version == Version::Three;
    let pair = |name: &str, value| (Reply::text(name), value);
    Ok(Reply::Map(vec![
        pair("server", Reply::text("slackwater")),
        pair("version", Reply::text(env!("CARGO_PKG_VERSION"))),
        pair("proto", Reply::Integer(if three { 3 } else { 2 })),
        pair("id", Reply::Integer(client.number as i64)),
        pair("mode", Reply::text("standalone")),
        pair("role", Reply::text((server.role)().name())),
        pair("modules", Reply::Array(Vec::new())),
    ]))
}

/// Commands that read rows.
fn read(name: &str, arguments: &[&[u8]], tables: &Tables) -> Option<Answer> {
    let found = look_up(name, arguments, tables)?;
    let text = "LOADING The rows of the materialized views are not there yet";
    Some(match tables.are_loading() && found.is_ok() {
        true => Err(text.to_owned()),
        false => found,
    })
}

fn look_up(name: &str, arguments: &[&[u8]], tables: &Tables) -> Option<Answer> {
    let row = |key: &[u8], found: fn(Row) -> Reply, none| Ok(tables.get(key).map_or(none, found));
    let empty = || Reply::Array(Vec::new());
    Some(match (name, arguments) {
        ("GET", [key]) => row(key, Reply::Whole, Reply::Null),
        ("MGET", keys @ [_, ..]) => {
            let found = |key: &&[u8]| tables.get(key).map_or(Reply::Null, Reply::Whole);
            Ok(Reply::Array(keys.iter().map(found).collect()))
        }
        ("HGET", [key, field]) => Ok(match tables.get(key) {
            Some(row) => {
                let column = column(&row, field);
                let value = column.and_then(|column| row.values[column].as_deref());
                value.map_or(Reply::Null, |value| Reply::Bytes(value.into()))
            }
            None => Reply::Null,
        }),
        ("HMGET", [key, fields @ ..]) if !fields.is_empty() => Ok(match tables.get(key) {
            Some(row) => {
                let columns = fields.iter().map(|field| column(&row, field)).collect();
                Reply::Some(row, columns)
            }
            None => Reply::Array(fields.iter().map(|_| Reply::Null).collect()),
        }),
        ("HGETALL", [key]) => row(key, Reply::Columns, Reply::Map(Vec::new())),
        ("HKEYS", [key]) => row(key, Reply::Names, empty()),
        ("HVALS", [key]) => row(key, Reply::Values, empty()),
        ("HLEN", [key]) => row(key, |row| present(&row), Reply::Integer(0)),
        ("HEXISTS", [key, field]) => Ok(Reply::Integer(tables.get(key).map_or(0, |row| {
            let column = column(&row, field);
            i64::from(column.is_some_and(|column| row.values[column].is_some()))
        }))),
        ("STRLEN", [key]) => row(key, |row| length(&row), Reply::Integer(0)),
        ("EXISTS", keys @ [_, ..]) => {
            let found = keys.iter().filter(|key| tables.get(key).is_some()).count();
            Ok(Reply::Integer(found as i64))
        }
        ("TYPE", [key]) => row(key, |_| Reply::Simple("hash"), Reply::Simple("none")),
        ("TTL" | "PTTL", [key]) => row(key, |_| Reply::Integer(-1), Reply::Integer(-2)),
        ("DBSIZE", []) => Ok(Reply::Integer(tables.rows() as i64)),
        ("SCAN", [cursor, options @ ..]) => scan(cursor, options, tables),
        (
            "GET" | "MGET" | "HGET" | "HMGET" | "HGETALL" | "HKEYS" | "HVALS" | "HLEN" | "HEXISTS"
            | "STRLEN" | "EXISTS" | "TYPE" | "TTL" | "PTTL" | "DBSIZE" | "SCAN",
            _,
        ) => wrong_number(name),
        _ => return None,
    })
}

fn column(row: &Row, name: &[u8]) -> Option<usize> {
    let mut columns = row.schema.columns.iter();
    columns.position(|column| column.name.as_bytes() == name)
}

fn present(row: &Row) -> Reply {
    Reply::Integer(row.values.iter().flatten().count() as i64)
}

fn length(row: &Row) -> Reply {
    let mut whole = Vec::new();
    Reply::Whole(row.clone()).encode(Version::Two, &mut whole);
    // Between the first line and the last end of a line.
    let first = memchr::memchr(b'\n', &whole).map_or(0, |end| end + 1);
    Reply::Integer(whole.len().saturating_sub(first + 2) as i64)
}

/// A step of a scan: whole parts, until there are enough keys. The cursor is the number of the next part.
fn scan(cursor: &[u8], options: &[&[u8]], tables: &Tables) -> Answer {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<usize>().ok();
    let Some(mut part) = number(cursor).filter(|part| *part < PARTS) else {
        return Err("ERR invalid cursor".to_owned());
    };
    let (mut pattern, mut count, mut is_ours) = (None, SCAN_COUNT, true);
    let mut rest = options;
    while let [option, value, after @ ..] = rest {
        match &*option.to_ascii_uppercase() {
            b"MATCH" => pattern = Some(*value),
            b"COUNT" => match number(value).filter(|count| (1..=SCAN_COUNT_MAX).contains(count)) {
                Some(number) => count = number,
                None => return Err(format!("ERR COUNT is not 1 to {SCAN_COUNT_MAX}")),
            },
            b"TYPE" => is_ours = value.eq_ignore_ascii_case(b"hash"),
            _ => return Err("ERR syntax error".to_owned()),
        }
        rest = after;
    }
    if !rest.is_empty() {
        return Err("ERR syntax error".to_owned());
    }
    let (mut keys, mut looked) = (Vec::new(), 0);
    // Parts that are empty cost a look each.
    while part < PARTS && looked < count {
        for key in tables.keys(part) {
            looked += 1;
            if is_ours && pattern.is_none_or(|pattern| matches(pattern, key)) {
                keys.push(Reply::Bytes(key.into()));
            }
        }
        part += 1;
    }
    let next = if part == PARTS { 0 } else { part };
    Ok(Reply::Array(vec![
        Reply::text(&next.to_string()),
        Reply::Array(keys),
    ]))
}

/// Whether a key fits a pattern of Redis: `*`, `?`, `[a-z]`, `[^a]`, `\` before any of these. Takes the
/// product of both lengths at most: a `*` is tried again from where the last one ended.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where the last `*` was, and how much of the key it has taken.
    let mut star = None;
    while read < key.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, read));
            at += 1;
            continue;
        }
        match one(&pattern[at..], key[read]) {
            Some(used) => {
                at += used;
                read += 1;
            }
            None => {
                let Some((after, taken)) = star else {
                    return false;
                };
                star = Some((after, taken + 1));
                (at, read) = (after, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// How much of a pattern stands for this byte, if it does.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => {
            let end = memchr::memchr(b']', class)?;
            let (negated, members) = match &class[..end] {
                [b'^', members @ ..] => (true, members),
                members => (false, members),
            };
            let mut rest = members;
            let mut is_in = false;
            while let [first, after @ ..] = rest {
                (is_in, rest) = match after {
                    [b'-', last, after @ ..] => (is_in || (*first..=*last).contains(&byte), after),
                    after => (is_in || *first == byte, after),
                };
            }
            (is_in != negated).then_some(end + 2)
        }
        [other, ..] => (*other == byte).then_some(1),
    }
}

/// Commands about the server.
fn about(name: &str, arguments: &[&[u8]], server: &Server<'_>) -> Option<Answer> {
    Some(match (name, arguments) {
        ("INFO", sections) => Ok(Reply::text(&info(sections, server))),
        ("ROLE", []) => Ok((server.role)().reply()),
        // Clients ask for these when they connect, and do without an answer.
        ("COMMAND", [sub, ..]) if sub.eq_ignore_ascii_case(b"COUNT") => Ok(Reply::Integer(0)),
        ("COMMAND", _) => Ok(Reply::Array(Vec::new())),
        ("CONFIG", [sub, ..]) if sub.eq_ignore_ascii_case(b"GET") => Ok(Reply::Map(Vec::new())),
        ("ROLE" | "CONFIG", _) => wrong_number(name),
        _ => return None,
    })
}

fn info(sections: &[&[u8]], server: &Server<'_>) -> String {
    let wanted = |section: &str| {
        let mut all = sections.iter().map(|wanted| wanted.to_ascii_lowercase());
        sections.is_empty()
            || all.any(|wanted| {
                wanted == section.as_bytes()
                    || [&b"all"[..], b"default", b"everything"].contains(&&*wanted)
            })
    };
    let mut text = String::new();
    let mut section = |name: &str, lines: &[String]| {
        if wanted(&name.to_ascii_lowercase()) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            text += &format!("{gap}# {name}\r\n{}\r\n", lines.join("\r\n"));
        }
    };
    section(
        "Server",
        &[
            format!("slackwater_version:{}", env!("CARGO_PKG_VERSION")),
            "redis_mode:standalone".to_owned(),
            format!("process_id:{}", std::process::id()),
            format!("tcp_port:{}", server.port),
            format!("uptime_in_seconds:{}", server.uptime_s),
        ],
    );
    let loading = u8::from(server.tables.are_loading());
    section("Persistence", &[format!("loading:{loading}")]);
    section(
        "Clients",
        &[format!("connected_clients:{}", server.clients)],
    );
    section("Replication", &(server.role)().info());
    let rows = server.tables.rows_by_table();
    let rows = rows.map(|(name, rows)| format!("view_{name}:rows={rows}"));
    let total = format!("db0:keys={},expires=0,avg_ttl=0", server.tables.rows());
    section(
        "Keyspace",
        &std::iter::once(total).chain(rows).collect::<Vec<_>>(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, key, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("totals:*", "totals:10.0.0.1", true),
            ("totals:*", "other:1", false),
            ("t?tals:*1", "totals:10.0.0.1", true),
            ("h[ae]llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[a-d]llo", "hbllo", true),
            ("h[a-d]llo", "hello", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbx", false),
            ("[", "[", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), key.as_bytes()),
                expected,
                "{pattern} {key}"
            );
        }
        // No exponential time.
        assert!(!matches("a*".repeat(50).as_bytes(), &[b'b'; 10_000]));
        assert!(!matches(
            ("a*".repeat(50) + "b").as_bytes(),
            &[b'a'; 10_000]
        ));
    }
}
