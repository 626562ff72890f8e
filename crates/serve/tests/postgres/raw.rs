//! A client that sends whatever bytes it likes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long it waits for an answer before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message, with its type and its length.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// A packet that begins a connection.
pub fn startup(user: &str) -> Vec<u8> {
    let body = [
        &(3_u32 << 16).to_be_bytes()[..],
        b"user\0",
        user.as_bytes(),
        b"\0\0",
    ]
    .concat();
    let length = u32::try_from(body.len() + 4).unwrap();
    [&length.to_be_bytes()[..], &body].concat()
}

/// A text as a simple query.
pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

pub struct Raw {
    pub socket: TcpStream,
}

impl Raw {
    pub fn new(address: SocketAddr) -> Raw {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Raw { socket }
    }

    /// A client that was let in without a password.
    pub fn begun(address: SocketAddr) -> Raw {
        let mut raw = Raw::new(address);
        raw.send(&startup("eve"));
        raw.until(b'Z');
        raw
    }

    /// Sends bytes, as far as the server takes them.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// The next message; `None` if the connection has ended.
    pub fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length - 4];
        self.fill(&mut body)?;
        Some((head[0], body))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.socket.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server does not answer")
            }
            Err(_) => None,
        }
    }

    /// The types of the messages up to one of this type, and the codes of the errors among them.
    pub fn until(&mut self, last: u8) -> (String, Vec<String>) {
        let (mut kinds, mut codes) = (String::new(), vec![]);
        loop {
            let (kind, body) = self
                .receive()
                .unwrap_or_else(|| panic!("the connection ended after {kinds}"));
            kinds.push(kind.into());
            if kind == b'E' {
                codes.extend(code(&body));
            }
            if kind == last {
                return (kinds, codes);
            }
        }
    }

    /// The code of the error with which the server ends the connection; `None` if it says nothing.
    pub fn ended(&mut self) -> Option<String> {
        let mut last = None;
        while let Some((kind, body)) = self.receive() {
            assert_eq!(kind, b'E', "something else than an error");
            last = code(&body);
        }
        last
    }
}

/// The code of an error message.
pub fn code(body: &[u8]) -> Option<String> {
    let fields = body.split(|byte| *byte == 0);
    let code = fields
        .into_iter()
        .find_map(|field| field.strip_prefix(b"C"))?;
    Some(String::from_utf8_lossy(code).into_owned())
}
