use std::fs;

use super::*;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

/// Reads a file with this text and mode. Errors without the folder.
fn read(text: &[u8], mode: u32) -> Result<Secret, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cluster.key");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    let prefix = format!("{}/", folder.path().display());
    Secret::read(&path).map_err(|error| error.to_string().replace(&prefix, ""))
}

fn keys(secret: &Secret) -> &[[u8; KEY_BYTES]] {
    match secret.kind() {
        Kind::Keys(keys) => keys,
        Kind::Certificates(_) => panic!("a file without certificates"),
    }
}

fn error(text: &str, mode: u32) -> String {
    read(text.as_bytes(), mode).expect_err("an error")
}

#[test]
fn what_is_written_is_read() {
    let secret = Secret::generate().expect("randomness");
    let read = read(secret.text().as_bytes(), 0o600).expect("a secret");
    assert_eq!(keys(&read), keys(&secret));
    assert_ne!(keys(&read), keys(&Secret::generate().expect("randomness")));
}

#[test]
fn a_file_has_comments_and_one_or_two_keys_in_hex_or_base64() {
    let text = format!("# The cluster of tests\n\n  {HEX}  # since Monday\n\t{OTHER}\r\n");
    for mode in [0o600, 0o400] {
        let secret = read(text.as_bytes(), mode).expect("a secret");
        let expected: Vec<[u8; 32]> = vec![
            std::array::from_fn(|byte| byte as u8),
            std::array::from_fn(|byte| byte as u8 + 32),
        ];
        assert_eq!(keys(&secret), expected);
    }
    let upper = read(HEX.to_uppercase().as_bytes(), 0o600).expect("a secret");
    assert_eq!(upper.text().trim(), HEX);
}

#[test]
fn errors_name_the_file_the_line_and_the_fix() {
    let make = "slackwater key > cluster.key";
    let missing = Secret::read("/nowhere/cluster.key").expect_err("an error");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let expected = format!("/nowhere/cluster.key: no such file; make one: {make}");
    assert_eq!(missing.to_string(), expected);
    for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
        let message = error(HEX, mode);
        assert!(message.contains(&format!("mode {mode:o}")), "{message}");
        assert!(message.contains("chmod 600 "), "{message}");
    }
    for text in ["", "\n \n", "# nothing\n"] {
        assert_eq!(
            error(text, 0o600),
            format!("cluster.key: holds no key; make one: {make}")
        );
    }
    for (text, place) in [
        (&HEX[2..], "cluster.key:1: not a key of 32 bytes"),
        ("# mine\nhunter2", "cluster.key:2: not a key of 32 bytes"),
        (
            &HEX.replace('0', "g"),
            "cluster.key:1: not a key of 32 bytes",
        ),
        (
            &HEX.replace('0', "ä"),
            "cluster.key:1: not a key of 32 bytes",
        ),
        (
            &format!("{HEX}\n{HEX}"),
            "cluster.key:2: the same key again",
        ),
    ] {
        let message = error(text, 0o600);
        assert!(message.starts_with(place), "{message}");
    }
    let third = HEX.replace("00", "ff");
    let message = error(&format!("{HEX}\n{OTHER}\n{third}"), 0o600);
    assert!(
        message.starts_with("cluster.key:3: a third key"),
        "{message}"
    );
    let message = error(&"#".repeat(70_000), 0o600);
    assert!(message.contains("longer than"), "{message}");
    assert!(
        read(&[0xFF; 40], 0o600)
            .expect_err("an error")
            .contains("can't be read")
    );
}

#[test]
fn nothing_shows_the_key() {
    let secret = read(HEX.as_bytes(), 0o600).expect("a secret");
    assert_eq!(format!("{secret:?}"), "Secret(1 keys)");
    let message = error(&HEX[..60], 0o600);
    assert!(!message.contains("0a0b"), "{message}");
}
