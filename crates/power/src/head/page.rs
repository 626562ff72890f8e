//! The page: metrics and status over HTTP/1.0, on a loopback address and on a Unix socket. Nothing blocks.
//!
//! Bounds: [`VISITORS_MAX`] at a time, of each [`REQUEST_MAX`] bytes and [`VISIT_NS`]; one request each.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::io::{Errno, read, write};
use rustix::net::SocketFlags;

/// The most visitors at a time; others wait in the kernel.
const VISITORS_MAX: usize = 16;
/// The most bytes of a request.
const REQUEST_MAX: usize = 4 << 10;
/// The longest visit.
const VISIT_NS: u64 = 2_000_000_000;

/// Where visitors come from.
#[derive(Debug)]
pub struct Page {
    doors: Vec<Door>,
    visitors: Vec<Visitor>,
}

#[derive(Debug)]
struct Door {
    socket: OwnedFd,
    /// Only the administrator comes in here.
    is_private: bool,
}

#[derive(Debug)]
struct Visitor {
    socket: OwnedFd,
    is_private: bool,
    input: Vec<u8>,
    out: Vec<u8>,
    until: u64,
}

/// What a visitor asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The path.
    pub path: String,
    /// Whether only the administrator can ask this.
    pub is_private: bool,
}

/// What a visitor gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The status line, such as `200 OK`.
    pub status: &'static str,
    /// The kind of the text.
    pub kind: &'static str,
    /// The text.
    pub text: String,
}

impl Served {
    /// A text.
    pub fn text(text: String) -> Self {
        Self {
            status: "200 OK",
            kind: "text/plain; version=0.0.4; charset=utf-8",
            text,
        }
    }

    /// JSON.
    pub fn json(text: String) -> Self {
        Self {
            kind: "application/json",
            ..Self::text(text)
        }
    }

    /// Nothing is there.
    pub fn missing() -> Self {
        Self {
            status: "404 Not Found",
            ..Self::text("try /metrics or /status\n".to_string())
        }
    }

    /// The request is wrong.
    pub fn wrong(text: &str) -> Self {
        Self {
            status: "400 Bad Request",
            ..Self::text(format!("{text}\n"))
        }
    }

    fn encode(&self) -> Vec<u8> {
        let Self { status, kind, text } = self;
        let length = text.len();
        format!(
            "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{text}"
        )
        .into_bytes()
    }
}

impl Page {
    /// Opens the doors.
    pub fn new(public: Option<TcpListener>, private: Option<UnixListener>) -> io::Result<Self> {
        let mut doors = Vec::new();
        if let Some(listener) = public {
            listener.set_nonblocking(true)?;
            doors.push(Door {
                socket: listener.into(),
                is_private: false,
            });
        }
        if let Some(listener) = private {
            listener.set_nonblocking(true)?;
            doors.push(Door {
                socket: listener.into(),
                is_private: true,
            });
        }
        Ok(Self {
            doors,
            visitors: Vec::new(),
        })
    }

    /// A page without doors.
    pub fn none() -> Self {
        Self {
            doors: Vec::new(),
            visitors: Vec::new(),
        }
    }

    /// What to wait for: descriptors, and whether to write there.
    pub fn waits(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let doors = self
            .doors
            .iter()
            .filter(|_| self.visitors.len() < VISITORS_MAX);
        let doors = doors.map(|door| (door.socket.as_fd(), false));
        let visitors = self.visitors.iter();
        doors.chain(visitors.map(|visitor| (visitor.socket.as_fd(), !visitor.out.is_empty())))
    }

    /// When the longest visit ends.
    pub fn due(&self) -> Option<u64> {
        self.visitors.iter().map(|visitor| visitor.until).min()
    }

    /// Lets visitors in, and returns what they ask for. Each that is returned has to be answered.
    pub fn read(&mut self, now: u64) -> Vec<(usize, Asked)> {
        for door in &self.doors {
            while self.visitors.len() < VISITORS_MAX {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let Ok(socket) = rustix::net::accept_with(&door.socket, flags) else {
                    break;
                };
                self.visitors.push(Visitor {
                    socket,
                    is_private: door.is_private,
                    input: Vec::new(),
                    out: Vec::new(),
                    until: now + VISIT_NS,
                });
            }
        }
        let mut asked = Vec::new();
        // Those that leave are removed before the others are numbered.
        let mut lines = Vec::new();
        self.visitors.retain_mut(|visitor| {
            let line = match visitor.out.is_empty() {
                true => visitor.read(),
                false => visitor.write().then_some(None),
            };
            let stays = now < visitor.until && line.is_some();
            lines.extend(line.filter(|_| stays));
            stays
        });
        for (at, line) in lines.into_iter().enumerate() {
            let Some(line) = line else { continue };
            match path(&line) {
                Some(path) => asked.push((
                    at,
                    Asked {
                        path,
                        is_private: self.visitors[at].is_private,
                    },
                )),
                None => self.answer(at, &Served::wrong("only GET is supported")),
            }
        }
        asked
    }

    /// Answers a visitor. What can't be written at once is written later.
    pub fn answer(&mut self, visitor: usize, served: &Served) {
        if let Some(visitor) = self.visitors.get_mut(visitor) {
            visitor.out = served.encode();
            if !visitor.write() {
                visitor.until = 0;
            }
        }
    }
}

impl Visitor {
    /// The first line of a request, when all of it has come; nothing yet, or the visitor has left.
    fn read(&mut self) -> Option<Option<String>> {
        let mut bytes = [0; REQUEST_MAX];
        loop {
            match read(&self.socket, &mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Some(None),
                Err(_) => return None,
            }
            let is_whole = self.input.windows(4).any(|end| end == b"\r\n\r\n");
            if is_whole {
                let line = self
                    .input
                    .split(|byte| *byte == b'\r')
                    .next()
                    .unwrap_or_default();
                return Some(Some(String::from_utf8_lossy(line).into_owned()));
            }
            if self.input.len() > REQUEST_MAX {
                return None;
            }
        }
    }

    /// Writes what it can; false if all is written, or the visitor has left.
    fn write(&mut self) -> bool {
        while !self.out.is_empty() {
            match write(&self.socket, &self.out) {
                Ok(written) => {
                    self.out.drain(..written);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

fn path(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => Some(path.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn visit(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut page = Page::new(Some(listener), None).unwrap();
        stream.write_all(request).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        for now in 0..2_000_000 {
            for (visitor, asked) in page.read(now) {
                let text = format!("{} {}", asked.path, asked.is_private);
                page.answer(visitor, &Served::text(text));
            }
            match stream.read_to_end(&mut text) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn a_visitor_is_served_once() {
        let text = visit(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n/metrics false"),
            "{text}"
        );
    }

    #[test]
    fn whoever_asks_for_something_else_is_told_or_ignored() {
        assert!(visit(b"POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 400"));
        assert!(visit(b"\r\n\r\n").starts_with("HTTP/1.0 400"));
        assert!(visit(b"\xff\xfe\r\n\r\n").starts_with("HTTP/1.0 400"));
        assert_eq!(visit(&[b'a'; 3 * REQUEST_MAX]), "");
    }

    #[test]
    fn visits_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let streams = (0..VISITORS_MAX + 4)
            .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let streams = streams.collect::<Vec<TcpStream>>();
        let mut page = Page::new(Some(listener), None).unwrap();
        while page.visitors.len() < VISITORS_MAX {
            page.read(0);
        }
        assert_eq!(page.due(), Some(VISIT_NS));
        page.read(VISIT_NS);
        assert_eq!(page.visitors.len(), 0);
        drop(streams);
    }
}
