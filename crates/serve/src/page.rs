//! The page: jobs, their plan, latency against its target, and a slider for the target. One file of HTML that
//! asks for nothing beyond this server.

use crate::http::{Answer, Routes, StatusCode};

/// What the page may do: run its own script and style, and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The page: markup, style, uPlot with its license, and the scripts.
const HTML: &str = concat!(
    include_str!("page/head.html"),
    "<style>\n",
    include_str!("page/uplot/uPlot.min.css"),
    "\n",
    include_str!("page/style.css"),
    "</style>\n",
    include_str!("page/body.html"),
    "<script>\n/* uPlot 1.6.32\n\n",
    include_str!("page/uplot/LICENSE"),
    "*/\n",
    include_str!("page/uplot/uPlot.iife.min.js"),
    "</script>\n<script>\n'use strict';\n",
    include_str!("page/base.js"),
    include_str!("page/figures.js"),
    include_str!("page/graph.js"),
    include_str!("page/charts.js"),
    include_str!("page/tables.js"),
    include_str!("page/target.js"),
    include_str!("page/server.js"),
    include_str!("page/sql.js"),
    include_str!("page/main.js"),
    "</script>\n</html>\n",
);

/// Adds the page at `/`. Anybody may read it, for it holds nothing but the program: what it shows it asks
/// for, with a token if there is one.
#[must_use]
pub fn routes(routes: Routes) -> Routes {
    let page = |_, reply: crate::http::Reply| {
        let answer = Answer::new(StatusCode::OK, "text/html; charset=utf-8", HTML);
        let answer = answer
            .with("content-security-policy", POLICY)
            .with("x-content-type-options", "nosniff")
            .with("referrer-policy", "no-referrer")
            .with("cache-control", "no-cache");
        // An open connection would need a timer until the browser asks again.
        reply.send(answer.closing());
    };
    routes.get("/", page).open()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a page over a slow network may have.
    const BYTES_MAX: usize = 150_000;

    #[test]
    fn the_page_is_small() {
        println!("the page has {} bytes", HTML.len());
        assert!(HTML.len() < BYTES_MAX, "{} bytes", HTML.len());
    }

    #[test]
    fn the_page_asks_for_nothing_beyond_the_server() {
        let own = HTML.replace("http://www.w3.org/2000/svg", "");
        // uPlot names its home in its first line.
        let own = own.replace("https://github.com/leeoniya/uPlot", "");
        for foreign in [
            "http://",
            "https://",
            "src=\"//",
            "@import",
            "url(",
            "innerHTML",
        ] {
            assert!(!own.contains(foreign), "{foreign}");
        }
        // Otherwise a browser asks for an icon of its own accord.
        let own = own.replace("<link rel=\"icon\" href=\"data:,\">", "");
        // One file: nothing is loaded but by the scripts' own requests.
        for element in ["<link", "<script src", "<img", "<iframe"] {
            assert!(!own.contains(element), "{element}");
        }
    }

    #[test]
    fn uplot_comes_with_its_license() {
        assert!(HTML.contains("Copyright (c) 2022 Leon Sorokin"));
    }
}
