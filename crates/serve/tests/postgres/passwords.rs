//! Who is let in.

use postgres::NoTls;

use super::raw::{Raw, startup};
use super::{code, config, door, fake};
use slackwater_serve::postgres::{Limits, Options, Passwords, open};

#[test]
fn a_client_with_the_password_is_let_in() {
    let door = door(Some("# who may\nada:größe 1\nbob:x"), Limits::default());
    let mut client = config(&door).password("größe 1").connect(NoTls).unwrap();
    assert_eq!(
        client
            .query_one("SELECT current_user", &[])
            .unwrap()
            .get::<_, &str>(0),
        "ada"
    );
    for (user, password) in [
        ("ada", "größe 2"),
        ("ada", "x"),
        ("eve", "x"),
        ("bob", "größe 1"),
    ] {
        let mut config = config(&door);
        assert_eq!(
            code(
                config
                    .user(user)
                    .password(password)
                    .connect(NoTls)
                    .map(drop)
            ),
            "28P01"
        );
    }
}

#[test]
fn other_machines_are_not_served_without_passwords() {
    let options = Options {
        address: "0.0.0.0:0".parse().unwrap(),
        passwords: None,
        tls: None,
        limits: Limits::default(),
    };
    let refusal = open(std::sync::Arc::new(fake::Fake::new()), options)
        .err()
        .unwrap();
    assert!(refusal.message.contains("without passwords"), "{refusal}");
    assert!(Passwords::read("").is_err());
}

#[test]
fn what_is_not_offered_is_refused_politely() {
    let door = door(None, Limits::default());
    let mut raw = Raw::new(door.address());
    for request in [80_877_103_u32, 80_877_104] {
        raw.send(&[8_u32.to_be_bytes(), request.to_be_bytes()].concat());
        let mut answer = [0];
        std::io::Read::read_exact(&mut raw.socket, &mut answer).unwrap();
        assert_eq!(&answer, b"N");
    }
    raw.send(&startup("ada"));
    raw.until(b'Z');
    // Version 2 of the protocol, replication, and an encoding that nobody speaks.
    for packet in [
        [&8_u32.to_be_bytes()[..], &(2_u32 << 16).to_be_bytes()].concat(),
        with_option("replication", "database"),
        with_option("client_encoding", "SQL_ASCII"),
    ] {
        let mut raw = Raw::new(door.address());
        raw.send(&packet);
        let code = raw.ended().unwrap();
        assert!(
            ["08P01", "0A000", "22023"].contains(&code.as_str()),
            "{code}"
        );
    }
}

/// A packet that begins a connection, with an option.
fn with_option(name: &str, value: &str) -> Vec<u8> {
    let strings = format!("user\0ada\0{name}\0{value}\0\0");
    let length = u32::try_from(8 + strings.len()).unwrap();
    [
        &length.to_be_bytes()[..],
        &(3_u32 << 16).to_be_bytes(),
        strings.as_bytes(),
    ]
    .concat()
}
