//! A request as a handler gets it, and its answer.

use std::cell::Cell;
use std::convert::Infallible;
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
}

/// What an answer consists of.
#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Events(Box<Events>),
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
        }
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

    /// Whether it is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.body, Content::Events(_))
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

    /// The response; `place` is kept as long as its body is sent.
    pub(super) fn into_response(self, place: Option<StreamPlace>) -> Response<Sent> {
        let mut response = Response::new(match self.body {
            Content::Whole(bytes) => Sent::Whole(bytes),
            Content::Events(events) => Sent::Events {
                events,
                _place: place,
            },
        });
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

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

/// A body that is sent: in one piece, or event by event.
pub enum Sent {
    Whole(Bytes),
    Events {
        events: Box<Events>,
        /// Dropped when the client has gone.
        _place: Option<StreamPlace>,
    },
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Sent::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready(Some(bytes).filter(|bytes| !bytes.is_empty()))
            }
            Sent::Events { events, .. } => events.poll_next(context),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Sent::Events { .. } => SizeHint::default(),
        }
    }
}
