//! A server with a few rows in memory, for the tests of clients (`make test-clients`) and for trying them
//! out:
//!
//! ```text
//! cargo run -p slackwater-serve --example postgres_server -- 127.0.0.1:4566 [PASSWORDS [CERTIFICATE KEY]]
//! ```
//!
//! It prints its address, and ends when its standard input does.

#[path = "../tests/postgres/fake.rs"]
mod fake;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use slackwater_serve::postgres::{Limits, Options, Passwords, open, tls};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = arguments
        .first()
        .map_or("127.0.0.1:0", String::as_str)
        .parse()?;
    let passwords = arguments.get(1).map(std::fs::read_to_string).transpose()?;
    let passwords = passwords.map(|text| Passwords::read(&text)).transpose();
    let tls = match arguments.get(2..4) {
        Some([certificate, key]) => {
            Some(tls(Path::new(certificate), Path::new(key)).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let options = Options {
        address,
        passwords: passwords.map_err(|error| error.to_string())?,
        tls,
        limits: Limits::default(),
    };
    let door = open(Arc::new(fake::Fake::new()), options).map_err(|error| error.to_string())?;
    println!("{}", door.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
