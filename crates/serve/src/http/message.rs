//! A request as a handler gets it, and its answer.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::oneshot;

use super::events::{Events, Piece};
use super::stream::{Outlet, Stream};
use crate::backend::{Cancelled, Kind, Refusal};

/// The paths below this are for programs.
const API: &str = "/v1/";

/// A request.
#[derive(Debug)]
pub struct Asked {
    /// The path, such as `/v1/jobs/flights`.
    pub path: String,
    /// What follows `?`.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The parts of the path in the places of `{…}`, in order, without percent-encoding.
    pub parts: Vec<String>,
    /// The body.
    pub body: Bytes,
    /// Set when the client has gone.
    pub cancelled: Cancelled,
}

/// Where the answer to a request goes. Dropping it answers that the server is busy.
#[derive(Debug)]
pub struct Reply(oneshot::Sender<Answer>);

impl Reply {
    pub(super) fn new() -> (Reply, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Reply(sender), receiver)
    }

    /// Sends the answer; it is lost if the client has gone.
    pub fn send(self, answer: Answer) {
        let _ = self.0.send(answer);
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Content,
    /// Why a request was not answered, as long as this is not in the body.
    refusal: Option<Box<Refusal>>,
}

/// What an answer consists of.
#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Events(Box<Events>),
    Stream(Box<Stream>),
}

impl Answer {
    /// An answer of a content type.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Answer {
            status,
            headers,
            body: Content::Whole(body.into()),
            refusal: None,
        }
    }

    /// A refusal: as JSON below [`API`], where programs ask, otherwise as text.
    pub fn refuse(status: StatusCode, refusal: Refusal) -> Answer {
        let mut answer = Answer::text(status, "");
        answer.refusal = Some(Box::new(refusal));
        answer
    }

    /// A refusal of this server itself.
    pub(super) fn deny(status: StatusCode, message: impl Into<String>, hint: &str) -> Answer {
        let kind = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Kind::Denied,
            StatusCode::NOT_FOUND => Kind::Undefined,
            StatusCode::REQUEST_TIMEOUT => Kind::Cancelled,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::SERVICE_UNAVAILABLE => Kind::Limit,
            _ => Kind::Syntax,
        };
        let mut refusal = Refusal::new(kind, message);
        refusal.hint = Some(hint.to_string()).filter(|hint| !hint.is_empty());
        Answer::refuse(status, refusal)
    }

    /// A body that is sent while it is produced, until the outlet is dropped or the client has gone, which
    /// sets `cancelled`. `lasts`: it goes on as long as the client listens.
    pub fn stream(
        content_type: &'static str,
        lasts: bool,
        cancelled: Cancelled,
    ) -> (Outlet, Answer) {
        let (outlet, stream) = Stream::new(lasts, cancelled);
        let mut answer = Answer::new(StatusCode::OK, content_type, Bytes::new());
        answer.body = Content::Stream(Box::new(stream));
        (outlet, answer.with("cache-control", "no-store"))
    }

    /// JSON.
    pub fn json(status: StatusCode, text: String) -> Answer {
        Answer::new(status, "application/json", text).with("cache-control", "no-store")
    }

    /// A stream of events: `ask` is called at once and then so often, as long as the client listens.
    pub fn events(every: Duration, ask: impl FnMut(Piece) + Send + 'static) -> Answer {
        let mut answer = Answer::new(StatusCode::OK, "text/event-stream", Bytes::new());
        answer.body = Content::Events(Box::new(Events::new(every, Box::new(ask))));
        answer.with("cache-control", "no-store")
    }

    /// Whether it goes on as long as the client listens.
    pub(super) fn lasts(&self) -> bool {
        match &self.body {
            Content::Whole(_) => false,
            Content::Events(_) => true,
            Content::Stream(stream) => stream.lasts(),
        }
    }

    /// Whether it is sent while it is produced.
    pub(super) fn is_stream(&self) -> bool {
        !matches!(self.body, Content::Whole(_))
    }

    /// Writes a refusal into the body, in the form for those who ask at `path`.
    pub(super) fn for_path(mut self, path: &str) -> Answer {
        let Some(refusal) = self.refusal.take() else {
            return self;
        };
        let (content_type, body) = match path.starts_with(API) {
            true => ("application/json", format!("{}\n", refusal.json())),
            false => {
                let hint = refusal.hint.map(|hint| format!("  = {hint}\n"));
                let text = format!("{}\n{}", refusal.message, hint.unwrap_or_default());
                ("text/plain; charset=utf-8", text)
            }
        };
        let value = HeaderValue::from_static(content_type);
        self.headers.insert(CONTENT_TYPE, value);
        self.body = Content::Whole(body.into());
        self
    }

    /// A text.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", text.into())
    }

    /// With another header.
    pub fn with(mut self, name: &'static str, value: &str) -> Answer {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// Closes the connection afterwards: for clients that come seldom, so that no timer has to.
    pub fn closing(self) -> Answer {
        self.with("connection", "close")
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The response. A stream's connection is `busy` as long as its body is sent, at most for `time` unless
    /// it lasts.
    pub(super) fn into_response(self, busy: Option<Busy>, time: Duration) -> Response<Sent> {
        let mut response = Response::new(match self.body {
            Content::Whole(bytes) => Sent::Whole(bytes),
            Content::Events(events) => Sent::Events {
                events,
                _busy: busy,
            },
            Content::Stream(mut stream) => {
                stream.end_within(time);
                Sent::Stream {
                    stream,
                    _busy: busy,
                }
            }
        });
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// What a connection holds while it sends a stream.
pub type Busy = Box<dyn Any>;

/// One of the places for streams, which is free again when this is dropped.
pub struct StreamPlace(Rc<Cell<usize>>);

impl StreamPlace {
    /// Takes a place, if fewer than `max` are taken.
    pub(super) fn take(taken: &Rc<Cell<usize>>, max: usize) -> Option<StreamPlace> {
        if taken.get() >= max {
            return None;
        }
        taken.set(taken.get() + 1);
        Some(StreamPlace(Rc::clone(taken)))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A body that is sent: in one piece, event by event, or piece by piece.
pub enum Sent {
    Whole(Bytes),
    Events {
        events: Box<Events>,
        /// Dropped when the client has gone.
        _busy: Option<Busy>,
    },
    Stream {
        stream: Box<Stream>,
        /// Dropped when it is sent, or the client has gone.
        _busy: Option<Busy>,
    },
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let bytes = match &mut *self {
            Sent::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready(Some(bytes).filter(|bytes| !bytes.is_empty()))
            }
            Sent::Events { events, .. } => events.poll_next(context),
            Sent::Stream { stream, .. } => {
                let piece = stream.poll_next(context);
                return piece.map(|piece| piece.map(|piece| piece.map(Frame::data)));
            }
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Sent::Events { .. } | Sent::Stream { .. } => SizeHint::default(),
        }
    }
}
