//! A request as a handler gets it, and its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::oneshot;

/// A request.
#[derive(Debug)]
pub struct Asked {
    /// The path, such as `/v1/jobs/flights`.
    pub path: String,
    /// What follows `?`.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The parts of the path in the places of `{…}`, in order.
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
    body: Bytes,
}

impl Answer {
    /// An answer of a content type.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Answer {
            status,
            headers,
            body: body.into(),
        }
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

    pub(super) fn into_response(self) -> Response<Whole> {
        let mut response = Response::new(Whole(Some(self.body)));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// A body in one piece.
pub struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.0.take().filter(|bytes| !bytes.is_empty());
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
