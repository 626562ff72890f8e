//! The table of routes: a method, a path and who answers.

use std::sync::Arc;

use hyper::{Method, StatusCode};

use super::message::{Answer, Asked, Reply};

/// Answers requests; without blocking, unless the route says so.
pub type Handler = Arc<dyn Fn(Asked, Reply) + Send + Sync>;

/// A row of the table.
pub struct Route {
    method: Method,
    /// The parts of the path; `{name}` stands for any.
    parts: Vec<&'static str>,
    path: &'static str,
    /// The bytes of a body at most.
    pub(super) body_max: usize,
    /// Whether it is answered without a token.
    pub(super) is_open: bool,
    /// Whether the handler may block, and has a thread of its own.
    pub(super) blocks: bool,
    pub(super) handler: Handler,
}

/// The table of routes, in the order in which hints name them.
#[derive(Default)]
pub struct Routes {
    routes: Vec<Route>,
}

/// What the table says of a request.
pub enum Found<'a> {
    /// A route, with what stands for its `{…}`.
    Route(&'a Route, Vec<String>),
    /// There is none, and this is the answer.
    Nothing(Answer),
}

impl Routes {
    /// Adds a page that is read.
    #[must_use]
    pub fn get(
        self,
        path: &'static str,
        handler: impl Fn(Asked, Reply) + Send + Sync + 'static,
    ) -> Routes {
        self.on(Method::GET, path, 0, handler)
    }

    /// Adds a route whose requests have a body of at most `body_max` bytes. In its path, `{name}` stands for
    /// any part ([`Asked::parts`]).
    #[must_use]
    pub fn on(
        mut self,
        method: Method,
        path: &'static str,
        body_max: usize,
        handler: impl Fn(Asked, Reply) + Send + Sync + 'static,
    ) -> Routes {
        self.routes.push(Route {
            method,
            parts: path.split('/').collect(),
            path,
            body_max,
            is_open: false,
            blocks: false,
            handler: Arc::new(handler),
        });
        self
    }

    /// Lets anybody ask the last route, without the token: it tells nothing but its status.
    #[must_use]
    pub fn open(mut self) -> Routes {
        self.routes
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|route| route.is_open = true);
        self
    }

    /// Lets the handler of the last route block: it runs on one of a bounded number of threads
    /// ([`super::Limits::threads`]).
    #[must_use]
    pub fn blocking(mut self) -> Routes {
        self.routes
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|route| route.blocks = true);
        self
    }

    /// The methods and paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = (&Method, &'static str)> {
        self.routes.iter().map(|route| (&route.method, route.path))
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> Found<'_> {
        // Who may read a page may ask for its headers, too.
        let method = match *method {
            Method::HEAD => &Method::GET,
            _ => method,
        };
        let mut allowed = Vec::new();
        for route in &self.routes {
            let Some(parts) = route.matches(path) else {
                continue;
            };
            if route.method == *method {
                return Found::Route(route, parts);
            }
            allowed.push(route.method.as_str());
        }
        if !allowed.is_empty() {
            let allowed = allowed.join(", ");
            let reason = format!("{method} is not supported at {path}");
            let hint = format!("use {allowed}");
            let answer = Answer::deny(StatusCode::METHOD_NOT_ALLOWED, reason, &hint);
            return Found::Nothing(answer.with("allow", &allowed));
        }
        let mut paths = Vec::new();
        for route in &self.routes {
            if !paths.contains(&route.path) {
                paths.push(route.path);
            }
        }
        let hint = format!("try {}", paths.join(", "));
        Found::Nothing(Answer::deny(
            StatusCode::NOT_FOUND,
            "there is nothing here",
            &hint,
        ))
    }
}

impl Route {
    /// What stands for the `{…}` of the path; `None` if it is another path.
    fn matches(&self, path: &str) -> Option<Vec<String>> {
        let mut found = Vec::new();
        let mut parts = path.split('/');
        for own in &self.parts {
            let part = parts.next()?;
            match own.starts_with('{') {
                true if !part.is_empty() => found.push(decoded(part)?),
                true => return None,
                false if *own == part => {}
                false => return None,
            }
        }
        parts.next().is_none().then_some(found)
    }
}

/// A part of a path without its percent-encoding; `None` if that is not valid.
fn decoded(part: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
    while let [first, others @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = others;
            continue;
        }
        let digits = others.get(..2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &others[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Routes {
        let nothing = |_: Asked, _: Reply| {};
        Routes::default()
            .get("/metrics", nothing)
            .get("/v1/jobs/{name}", nothing)
            .on(Method::DELETE, "/v1/jobs/{name}", 10, nothing)
            .get("/healthz", nothing)
            .open()
    }

    fn found(method: &Method, path: &str) -> Result<(String, Vec<String>), u16> {
        match table().find(method, path) {
            Found::Route(route, parts) => Ok((format!("{} {}", route.method, route.path), parts)),
            Found::Nothing(answer) => Err(answer.status().as_u16()),
        }
    }

    #[test]
    fn a_route_is_found_by_method_and_path() {
        let metrics = ("GET /metrics".to_string(), vec![]);
        assert_eq!(found(&Method::GET, "/metrics"), Ok(metrics.clone()));
        assert_eq!(found(&Method::HEAD, "/metrics"), Ok(metrics));
        assert_eq!(
            found(&Method::DELETE, "/v1/jobs/a%20b"),
            Ok((
                "DELETE /v1/jobs/{name}".to_string(),
                vec!["a b".to_string()]
            ))
        );
        let quoted = found(&Method::GET, "/v1/jobs/%C3%A9%2F%25");
        assert_eq!(quoted.unwrap().1, ["é/%"]);
        let paths = ["/metrics/", "/", "/v1/jobs/", "/v1/jobs/a/b", "metrics"];
        let broken = ["/v1/jobs/%", "/v1/jobs/%g0", "/v1/jobs/%é", "/v1/jobs/%ff"];
        for path in paths.into_iter().chain(broken) {
            assert_eq!(found(&Method::GET, path), Err(404), "{path}");
        }
        assert_eq!(found(&Method::POST, "/metrics"), Err(405));
    }

    #[test]
    fn only_the_last_route_is_opened() {
        let open = table().routes.into_iter().filter(|route| route.is_open);
        let open = open.map(|route| route.path).collect::<Vec<_>>();
        assert_eq!(open, ["/healthz"]);
    }
}
