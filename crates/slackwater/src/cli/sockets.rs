//! `slackwater sockets`: starts a program whose TCP connections within this host go through shared memory.
//!
//! The work is done by a library, `crates/sockets`, which the dynamic linker loads before the program's own.
//! This command finds the library, hands its options over as environment variables, and becomes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::terminal::say;

const LIBRARY: &str = "libslackwater_sockets.so";
const LIBRARY_VARIABLE: &str = "SLACKWATER_SOCKETS_LIBRARY";
const PRELOAD: &str = "LD_PRELOAD";
/// A lane of more than this is a mistake: each connection has two.
const LANE_KIB_MAX: u64 = 64 * 1024;
/// Nobody spins or sleeps for longer without looking at the socket.
const WAIT_US_MAX: u64 = 1_000_000;

pub(super) const HELP: &str = "\
Connections of two programs that both run under this command, as the same user of the same host, go
through shared memory. All others stay TCP. The library is looked for beside slackwater, in
../lib/slackwater, and in $SLACKWATER_SOCKETS_LIBRARY. Programs that are linked statically are not changed.

  slackwater sockets -- redis-server --port 7000
  slackwater sockets --wait spin -- redis-benchmark -p 7000
  slackwater sockets --wait sleep --statistics counts.json -- python3 -m http.server";

/// How a side waits that has nothing to read.
#[derive(Clone, Copy, ValueEnum)]
enum Wait {
    /// Look again and again: the lowest latency, and a core that is busy while the program waits
    Spin,
    /// Sleep for a fixed time and look again: the least CPU time
    Sleep,
    /// Sleep until the other side wakes it
    Interrupt,
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Wait::Spin => "spin",
            Wait::Sleep => "sleep",
            Wait::Interrupt => "interrupt",
        }
    }
}

/// The options and the program.
#[derive(Args)]
pub(super) struct Arguments {
    /// How the program waits for what comes through shared memory
    #[arg(long, value_enum, default_value_t = Wait::Interrupt)]
    wait: Wait,
    /// Before any other wait, look again and again for this long [default: 10000 with --wait spin, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=WAIT_US_MAX))]
    spin_us: Option<u64>,
    /// With --wait sleep: the length of a sleep
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=WAIT_US_MAX))]
    sleep_us: u64,
    /// The size of each direction of a connection in shared memory
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u64).range(4..=LANE_KIB_MAX))]
    lane_kib: u64,
    /// Say on standard error which connections move to shared memory, and why others stay TCP
    #[arg(long)]
    verbose: bool,
    /// Append a line of JSON with counters to this file when a process ends
    #[arg(long, value_name = "FILE")]
    statistics: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Becomes the program; returns only if that fails, with what to tell the user.
pub(super) fn become_program(arguments: &Arguments) -> String {
    let library = match library() {
        Ok(library) => library,
        Err(error) => return error,
    };
    let Some((program, words)) = arguments.program.split_first() else {
        return "PROGRAM: a program is missing\n  = slackwater sockets -- PROGRAM ARGUMENTS"
            .to_owned();
    };
    if let Some(path) = found(program)
        && let Some(why) = ignores_preload(&path)
    {
        say(&format!(
            "warning: {}: {why}, so its connections stay TCP\n",
            path.display()
        ));
    }
    let mut preload = library.into_os_string();
    if let Some(before) = env::var_os(PRELOAD).filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(program);
    command
        .args(words)
        .env(PRELOAD, preload)
        .env("SLACKWATER_SOCKETS_WAIT", arguments.wait.name())
        .env(
            "SLACKWATER_SOCKETS_SLEEP_US",
            arguments.sleep_us.to_string(),
        )
        .env(
            "SLACKWATER_SOCKETS_LANE_KIB",
            arguments.lane_kib.to_string(),
        );
    if let Some(spin) = arguments.spin_us {
        command.env("SLACKWATER_SOCKETS_SPIN_US", spin.to_string());
    }
    if arguments.verbose {
        command.env("SLACKWATER_SOCKETS_VERBOSE", "1");
    }
    if let Some(file) = &arguments.statistics {
        // The program may change its folder before it ends.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        if let Err(error) = fs::OpenOptions::new().append(true).create(true).open(&file) {
            return format!("--statistics {}: {error}", file.display());
        }
        command.env("SLACKWATER_SOCKETS_STATISTICS", file);
    }
    let error = command.exec();
    format!("{}: {error}", Path::new(program).display())
}

/// The library, or what to tell the user.
fn library() -> Result<PathBuf, String> {
    let this = env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let folder = this.parent().unwrap_or(Path::new("."));
    let named = env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let places = match &named {
        Some(file) => vec![file.clone()],
        None => vec![
            folder.join(LIBRARY),
            folder.join("../lib/slackwater").join(LIBRARY),
        ],
    };
    let Some(file) = places.iter().find_map(|place| fs::canonicalize(place).ok()) else {
        return Err(match named {
            Some(file) => format!("{LIBRARY_VARIABLE}: there is no file {}", file.display()),
            None => format!(
                "{LIBRARY} is neither in {} nor in ../lib/slackwater\n  \
                 = build it with: cargo build --release -p slackwater-sockets\n  \
                 = or name it in {LIBRARY_VARIABLE}",
                folder.display()
            ),
        });
    };
    if file
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :\t\n".contains(byte))
    {
        return Err(format!(
            "{}: {PRELOAD} can't hold a path with a space or a colon\n  \
             = copy the library to another folder, and name it in {LIBRARY_VARIABLE}",
            file.display()
        ));
    }
    Ok(file)
}

/// The file of a program, as execvp finds it.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Why the dynamic linker doesn't load the library into this program, if it doesn't.
fn ignores_preload(program: &Path) -> Option<&'static str> {
    let mode = fs::metadata(program).ok()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some("runs as another user or group than who starts it");
    }
    let file = fs::read(program).ok()?;
    is_static(&file).then_some("is linked statically")
}

/// Whether this is an ELF program of 64 bits without a dynamic linker (program header PT_INTERP).
fn is_static(file: &[u8]) -> bool {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..at.checked_add(bytes)?)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0_u64, |value, byte| value << 8 | u64::from(*byte)),
        )
    };
    let headers = || {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let places = (0..count).map(move |index| start.checked_add(index * size));
        places.collect::<Option<Vec<u64>>>()
    };
    // 64 bits, little endian.
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    headers().is_some_and(|places| {
        let kind = |place: u64| number(usize::try_from(place).ok()?, 4);
        places
            .into_iter()
            .all(|place| kind(place).is_some_and(|kind| kind != PT_INTERP))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header of 64 bytes and one program header of this kind.
    fn elf(kind: u8) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64] = kind;
        file
    }

    #[test]
    fn programs_without_a_dynamic_linker_are_static() {
        assert!(is_static(&elf(1)));
        assert!(!is_static(&elf(3)));
        assert!(!is_static(b"#!/bin/sh\n"));
        // Headers that end too early say nothing.
        assert!(!is_static(&elf(1)[..60]));
    }
}
