//! The body of the fuzz target `client`, so that an ordinary test runs it too.
//!
//! The first byte chooses what the others are: messages, the packet that begins a connection, a password, the
//! values of parameters, or a statement. Whatever they are, they are taken or refused: nothing panics, and
//! nothing takes more memory than the limits allow.

use std::sync::Arc;

use arrow_schema::DataType;

use crate::backend::{
    Backend, Column, JobState, Kind, Object, ObjectKind, Pushed, Refusal, Session,
};

use super::begin::options;
use super::catalog::{Catalog, Facts};
use super::command::{Command, recognize};
use super::message::{self, Frontend};
use super::parameters;
use super::scram::{Exchange, Passwords};
use super::settings::{self, Settings};
use super::types::TYPES;
use super::words;

/// A server with a view, for queries of the catalog.
struct OneView;

impl Backend for OneView {
    fn session(&self) -> Box<dyn Session> {
        unreachable!("a query of the catalog needs no session")
    }

    fn objects(&self) -> Vec<Object> {
        let column = |name: &str, data_type: DataType, is_key: bool| Column {
            name: name.to_owned(),
            data_type,
            nullable: !is_key,
            is_key,
        };
        vec![Object {
            name: "a view".to_owned(),
            kind: ObjectKind::MaterializedView,
            columns: vec![
                column("n", DataType::Int64, true),
                column("name", DataType::Utf8, false),
            ],
            definition: "SELECT 1".to_owned(),
        }]
    }

    fn jobs(&self) -> Vec<JobState> {
        vec![]
    }

    fn why(&self, job: &str) -> Result<String, Refusal> {
        Ok(format!("nothing holds '{job}' back"))
    }

    fn retarget(&self, job: &str, _: Option<&str>, target: &str) -> Result<(), Refusal> {
        match target.ends_with("ms") {
            true => Ok(()),
            false => Err(Refusal::new(
                Kind::Value,
                format!("{job}: '{target}' is not a duration"),
            )),
        }
    }

    fn report(&self, _: &str) -> Result<String, Refusal> {
        Err(Refusal::new(Kind::NoSuchJob, "there is no job"))
    }

    fn push(&self, _: &str, _: &[u8], _: Option<(String, u64)>) -> Result<Pushed, Refusal> {
        Err(Refusal::new(Kind::Undefined, "there is no table"))
    }
}

thread_local! {
    static CATALOG: Catalog = Catalog::new(Arc::new(OneView));
    static PASSWORDS: Passwords = Passwords::read("ada:secret").expect("a user and a password");
}

/// Runs one input.
pub fn fuzz_client(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    match choice % 5 {
        0 => messages(bytes),
        1 => beginning(bytes),
        2 => password(bytes),
        3 => values(bytes),
        _ => statement(&String::from_utf8_lossy(bytes)),
    }
}

/// Messages, each with its type and the length of its body in two bytes.
fn messages(mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_at_checked(3) {
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (body, rest) = rest.split_at(length.min(rest.len()));
        match message::read(head[0], body) {
            Ok(Frontend::Query(text) | Frontend::Parse { text, .. }) => statement(text),
            Ok(Frontend::Bind { values, .. }) => {
                assert!(
                    values
                        .iter()
                        .flatten()
                        .map(|value| value.len())
                        .sum::<usize>()
                        <= body.len()
                );
            }
            Ok(_) | Err(message::Malformed) => {}
        }
        bytes = rest;
    }
}

fn beginning(bytes: &[u8]) {
    let Ok(values) = message::read_startup(bytes) else {
        return;
    };
    let mut settings = Settings::new("ada");
    for (name, value) in values {
        // What is refused leaves the settings as they were.
        let _ = settings.set(name, Some(value));
        for (name, value) in options(value) {
            let _ = settings.set(&name, Some(&value));
        }
    }
    settings.statement_time_max();
}

/// The first message of SCRAM, and the last one after a NUL.
fn password(bytes: &[u8]) {
    let first = message::read_sasl(bytes).map_or(bytes, |(_, first)| first);
    let (first, last) = match first.iter().position(|byte| *byte == 0) {
        Some(at) => (&first[..at], &first[at + 1..]),
        None => (first, &b""[..]),
    };
    PASSWORDS.with(|passwords| {
        if let Some((exchange, _)) = Exchange::begin(passwords, "ada", first, b"random") {
            assert_eq!(exchange.end(last), None, "nobody knows the password");
        }
    });
}

/// A type, a format, and a value.
fn values(bytes: &[u8]) {
    let Some((&[kind, format], value)) = bytes.split_first_chunk() else {
        return;
    };
    let kind = &TYPES[usize::from(kind) % TYPES.len()];
    for oid in [kind.oid, kind.array] {
        // A value that is not valid is refused.
        let _ = parameters::read(Some(value), i16::from(format % 3), oid);
    }
}

fn statement(text: &str) {
    let mut end = 0;
    for range in words::statements(text) {
        assert!(range.start >= end && range.start < range.end);
        end = range.end;
        one_statement(&text[range]);
    }
    assert!(end <= text.len());
}

fn one_statement(text: &str) {
    CATALOG.with(|catalog| {
        let command = recognize(text, settings::is_known, |words| catalog.answers(words));
        match command {
            Command::Declare { query, .. } => {
                assert!(text.get(query).is_some(), "a query is a part of the text");
            }
            Command::Catalog => {
                let facts = Facts::new("ada", 1);
                let described = catalog.describe(text, facts.clone());
                let answer = catalog.run(text, &[Some("1".to_owned())], facts);
                if let (Ok((_, schema)), Ok((batch, _))) = (described, answer) {
                    assert_eq!(
                        schema,
                        batch.schema(),
                        "rows have the columns that were described"
                    );
                }
            }
            _ => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use fastrand::Rng;

    use super::fuzz_client;

    #[test]
    fn the_fuzz_corpus_and_its_mutations_cause_no_panic() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/client");
        let mut random = Rng::with_seed(5);
        let mut inputs = 0;
        for entry in fs::read_dir(folder).expect("the corpus is part of the repository") {
            let input = fs::read(entry.expect("a file").path()).expect("a file");
            inputs += 1;
            fuzz_client(&input);
            for _ in 0..100 {
                let mut bytes = input.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(0..bytes.len());
                    match random.usize(0..3) {
                        0 => bytes[at] = random.u8(..),
                        1 => bytes.truncate(at.max(1)),
                        _ => bytes.insert(at, b"()[]'\",;:$0a\0\xff"[random.usize(0..14)]),
                    }
                }
                fuzz_client(&bytes);
            }
        }
        assert!(inputs >= 12, "{inputs} inputs are left of the corpus");
    }
}
