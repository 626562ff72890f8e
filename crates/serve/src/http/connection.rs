//! Connections: their places, their limits, and one request after the other.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Sleep, sleep, timeout};

use super::Limits;
use super::access::Access;
use super::message::{Answer, Asked, Busy, Reply, Sent, StreamPlace};
use super::routes::{Found, Route, Routes};
use crate::backend::Cancelled;

/// The answer to a client for whom there is no place. Short enough for any socket's buffer.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
                      content-length: 31\r\nretry-after: 1\r\nconnection: close\r\n\r\n\
                      there are too many connections\n";

/// After so long without a word, the system asks whether a client is still there.
const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(60);

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The client has not sent a whole request yet, or not the next one.
    Waiting,
    /// The client does not take its answer.
    Stuck,
    /// A handler is at work.
    Answering,
    /// The answer is being sent.
    Sending,
    /// The answer is being sent while it is produced.
    Streaming,
}

/// The connections of a server.
pub struct Connections {
    access: Access,
    routes: Routes,
    limits: Limits,
    /// The open ones, oldest first.
    open: RefCell<Vec<Open>>,
    next: Cell<u64>,
    /// How many of them send events.
    streams: Rc<Cell<usize>>,
    /// Places for handlers that block.
    threads: Arc<Semaphore>,
}

struct Open {
    number: u64,
    phase: Rc<Cell<Phase>>,
    task: Option<AbortHandle>,
}

impl Connections {
    /// No connections yet.
    pub fn new(access: Access, routes: Routes, limits: Limits) -> Connections {
        Connections {
            access,
            routes,
            limits,
            open: RefCell::default(),
            next: Cell::new(0),
            streams: Rc::default(),
            threads: Arc::new(Semaphore::new(limits.threads)),
        }
    }

    /// Serves a client that has connected, if there is a place for it.
    pub fn serve(connections: &Rc<Connections>, stream: TcpStream) {
        if !connections.has_place() {
            // Best effort: the client learns more than from a connection that is reset.
            let _ = stream.try_write(FULL);
            return;
        }
        let number = connections.next.get();
        connections.next.set(number + 1);
        let phase = Rc::new(Cell::new(Phase::Waiting));
        connections.open.borrow_mut().push(Open {
            number,
            phase: Rc::clone(&phase),
            task: None,
        });
        let place = Place {
            connections: Rc::clone(connections),
            number,
        };
        let task = tokio::task::spawn_local(converse(place, stream, phase));
        let mut open = connections.open.borrow_mut();
        if let Some(own) = open.iter_mut().find(|open| open.number == number) {
            own.task = Some(task.abort_handle());
        }
    }

    /// Whether there is a place. If there is none, the client that has waited longest without asking gives
    /// way, or one that does not take its answer.
    fn has_place(&self) -> bool {
        let mut open = self.open.borrow_mut();
        if open.len() < self.limits.connections {
            return true;
        }
        let phases = open.iter().map(|open| open.phase.get()).enumerate();
        let idle = phases.filter(|(_, phase)| *phase <= Phase::Stuck);
        let Some((index, _)) = idle.min_by_key(|(index, phase)| (*phase, *index)) else {
            return false;
        };
        let gone = open.remove(index);
        // The task's end looks for its place.
        drop(open);
        if let Some(task) = gone.task {
            task.abort();
        }
        true
    }

    async fn answer(&self, phase: &Rc<Cell<Phase>>, request: Request<Incoming>) -> Response<Sent> {
        let path = request.uri().path().to_string();
        let found = self.routes.find(request.method(), request.uri().path());
        let is_open = matches!(&found, Found::Route(route, _) if route.is_open);
        let access = &self.access;
        let refused = access.refuses(request.method(), request.headers(), is_open);
        let answer = match (refused, found) {
            (Some(refused), _) => refused,
            (None, Found::Nothing(answer)) => answer,
            (None, Found::Route(route, parts)) => self.ask(phase, route, parts, request).await,
        };
        let place = match answer.lasts() {
            true => StreamPlace::take(&self.streams, self.limits.streams),
            false => None,
        };
        if answer.lasts() && place.is_none() {
            phase.set(Phase::Sending);
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let refused = Answer::deny(status, "too many clients listen", "close a page");
            let refused = refused.for_path(&path);
            return refused.into_response(None, self.limits.stream_time);
        }
        let busy = answer.is_stream().then(|| {
            let phase = Rc::clone(phase);
            phase.set(Phase::Streaming);
            Box::new(Streaming {
                phase,
                _place: place,
            }) as Busy
        });
        if busy.is_none() {
            phase.set(Phase::Sending);
        }
        let answer = answer.for_path(&path);
        answer.into_response(busy, self.limits.stream_time)
    }

