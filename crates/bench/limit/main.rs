//! `slackwater-limit`: two queries written by hand, which the engine is compared with: HiBench's
//! fixwindow over a file, and a filter between two sockets (`filter.rs`), which `slackwater bench target`
//! runs.
//!
//! Fixwindow: one thread, one memory-mapped file, `memchr`, one hash map per open window. It reads only
//! the two fields that the answer needs (send time and address) and checks neither quotes, number of
//! fields, UTF-8, NULL nor lateness by partition. So it shows what the machine can do for this query, and
//! an engine that does check those is compared with it.
//!
//! ```text
//! slackwater-limit visits.csv [--results out.csv]     one line of JSON with rows, cost, checksum
//! slackwater-limit --checksum out.csv                 rows and checksum of a result file
//! slackwater-limit filter|wide --connect HOST:PORT --to HOST:PORT [--core N]
//!                                                     records from one, rows to the other
//! ```
//!
//! A record is `send time in ms,page,address,…` up to a line feed. A result row is
//! `window start in ms,address,count,first send time in ms`; the checksum is the wrapping sum of
//! the FNV-1a hashes of those rows as text, so that their order does not matter.

mod filter;
mod fix_window;
mod usage;

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::ExitCode;

use filter::Fields;
use fix_window::{FixWindow, Window, read_records};

/// FNV-1a, 64 bits (Fowler, Noll and Vo): a few lines, the same everywhere.
fn fnv1a(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, mix)
}

/// Counts result rows, sums their hashes, and writes them where asked.
struct Results {
    rows: u64,
    checksum: u64,
    file: Option<BufWriter<File>>,
    line: Vec<u8>,
}

impl Results {
    fn to(file: Option<File>) -> Results {
        Results {
            rows: 0,
            checksum: 0,
            file: file.map(BufWriter::new),
            line: Vec::new(),
        }
    }

    fn take(&mut self, window: Window) -> Result<(), String> {
        for (address, length, group) in window.groups() {
            self.line.clear();
            let (start_ms, count, first_ms) = (window.start_ms, group.count, group.first_ms);
            write!(self.line, "{start_ms},").expect("a vector takes everything");
            self.line.extend_from_slice(&address[..length]);
            write!(self.line, ",{count},{first_ms}").expect("a vector takes everything");
            self.rows += 1;
            self.checksum = self.checksum.wrapping_add(fnv1a(&self.line));
            if let Some(file) = &mut self.file {
                self.line.push(b'\n');
                file.write_all(&self.line)
                    .map_err(|error| format!("--results: {error}"))?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(u64, u64), String> {
        if let Some(file) = &mut self.file {
            file.flush()
                .map_err(|error| format!("--results: {error}"))?;
        }
        Ok((self.rows, self.checksum))
    }
}

fn measure(path: &str, results: Option<&str>) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    // Maps all pages at once: one page fault for every 16 pages would cost a sixth more.
    //
    // SAFETY: no process writes to or truncates the file while it is mapped: the experiment that
    // generates it waits for this program to end before it removes it.
    let map = unsafe { memmap2::MmapOptions::new().populate().map(&file) }
        .map_err(|error| format!("{path}: {error}"))?;
    let file = match results {
        Some(path) => Some(File::create(path).map_err(|error| format!("{path}: {error}"))?),
        None => None,
    };
    let mut results = Results::to(file);
    let mut query = FixWindow::new();
    let rows = read_records(&map, |time_ms, address| match query.add(time_ms, address) {
        None => Ok(()),
        Some(closed) => results.take(closed),
    })
    .map_err(|error| format!("{path}: {error}"))?;
    for window in query.end() {
        results.take(window)?;
    }
    let (result_rows, checksum) = results.finish()?;
    let cpu_s = usage::process_cpu_s();
    let peak_rss_bytes = usage::peak_rss_bytes();
    let rows_late = query.rows_late();
    Ok(format!(
        "{{\"rows\": {rows}, \"result_rows\": {result_rows}, \"checksum\": \"{checksum:016x}\", \
         \"rows_late\": {rows_late}, \"cpu_s\": {cpu_s:.6}, \"peak_rss_bytes\": {peak_rss_bytes}}}"
    ))
}

fn checksum(path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{path}: {error}");
    let (mut rows, mut checksum) = (0u64, 0u64);
    for line in BufReader::new(File::open(path).map_err(failed)?).lines() {
        rows += 1;
        checksum = checksum.wrapping_add(fnv1a(line.map_err(failed)?.as_bytes()));
    }
    Ok(format!(
        "{{\"result_rows\": {rows}, \"checksum\": \"{checksum:016x}\"}}"
    ))
}

fn filter_between(
    fields: &str,
    from: &str,
    to: &str,
    core: Option<&str>,
) -> Result<String, String> {
    core.map_or(Ok(()), filter::pin)?;
    let fields = match fields {
        "wide" => Fields::Ten,
        _ => Fields::Few,
    };
    let counts = filter::connect(from, to, fields)?;
    let cpu_s = usage::process_cpu_s();
    Ok(format!(
        "{{\"records\": {}, \"rows\": {}, \"cpu_s\": {cpu_s:.6}}}",
        counts.records, counts.rows
    ))
}

const USAGE: &str = "usage: slackwater-limit FILE [--results FILE]\n       \
                     slackwater-limit --checksum FILE\n       \
                     slackwater-limit filter|wide --connect HOST:PORT --to HOST:PORT [--core N]";

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect::<Vec<String>>();
    let arguments = arguments.iter().map(String::as_str).collect::<Vec<&str>>();
    let done = match arguments.as_slice() {
        ["--checksum", path] => checksum(path),
        [name @ ("filter" | "wide"), "--connect", from, "--to", to] => {
            filter_between(name, from, to, None)
        }
        [
            name @ ("filter" | "wide"),
            "--connect",
            from,
            "--to",
            to,
            "--core",
            core,
        ] => filter_between(name, from, to, Some(core)),
        [path] if !path.starts_with('-') => measure(path, None),
        [path, "--results", results] if !path.starts_with('-') => measure(path, Some(results)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
