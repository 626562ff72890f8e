//! A connection to another host.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A connection.
pub struct Stream(TcpStream);

impl Stream {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If nobody answers.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Stream> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        Ok(Stream::of(stream))
    }

    /// A connection that was accepted.
    pub fn of(stream: TcpStream) -> Stream {
        // Without it, a beat would wait for the acknowledgement of what came before.
        let _ = stream.set_nodelay(true);
        Stream(stream)
    }

    /// Makes reads and writes return.
    pub fn shutdown(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// The address of the other end.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(bytes)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.0).flush()
    }
}
