//! A connection to a server: one command at a time, or many at once.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::resp::{self, Reply};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection.
pub struct Client {
    address: SocketAddr,
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// If nothing listens there.
    pub fn connect(address: SocketAddr) -> Result<Client, String> {
        let connect = || -> std::io::Result<Client> {
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let replies = BufReader::with_capacity(64 << 10, stream.try_clone()?);
            Ok(Client {
                address,
                stream,
                replies,
            })
        };
        connect().map_err(|error| format!("{address}: {error}"))
    }

    /// The reply to a command.
    ///
    /// # Errors
    ///
    /// If the connection fails, or the server reports an error.
    pub fn call(&mut self, arguments: &[&str]) -> Result<Reply, String> {
        let mut bytes = Vec::new();
        let arguments = arguments.iter().map(|argument| argument.as_bytes());
        resp::command(&mut bytes, &arguments.collect::<Vec<&[u8]>>());
        self.send(&bytes)?;
        self.receive()
    }

    /// Sends commands.
    ///
    /// # Errors
    ///
    /// If the connection fails.
    pub fn send(&mut self, commands: &[u8]) -> Result<(), String> {
        let written = self.stream.write_all(commands);
        written.map_err(|error| format!("{}: {error}", self.address))
    }

    /// The next reply.
    ///
    /// # Errors
    ///
    /// If the connection fails, or the server reports an error.
    pub fn receive(&mut self) -> Result<Reply, String> {
        match resp::read(&mut self.replies) {
            Ok(Reply::Error(error)) => Err(format!("{}: {error}", self.address)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(format!("{}: {error}", self.address)),
        }
    }

    /// A field of a section of `INFO`.
    ///
    /// # Errors
    ///
    /// As of [`Client::call`].
    pub fn info(&mut self, section: &str, field: &str) -> Result<Option<String>, String> {
        let text = self.call(&["INFO", section])?.text().unwrap_or_default();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.map(|value| value.trim().to_string()))
    }

    /// The connection itself, to end it from another thread.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn stream(&self) -> Result<TcpStream, String> {
        let stream = self.stream.try_clone();
        stream.map_err(|error| format!("{}: {error}", self.address))
    }
}
