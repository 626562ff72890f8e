//! A client of a server's HTTP API, for a shell: one request at a time, on the thread that asks.

use std::fmt;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The most bytes of an error that are read.
const ERROR_BYTES_MAX: usize = 1 << 20;

/// A server to ask.
pub struct Client {
    /// HOST:PORT.
    address: String,
    token: Option<String>,
    /// Readable when the user does not want to wait any longer.
    interrupted: Option<UnixStream>,
}

/// Why there is no answer, or only a part of it.
#[derive(Debug)]
pub enum Failed {
    /// The server said no.
    Refused(Refused),
    /// It can't be reached, or the connection broke; the address is named.
    Unreachable(String),
    /// The user did not want to wait any longer.
    Interrupted,
}

/// What a server said instead of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong.
    pub message: String,
    /// What to do; may be empty.
    pub hint: String,
    /// The place in the SQL that was sent, in characters from 0.
    pub position: Option<usize>,
}

impl Client {
    /// A client of the server at `address` (HOST:PORT). A request ends when a byte of `interrupted` can be
    /// read.
    ///
    /// # Errors
    ///
    /// If `interrupted` can't be waited for.
    pub fn new(
        address: &str,
        token: Option<String>,
        interrupted: UnixStream,
    ) -> std::io::Result<Client> {
        interrupted.set_nonblocking(true)?;
        Ok(Client {
            address: address.to_string(),
            token,
            interrupted: Some(interrupted),
        })
    }

    /// A client that nobody interrupts, without a token.
    pub fn of(address: &str) -> Client {
        Client {
            address: address.to_string(),
            token: None,
            interrupted: None,
        }
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The JSON at a path.
    ///
    /// # Errors
    ///
    /// If the server refuses, or can't be reached.
    pub fn json(&self, path: &str) -> Result<Value, Failed> {
        let mut body = Vec::new();
        let mut take = |piece: Bytes| body.extend_from_slice(&piece);
        self.ask(Method::GET, path, None, None, &mut take)?;
        serde_json::from_slice(&body).map_err(|error| self.broken(&error))
    }

    /// Runs SQL after these settings, and hands over the text of the answer as it comes.
    ///
    /// # Errors
    ///
    /// If the server refuses, can't be reached or breaks off. What fails after the answer has begun is its
    /// last line.
    pub fn run(
        &self,
        sql: &str,
        settings: &[(String, String)],
        take: &mut dyn FnMut(Bytes),
    ) -> Result<(), Failed> {
        let settings = settings.iter().cloned();
        let settings = settings.map(|(key, value)| (key, Value::from(value)));
        let settings = settings.collect::<serde_json::Map<_, _>>();
        let body = serde_json::json!({ "query": sql, "settings": settings });
        self.ask(
            Method::POST,
            "/v1/sql?format=text",
            Some(body.to_string()),
            None,
            take,
        )
    }

    /// Sends JSON, for which the server may take so long; its answer is not looked at.
    ///
    /// # Errors
    ///
    /// If the server refuses, can't be reached, or takes too long.
    pub fn post(&self, path: &str, json: String, within: Duration) -> Result<(), Failed> {
        self.ask(Method::POST, path, Some(json), Some(within), &mut |_| {})
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        within: Option<Duration>,
        take: &mut dyn FnMut(Bytes),
    ) -> Result<(), Failed> {
        // What interrupted the request before is not about this one.
        if let Some(mut interrupted) = self.interrupted.as_ref() {
            while matches!(interrupted.read(&mut [0; 64]), Ok(1..)) {}
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| self.broken(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.address);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(body.unwrap_or_default());
        let request = request.map_err(|error| self.broken(&error))?;
        runtime.block_on(async {
            tokio::select! {
                biased;
                interrupted = self.interrupted() => Err(interrupted),
                () = over(within) => {
                    let address = &self.address;
                    Err(Failed::Unreachable(format!("{address} does not answer")))
                }
                answered = self.exchange(request, take) => answered,
            }
        })
    }

    /// Waits until the user does not want to wait any longer.
    async fn interrupted(&self) -> Failed {
        let waiting = self.interrupted.as_ref().map(UnixStream::try_clone);
        let waiting = waiting.map(|waiting| waiting.and_then(tokio::net::UnixStream::from_std));
        let Some(Ok(waiting)) = waiting else {
            // Without descriptors, a request can't be interrupted.
            return std::future::pending().await;
        };
        let mut bytes = [0; 64];
        loop {
            if waiting.readable().await.is_err() {
                return std::future::pending().await;
            }
            if waiting.try_read(&mut bytes).is_ok() {
                return Failed::Interrupted;
            }
        }
    }

    async fn exchange(
        &self,
        request: Request<String>,
        take: &mut dyn FnMut(Bytes),
    ) -> Result<(), Failed> {
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.map_err(|error| {
            let address = &self.address;
            Failed::Unreachable(format!("no server answers at {address}: {error}"))
        })?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.broken(&error))?;
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| self.broken(&error))?;
        let taken = match answer.status().is_success() {
            true => self.pieces(answer, take).await,
            false => {
                let status = answer.status();
                let mut text = Vec::new();
                let mut keep = |piece: Bytes| {
                    let room = ERROR_BYTES_MAX.saturating_sub(text.len());
                    text.extend_from_slice(&piece[..piece.len().min(room)]);
                };
                self.pieces(answer, &mut keep).await?;
                let refused = Refused::read(&text);
                Err(Failed::Refused(refused.unwrap_or_else(|| Refused {
                    message: format!("{}: {status}", self.address),
                    ..Refused::default()
                })))
            }
        };
        connection.abort();
        taken
    }

