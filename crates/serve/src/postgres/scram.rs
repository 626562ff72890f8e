//! Passwords: the file that has them, and SCRAM-SHA-256 (RFC 5802 and 7677), the server's side.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2, rand};

use crate::backend::{Kind, Refusal};

/// The name of the mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// How often a password is hashed; PostgreSQL's number, with which clients are quick enough.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).unwrap();
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;
const KEY_BYTES: usize = digest::SHA256_OUTPUT_LEN;
/// The longest message of a client, of which a nonce and a name are part.
const MESSAGE_MAX: usize = 2_048;

/// What is kept of a password: enough to check it, and not enough to be let in with it.
#[derive(Clone)]
struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

/// The users who may connect, with their passwords.
pub struct Passwords {
    users: BTreeMap<String, Verifier>,
    /// Gives the same salt for the same unknown user each time, so that nobody finds out who is known.
    secret: hmac::Key,
}

impl Verifier {
    fn of_password(password: &str, salt: Vec<u8>) -> Verifier {
        // What the client does with its letters; as they are, if that does not work, which clients do too.
        let prepared = stringprep::saslprep(password);
        let password = prepared.as_deref().unwrap_or(password);
        let mut salted = [0; KEY_BYTES];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(
            algorithm,
            ITERATIONS,
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let client_key = hmac_of(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        Verifier {
            iterations: ITERATIONS,
            salt,
            stored_key: bytes(stored_key.as_ref()),
            server_key: hmac_of(&salted, b"Server Key"),
        }
    }

    /// The form in which PostgreSQL keeps it: `SCRAM-SHA-256$4096:salt$stored key:server key`.
    fn read(text: &str) -> Option<Verifier> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (head, keys) = rest.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations
            .parse()
            .ok()
            .filter(|count| *count <= ITERATIONS_MAX)?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(Verifier {
            iterations: NonZeroU32::new(iterations)?,
            salt: BASE64.decode(salt).ok()?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }
}

fn bytes(of: &[u8]) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(of);
    bytes
}

fn hmac_of(key: &[u8], text: &[u8]) -> [u8; KEY_BYTES] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    bytes(hmac::sign(&key, text).as_ref())
}

/// Bytes that nobody can guess.
///
/// # Errors
///
/// If the system has none.
pub fn random<const N: usize>() -> Result<[u8; N], Refusal> {
    let mut bytes = [0; N];
    let filled = rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Refusal::new(Kind::System, "the system gives no random numbers"))?;
    Ok(bytes)
}

impl Passwords {
    /// Reads a file of lines `user:password`; a password may be what PostgreSQL keeps of it
    /// (`SCRAM-SHA-256$…`). Lines that are empty or begin with `#` do not count.
    ///
    /// # Errors
    ///
    /// If a line has another form, or there is no user.
    pub fn read(text: &str) -> Result<Passwords, Refusal> {
        let mut users = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| {
                let message = format!("line {} of the passwords: {what}", at + 1);
                Refusal::new(Kind::Value, message).hint("write lines such as user:password")
            };
            let (user, password) = line
                .split_once(':')
                .ok_or_else(|| wrong("there is no ':'"))?;
            if user.is_empty() || password.is_empty() {
                return Err(wrong("the user or the password is empty"));
            }
            let verifier = if password.starts_with("SCRAM-SHA-256$") {
                Verifier::read(password)
                    .ok_or_else(|| wrong("this is not a valid SCRAM-SHA-256 secret"))?
            } else {
                Verifier::of_password(password, random::<SALT_BYTES>()?.to_vec())
            };
            if users.insert(user.to_owned(), verifier).is_some() {
                return Err(wrong("the user is there twice"));
            }
        }
        if users.is_empty() {
            let refusal = Refusal::new(Kind::Value, "the passwords have no user");
            return Err(refusal.hint("write lines such as user:password"));
        }
        Ok(Passwords {
            users,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &random::<KEY_BYTES>()?),
        })
    }

    /// What is kept for a user; for an unknown one something that no password fits.
    fn verifier(&self, user: &str) -> Verifier {
        let unknown = || {
            let tag = hmac::sign(&self.secret, user.as_bytes());
            Verifier {
                iterations: ITERATIONS,
                salt: tag.as_ref()[..SALT_BYTES].to_vec(),
                stored_key: bytes(tag.as_ref()),
                server_key: bytes(tag.as_ref()),
            }
        };
        self.users.get(user).cloned().unwrap_or_else(unknown)
    }
}

/// An exchange with a client, after its first message.
pub struct Exchange {
    verifier: Verifier,
    /// The header that says which channel binding the client has: none.
    header: String,
    nonce: String,
    /// The first messages of both sides, as far as they are signed.
    signed: String,
}

