//! The HTTP API of a server: SQL, jobs, views and tables for programs (`docs/http.md`).
//!
//! ```text
//! http.rs ─► a row of `routes` ─► statements.rs, views.rs, jobs.rs, … ─► Backend
//!                                        └ output.rs, forms.rs, rows.rs ─► JSON, Arrow, CSV, text, events
//! ```
//!
//! - Every handler here calls the backend, which blocks, so each runs on a thread of its own, of which there
//!   is a bounded number.
//! - What a view or a job offers is said in SQL, so that a rule of the server is in one place.
//! - Refusals are JSON, with the kind, the place and the hint that the backend gives.

mod forms;
mod jobs;
mod objects;
mod output;
mod query;
mod rows;
mod statements;
mod status;
mod table;
mod views;

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{CONTENT_ENCODING, HeaderValue};

use crate::backend::{Backend, Kind, Refusal};
use crate::http::{Access, Answer, Asked, Limits, Method, Reply, Routes, Server, StatusCode};
use crate::page;

/// The bytes of a request with SQL: far more than a person writes, and as much as a generated script needs.
const SQL_BYTES_MAX: usize = 1 << 20;

/// The bytes of rows that are pushed at once. All connections of [`Limits`] hold at most 64 × 4 MiB.
pub const PUSH_BYTES_MAX: usize = 4 << 20;

/// The bytes of a request that changes a job.
const CHANGE_BYTES_MAX: usize = 64 << 10;

/// The description of this API in the OpenAPI format.
pub const OPENAPI: &str = include_str!("api/openapi.json");

/// The metrics of all jobs, and of the server itself, as pages for Prometheus: those which come in time. The
/// argument says whether each partition is shown.
pub type Pages = Box<dyn Fn(bool) -> Vec<String> + Send + Sync>;

/// How clients reach the API.
pub struct Options {
    /// Where it listens.
    pub address: SocketAddr,
    /// The token that requests have to show; `None` for every program of this machine.
    pub token: Option<String>,
    /// What clients may use.
    pub limits: Limits,
    /// The pages for Prometheus.
    pub pages: Pages,
}

/// What handlers share.
struct Api {
    backend: Arc<dyn Backend>,
    pages: Pages,
}

/// Opens the door.
///
/// # Errors
///
/// If the address can't be listened at, or can be reached from other machines and there is no token.
pub fn open(backend: Arc<dyn Backend>, options: Options) -> std::io::Result<Server> {
    let access = Access::new(options.token);
    let routes = routes(backend, options.pages);
    Server::start(options.address, access, routes, options.limits)
}

/// The table of routes.
pub fn routes(backend: Arc<dyn Backend>, pages: Pages) -> Routes {
    let api = Arc::new(Api { backend, pages });
    let with = |handler: fn(&Api, Asked, Reply)| {
        let api = Arc::clone(&api);
        move |asked: Asked, reply| match not_compressed(&asked) {
            Ok(()) => handler(&api, asked, reply),
            Err(refused) => reply.send(refused.into_answer()),
        }
    };
    let job = "/v1/jobs/{name}";
    page::routes(Routes::default())
        .on(
            Method::POST,
            "/v1/sql",
            SQL_BYTES_MAX,
            with(statements::sql),
        )
        .blocking()
        .get("/v1/jobs", with(jobs::list))
        .blocking()
        .get(job, with(jobs::show))
        .blocking()
        .get("/v1/jobs/{name}/events", with(jobs::events))
        .blocking()
        .get("/v1/jobs/{name}/why", with(jobs::why))
        .blocking()
        .on(Method::PATCH, job, CHANGE_BYTES_MAX, with(jobs::change))
        .blocking()
        .on(Method::DELETE, job, 0, with(jobs::remove))
        .blocking()
        .get("/v1/views", with(objects::views))
        .blocking()
        .get("/v1/views/{name}", with(views::read))
        .blocking()
        .get("/v1/views/{name}/changes", with(views::follow))
        .blocking()
        .get("/v1/tables", with(objects::tables))
        .blocking()
        .on(
            Method::POST,
            "/v1/tables/{name}",
            PUSH_BYTES_MAX,
            with(objects::push),
        )
        .blocking()
        .get("/v1/openapi.json", |_, reply| {
            reply.send(Answer::json(StatusCode::OK, OPENAPI.to_string()));
        })
        .open()
        .get("/metrics", with(status::metrics))
        .blocking()
        .get("/healthz", |_, reply| {
            reply.send(Answer::text(StatusCode::OK, "ok\n").closing());
        })
        .open()
        .get("/readyz", with(status::ready))
        .blocking()
        .open()
}

/// A body that is compressed would be read as it is.
fn not_compressed(asked: &Asked) -> Result<(), Refused> {
    let mut encodings = asked.headers.get_all(CONTENT_ENCODING).iter();
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    match encodings.all(is_plain) {
        true => Ok(()),
        false => Err(Refused {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            refusal: Refusal::new(
                Kind::Value,
                "the body is compressed, which is not supported",
            )
            .hint("send it as it is, without content-encoding"),
        }),
    }
}

/// Answers with what a handler says.
fn answer(reply: Reply, answered: Result<serde_json::Value, Refused>) {
    reply.send(match answered {
        Ok(value) => Answer::json(StatusCode::OK, format!("{value}\n")),
        Err(refused) => refused.into_answer(),
    });
}

/// A refusal with its status.
struct Refused {
    status: StatusCode,
    refusal: Refusal,
}

impl Refused {
    /// What the path names is not there.
    fn missing(refusal: Refusal) -> Refused {
        Refused {
            status: StatusCode::NOT_FOUND,
            refusal,
        }
    }

    fn into_answer(self) -> Answer {
        Answer::refuse(self.status, self.refusal)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        let status = match refusal.kind {
            // What SQL names is no part of the path.
            Kind::Syntax | Kind::Undefined | Kind::UndefinedColumn | Kind::Value => {
                StatusCode::BAD_REQUEST
            }
            Kind::NoSuchJob => StatusCode::NOT_FOUND,
            Kind::Duplicate | Kind::Dependent | Kind::NotRunning => StatusCode::CONFLICT,
            Kind::Cancelled => StatusCode::GATEWAY_TIMEOUT,
            Kind::Limit | Kind::Starting | Kind::Busy | Kind::Unconfirmed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::System => StatusCode::BAD_GATEWAY,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refused { status, refusal }
    }
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A string as SQL writes it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests;