    async fn ask(
        &self,
        phase: &Cell<Phase>,
        route: &Route,
        parts: Vec<String>,
        request: Request<Incoming>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let read = timeout(self.limits.body_time, whole(body, route.body_max));
        let body = match read.await {
            Ok(Ok(body)) => body,
            Ok(Err(refused)) => return refused.closing(),
            Err(_) => {
                let (status, reason) = (
                    StatusCode::REQUEST_TIMEOUT,
                    "the body did not arrive in time",
                );
                return Answer::deny(status, reason, "").closing();
            }
        };
        // Not before: a client whose body does not come must not hold a place that others need.
        phase.set(Phase::Answering);
        let (reply, answer) = Reply::new();
        let gone = Gone(Some(Cancelled::default()));
        let asked = Asked {
            path: head.uri.path().to_string(),
            query: head.uri.query().map(str::to_string),
            headers: head.headers,
            parts,
            body,
            cancelled: gone.0.clone().unwrap_or_default(),
        };
        let handled = async {
            if route.blocks {
                let thread = Arc::clone(&self.threads).acquire_owned().await.ok()?;
                let handler = Arc::clone(&route.handler);
                tokio::task::spawn_blocking(move || {
                    handler(asked, reply);
                    drop(thread);
                });
            } else {
                (route.handler)(asked, reply);
            }
            answer.await.ok()
        };
        match timeout(self.limits.answer_time, handled).await {
            Ok(Some(answer)) => {
                gone.keep(answer.is_stream());
                answer
            }
            Ok(None) | Err(_) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Answer::deny(status, "the server is busy", "try again later").closing()
            }
        }
    }
}

/// Cancels the work for a client that goes before there is an answer.
struct Gone(Option<Cancelled>);

impl Gone {
    /// There is an answer. If it is a stream, this cancels the work when it is dropped.
    fn keep(mut self, is_stream: bool) {
        if is_stream {
            self.0 = None;
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        if let Some(cancelled) = &self.0 {
            cancelled.cancel();
        }
    }
}

/// A connection that sends a stream, until this is dropped.
struct Streaming {
    phase: Rc<Cell<Phase>>,
    _place: Option<StreamPlace>,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.phase.set(Phase::Sending);
    }
}

/// The place of a connection, which is free again when this is dropped.
struct Place {
    connections: Rc<Connections>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open.borrow_mut();
        open.retain(|open| open.number != self.number);
    }
}

/// Answers one request after the other, until the client leaves or takes too long.
async fn converse(place: Place, stream: TcpStream, phase: Rc<Cell<Phase>>) {
    let connections = &place.connections;
    let limits = connections.limits;
    // An answer is written at once, so waiting for more of it gains nothing.
    let _ = stream.set_nodelay(true);
    // The system finds out that a client which only listens has gone without a word: no timer has to.
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE);
    let guarded = Guarded {
        stream,
        phase: Rc::clone(&phase),
        write_time: limits.write_time,
        late: None,
        before: Phase::Sending,
    };
    let service = service_fn(|request| {
        let (connections, phase) = (Rc::clone(connections), Rc::clone(&phase));
        async move { Ok::<_, Infallible>(connections.answer(&phase, request).await) }
    });
    // What goes wrong here is the client's doing, and nobody else has to know.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header_bytes)
        .serve_connection(TokioIo::new(guarded), service)
        .await;
}

/// The whole body.
async fn whole(body: Incoming, max: usize) -> Result<Bytes, Box<Answer>> {
    let too_large = || {
        let reason = format!("the body has more than {max} bytes");
        Box::new(Answer::deny(StatusCode::PAYLOAD_TOO_LARGE, reason, ""))
    };
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await
    {
        let Ok(frame) = frame else {
            let reason = "the body can't be read";
            return Err(Box::new(Answer::deny(StatusCode::BAD_REQUEST, reason, "")));
        };
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > max {
                return Err(too_large());
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes.into())
}

/// A connection that fails if its client does not take what is written to it.
struct Guarded {
    stream: TcpStream,
    phase: Rc<Cell<Phase>>,
    write_time: std::time::Duration,
    /// Runs while the client's buffers are full.
    late: Option<Pin<Box<Sleep>>>,
    /// What it did before it got stuck.
    before: Phase,
}

impl Guarded {
    /// A write of `wanted` bytes has ended: it is watched until all that is offered at once is taken.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        wanted: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(taken)) if *taken < wanted => {}
            Poll::Ready(_) => {
                self.late = None;
                if self.phase.get() == Phase::Stuck {
                    self.phase.set(self.before);
                }
            }
            Poll::Pending => {
                let before = self.phase.replace(Phase::Stuck);
                if before != Phase::Stuck {
                    self.before = before;
                }
                let write_time = self.write_time;
                let late = self.late.get_or_insert_with(|| Box::pin(sleep(write_time)));
                if late.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
        written
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.wrote(context, wanted, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() && self.phase.get() == Phase::Sending {
            self.phase.set(Phase::Waiting);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
