//! A viewer of microscope slides: the program with filters of its own, a server that asks them for views, and
//! what `docs/slides.md` measures.

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

const HELP: &str = "\
A viewer of microscope slides (docs/slides.md):

  slides generate FILE [--width 8192] [--height 6144] [--tile 256] [--quality 85] [--seed 1]
      writes a slide
  slides info FILE
      says what is in a slide
  slides serve [--slide slide.tif] [--listen 127.0.0.1:7490] [--ports 7491] [--query FILE] [-- OPTION…]
      runs the query, and serves the page; --ports is the first of three ports on which the query is fed and
      answers, 0 for free ones; --query is used instead of slides.sql; OPTION… are those of `slides run`
  slides measure [--seconds 1.5] [--rounds 3] [--only updates,mixed,pipelining,copies] [--json FILE]
      repeats a paper's experiments; use a release build

Other commands are those of slackwater, with the filters of the viewer: `slides run --help`, `slides explain
slides.sql`.
";

#[global_allocator]
static ALLOCATOR: slackwater::Allocator = slackwater::Allocator;

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect::<Vec<String>>();
    let (command, rest) = arguments
        .split_first()
        .map_or(("", [].as_slice()), |(first, rest)| (first.as_str(), rest));
    let is_own = matches!(command, "generate" | "serve" | "info" | "measure");
    let mut before = rest.iter().take_while(|argument| *argument != "--");
    let is_asked = before.any(|argument| ["--help", "-h"].contains(&argument.as_str()));
    if matches!(command, "" | "--help" | "-h" | "help") || is_own && is_asked {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
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