    async fn pieces(
        &self,
        answer: Response<Incoming>,
        take: &mut dyn FnMut(Bytes),
    ) -> Result<(), Failed> {
        let mut body = answer.into_body();
        let mut next = async || {
            let mut body = Pin::new(&mut body);
            std::future::poll_fn(move |context| body.as_mut().poll_frame(context)).await
        };
        while let Some(frame) = next().await {
            let frame = frame.map_err(|error| self.broken(&error))?;
            if let Ok(piece) = frame.into_data() {
                take(piece);
            }
        }
        Ok(())
    }

    fn broken(&self, error: &dyn std::error::Error) -> Failed {
        let cause = error.source().map(|cause| format!(": {cause}"));
        let (address, cause) = (&self.address, cause.unwrap_or_default());
        Failed::Unreachable(format!("{address}: {error}{cause}"))
    }
}

/// Waits until the time is over; without one, forever.
async fn over(within: Option<Duration>) {
    match within {
        Some(within) => tokio::time::sleep(within).await,
        None => std::future::pending().await,
    }
}

impl Refused {
    /// Reads the error of an answer, which is the last line of its body.
    fn read(body: &[u8]) -> Option<Refused> {
        let last = body.trim_ascii_end().rsplit(|&byte| byte == b'\n').next()?;
        let value = serde_json::from_slice::<Value>(last).ok();
        let Some(error) = value.as_ref().and_then(|value| value.get("error")) else {
            let text = String::from_utf8_lossy(body.trim_ascii_end()).into_owned();
            return (!text.is_empty()).then_some(Refused {
                message: text,
                ..Refused::default()
            });
        };
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        Some(Refused {
            message: text("message")?.to_string(),
            hint: text("hint").unwrap_or_default().to_string(),
            position: error
                .get("position")
                .and_then(Value::as_u64)
                .map(|position| position as usize),
        })
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Refused(refused) if refused.hint.is_empty() => out.write_str(&refused.message),
            Failed::Refused(refused) => write!(out, "{}\n  = {}", refused.message, refused.hint),
            Failed::Unreachable(what) => out.write_str(what),
            Failed::Interrupted => out.write_str("interrupted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_answer_is_its_last_line() {
        let json = br#"{"error":{"kind":"syntax","message":"m","hint":"h","position":3}}"#;
        let refused = Refused {
            message: "m".to_string(),
            hint: "h".to_string(),
            position: Some(3),
        };
        assert_eq!(Refused::read(json), Some(refused));
        let text = Refused::read(b"CREATE TABLE\nERROR: no\n").unwrap();
        assert_eq!(text.message, "CREATE TABLE\nERROR: no");
        assert_eq!(Refused::read(b" \n"), None);
    }
}
