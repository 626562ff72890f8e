//! A viewer of microscope slides: the program with filters of its own, a server that asks them for views, and
//! what `docs/slides.md` measures.
//!
//! ```text
//! slides generate slide.tif [--width 8192 --height 6144 --tile 256]
//! slides serve --slide slide.tif [--listen 127.0.0.1:7490] [--query FILE] [-- arguments of run]
//! slides run crates/slackwater/examples/slides/slides.sql
//! ```

mod bits;
mod decoder;
mod filters;
mod hub;
mod jpeg;
mod measure;
mod options;
mod pixels;
mod planes;
mod query;
mod scan;
mod serve;
mod slide;
mod slow;
mod tiff;
mod tissue;
mod view;
mod writer;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect::<Vec<String>>();
    let (command, rest) = arguments
        .split_first()
        .map_or(("", [].as_slice()), |(first, rest)| (first.as_str(), rest));
    let done = match command {
        "generate" => options::generate(rest),
        "serve" => options::serve(rest),
        "info" => options::info(rest),
        "measure" => measure::run(rest),
        // Worker processes of a query come this way, too.
        _ => {
            return slackwater::main_with(|functions| {
                filters::add(functions);
                view::add(functions);
            });
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::from(2)
        }
    }
}