impl Exchange {
    /// Takes the client's first message, and returns the answer to it. `None`: it is not one.
    pub fn begin(
        passwords: &Passwords,
        user: &str,
        message: &[u8],
        random: &[u8],
    ) -> Option<(Exchange, String)> {
        let message = std::str::from_utf8(message).ok()?;
        if message.len() > MESSAGE_MAX {
            return None;
        }
        // `n,,` or `y,,`: no channel binding; a name is allowed in between, and none is needed.
        let second = message.match_indices(',').nth(1)?.0;
        let (header, bare) = message.split_at(second + 1);
        if !header.starts_with("n,") && !header.starts_with("y,") {
            return None;
        }
        // The user is the one of the start-up packet; that of the message is empty by most clients.
        let nonce = bare.split(',').nth(1)?.strip_prefix("r=")?;
        if !bare.starts_with("n=") || nonce.is_empty() {
            return None;
        }
        let verifier = passwords.verifier(user);
        let nonce = format!("{nonce}{}", BASE64.encode(random));
        let salt = BASE64.encode(&verifier.salt);
        let answer = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let exchange = Exchange {
            verifier,
            header: header.to_owned(),
            signed: format!("{bare},{answer}"),
            nonce,
        };
        Some((exchange, answer))
    }

    /// Random bytes for [`Exchange::begin`].
    ///
    /// # Errors
    ///
    /// If the system has none.
    pub fn random() -> Result<[u8; NONCE_BYTES], Refusal> {
        random()
    }

    /// Takes the client's last message, and returns the answer that proves who the server is. `None`: the
    /// password is wrong.
    pub fn end(&self, message: &[u8]) -> Option<String> {
        let message = std::str::from_utf8(message).ok()?;
        let (before, proof) = message.rsplit_once(",p=")?;
        let mut parts = before.split(',');
        let header = parts.next()?.strip_prefix("c=")?;
        let nonce = parts.next()?.strip_prefix("r=")?;
        if header != BASE64.encode(&self.header) || nonce != self.nonce {
            return None;
        }
        let signed = format!("{},{before}", self.signed);
        let signature = hmac_of(&self.verifier.stored_key, signed.as_bytes());
        let proof: [u8; KEY_BYTES] = BASE64.decode(proof).ok()?.try_into().ok()?;
        let mut client_key = [0; KEY_BYTES];
        for (at, byte) in client_key.iter_mut().enumerate() {
            *byte = proof[at] ^ signature[at];
        }
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        // Compared by their signatures, which takes the same time wherever they differ.
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.verifier.server_key);
        let expected = hmac::sign(&key, &self.verifier.stored_key);
        hmac::verify(&key, stored_key.as_ref(), expected.as_ref()).ok()?;
        let answer = hmac_of(&self.verifier.server_key, signed.as_bytes());
        Some(format!("v={}", BASE64.encode(answer)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_example_of_the_standard_is_accepted() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::of_password("pencil", salt);
        let exchange = Exchange {
            verifier,
            header: "n,,".to_owned(),
            nonce: "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned(),
            signed: "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
                .to_owned(),
        };
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let answer = exchange.end(last.as_bytes()).unwrap();
        assert_eq!(answer, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let wrong = last.replace("dHzb", "dHzc");
        assert_eq!(exchange.end(wrong.as_bytes()), None);
    }

    #[test]
    fn a_file_of_passwords_is_checked() {
        let message = |text| Passwords::read(text).err().unwrap().message;
        assert_eq!(message("# none\n"), "the passwords have no user");
        assert_eq!(
            message("a:b\nc"),
            "line 2 of the passwords: there is no ':'"
        );
        assert_eq!(
            message("a:b\na:c"),
            "line 2 of the passwords: the user is there twice"
        );
        assert!(message("a:SCRAM-SHA-256$1").contains("not a valid SCRAM-SHA-256 secret"));
        let kept = "a:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
                    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                    wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(Passwords::read(kept).unwrap().users.len(), 1);
    }

    proptest! {
        #[test]
        fn any_message_is_read_or_refused(first in "[ny],[a=,]{0,3}n=[ -~]{0,20},r=[ -~]{0,20}|[ -~]{0,60}",
                                          last in "c=[ -~]{0,9},r=[ -~]{0,9},p=[ -~]{0,60}|[ -~]{0,60}") {
            let passwords = Passwords {
                users: BTreeMap::new(),
                secret: hmac::Key::new(hmac::HMAC_SHA256, b"x"),
            };
            if let Some((exchange, _)) = Exchange::begin(&passwords, "a", first.as_bytes(), b"abc") {
                prop_assert_eq!(exchange.end(last.as_bytes()), None);
            }
        }
    }
}
