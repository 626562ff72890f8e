//! The commands besides those of Slackwater.

use std::collections::BTreeMap;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::hub::Hub;
use super::query::{self, Query};
use super::serve::Server;
use super::slide::Slide;
use super::writer::Plan;

/// The options of a command: `--name value`, others, and what follows `--`.
pub struct Options {
    named: BTreeMap<String, String>,
    pub others: Vec<String>,
    pub rest: Vec<String>,
}

impl Options {
    /// Reads options.
    ///
    /// # Errors
    ///
    /// When one is not known, or its value is missing.
    pub fn read(arguments: &[String], known: &[&str]) -> Result<Options, String> {
        let mut options = Options {
            named: BTreeMap::new(),
            others: Vec::new(),
            rest: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some("") => options.rest = arguments.by_ref().cloned().collect(),
                Some(name) if known.contains(&name) => {
                    let value = arguments
                        .next()
                        .ok_or_else(|| format!("--{name} needs a value"))?;
                    options.named.insert(name.to_string(), value.clone());
                }
                Some(name) => {
                    let known = known.iter().map(|known| format!("--{known}, "));
                    let known = known.collect::<String>();
                    return Err(format!(
                        "--{name} is not an option; there are {known}--help"
                    ));
                }
                None => options.others.push(argument.clone()),
            }
        }
        Ok(options)
    }

    /// The value of an option.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }

    /// The number that an option has.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn number<N: std::str::FromStr>(&self, name: &str, missing: N) -> Result<N, String> {
        let Some(text) = self.text(name) else {
            return Ok(missing);
        };
        text.parse()
            .map_err(|_| format!("--{name}: '{text}' is not a valid number"))
    }
}

/// `generate FILE`: writes a slide.
pub fn generate(arguments: &[String]) -> Result<(), String> {
    let options = Options::read(arguments, &["width", "height", "tile", "quality", "seed"])?;
    let [file] = options.others.as_slice() else {
        return Err("generate needs the name of one file to write".to_string());
    };
    let quality = options.number("quality", 85)?;
    if !(1..=100).contains(&quality) {
        return Err(format!("--quality {quality}: must be from 1 to 100"));
    }
    let plan = Plan {
        width: options.number("width", 8192)?,
        height: options.number("height", 6144)?,
        tile: options.number("tile", 256)?,
        quality,
        seed: options.number("seed", 1)?,
    };
    plan.write(Path::new(file))
}

/// `info FILE`: what is in a slide.
pub fn info(arguments: &[String]) -> Result<(), String> {
    let options = Options::read(arguments, &[])?;
    let [file] = options.others.as_slice() else {
        return Err("info needs the name of one file".to_string());
    };
    let slide = Slide::open(file)?;
    for level in slide.levels() {
        let (width, height) = (level.width, level.height);
        let (columns, rows) = (level.tile_width, level.tile_height);
        println!(
            "{}: level {}, {width} x {height} pixels, tiles of {columns} x {rows}",
            level.directory, level.halvings
        );
    }
    slide
        .left_out
        .iter()
        .for_each(|reason| println!("left out: {reason}"));
    println!("levels up to {}", slide.halvings_max());
    Ok(())
}

/// `serve`: starts the query, and answers requests until the program is ended.
pub fn serve(arguments: &[String]) -> Result<(), String> {
    let options = Options::read(arguments, &["slide", "listen", "ports", "query"])?;
    if let Some(other) = options.others.first() {
        return Err(format!(
            "'{other}' is not an option; arguments of the query come after --"
        ));
    }
    let file = options.text("slide").unwrap_or("slide.tif");
    let slide = Arc::new(Slide::open(file)?);
    let address = options.text("listen").unwrap_or("127.0.0.1:7490");
    let is_near = address.to_socket_addrs();
    let is_near = is_near.is_ok_and(|mut found| found.all(|found| found.ip().is_loopback()));
    if !is_near {
        return Err(format!(
            "--listen {address}: must be an address of this host alone, such as 127.0.0.1:7490: nothing \
             protects the slide"
        ));
    }
    let listener =
        TcpListener::bind(address).map_err(|error| format!("--listen {address}: {error}"))?;
    let hub = Hub::listen(options.number("ports", 7491)?)?;
    let text = query::text(options.text("query").map(Path::new), file, &hub)?;
    let failed = |error: std::io::Error| error.to_string();
    // Before the query, so that it does not outlive this process.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let query = Query::start(&program, &text, &options.rest)?;
    let address = listener.local_addr().map_err(failed)?;
    println!(
        "http://{address}/ serves {file}; the query is process {}",
        query.process().unwrap_or(0)
    );
    let server = Arc::new(Server::new(hub, slide));
    std::thread::spawn(move || server.answer(&listener));
    while signals.pending().next().is_none() {
        if let Some(reason) = query.failure() {
            return Err(reason);
        }
        std::thread::sleep(query::PAUSE);
    }
    Ok(())
}
