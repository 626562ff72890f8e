//! The PostgreSQL door, as clients meet it.

mod catalog;
mod child;
mod fake;
mod hostile;
mod passwords;
mod queries;
mod raw;
mod streams;

use std::sync::Arc;

use postgres::{Client, Config, NoTls};
use slackwater_serve::postgres::{Door, Limits, Options, Passwords, open};

/// A door to the fake backend. `passwords` are lines as in the file of passwords.
fn door(passwords: Option<&str>, limits: Limits) -> Door {
    let options = Options {
        address: "127.0.0.1:0".parse().unwrap(),
        passwords: passwords.map(|text| Passwords::read(text).unwrap()),
        tls: None,
        limits,
    };
    open(Arc::new(fake::Fake::new()), options).unwrap()
}

fn config(door: &Door) -> Config {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(door.address().port())
        .user("ada");
    config
}

/// A client of a door without passwords.
fn client() -> (Door, Client) {
    let door = door(None, Limits::default());
    let client = config(&door).connect(NoTls).unwrap();
    (door, client)
}

/// The code of the error that a call returned.
fn code<T>(result: Result<T, postgres::Error>) -> String {
    let error = result.err().expect("an error");
    let report = error
        .as_db_error()
        .unwrap_or_else(|| panic!("not an answer: {error:?}"));
    report.code().code().to_owned()
}

/// The rows of a text, each as its values in text; NULL as `-`.
fn rows(client: &mut Client, text: &str) -> Vec<Vec<String>> {
    let messages = client
        .simple_query(text)
        .unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let row = |message: &postgres::SimpleQueryMessage| match message {
        postgres::SimpleQueryMessage::Row(row) => {
            let values = (0..row.len()).map(|at| row.get(at).unwrap_or("-").to_owned());
            Some(values.collect())
        }
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}
