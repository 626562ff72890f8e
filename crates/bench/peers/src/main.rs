//! Peers: other libraries that carry messages from core to core, measured by the loops that measure
//! the links of Slackwater.
//!
//! `slackwater bench link` starts `slackwater-peers KIND LEADER-CORE FOLLOWER-CORE`, which reads orders
//! from standard input and answers on standard output, one line of JSON each. A fourth argument is the
//! descriptor by which a follower finds its leader. Without arguments the program lists its kinds.

mod iceoryx;
mod ring;

// Source files of Slackwater itself, compiled here once more: depending on the product's crate would pull
// in the whole product, and a library that both use would have to be a part of the product.
#[allow(dead_code, unused_imports)]
#[path = "../../../slackwater/src"]
mod own {
    pub mod measure;
}

use std::os::fd::RawFd;
use std::process::{Command, ExitCode};

use own::measure;
use own::measure::{Cores, Kind, program};

/// The libraries, with their versions as `Cargo.lock` has them.
const KINDS: [(&str, &str); 2] = [
    ("rtrb", "rtrb 0.4, a ring buffer inside a process"),
    (
        "iceoryx2",
        "iceoryx2 0.10, publish and subscribe in shared memory",
    ),
];

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1).collect::<Vec<String>>();
    if arguments.is_empty() {
        for (name, what) in KINDS {
            println!("{name}\t{what}");
        }
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let usage = || "usage: slackwater-peers KIND LEADER-CORE FOLLOWER-CORE".to_string();
    let (kind, leader, follower) = match arguments {
        [kind, leader, follower] | [kind, leader, follower, _] => (kind, leader, follower),
        _ => return Err(usage()),
    };
    let number = |text: &String| text.parse::<usize>().map_err(|_| usage());
    let cores = Cores {
        leader: number(leader)?,
        follower: number(follower)?,
    };
    let follow = arguments.get(3).map(|text| text.parse::<RawFd>());
    let follow = follow.transpose().map_err(|_| usage())?;
    let again = |descriptor: RawFd| {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args([kind, leader, follower]);
        command.arg(descriptor.to_string());
        Ok(command)
    };
    match (kind.as_str(), follow) {
        ("rtrb", None) => {
            let (ours, theirs) = ring::pair();
            program::lead_thread(ours, theirs, cores)
        }
        ("iceoryx2", None) => {
            let (control, child) = program::start_follower(again)?;
            let led = measure::pin(cores.leader)
                .and_then(|()| iceoryx::Peer::new(child.id(), true))
                .and_then(|side| program::lead_all(side, &control));
            // Before the wait: the follower ends when its control socket is closed.
            drop(control);
            program::with_child(child, led)
        }
        ("iceoryx2", Some(descriptor)) => {
            measure::pin(cores.follower)?;
            let control = program::inherit(descriptor)?;
            program::follow_all(iceoryx::Peer::new(std::process::id(), false)?, &control)
        }
        // Slackwater's own links, for work on these without the whole product.
        (name, follow) => match Kind::named(name) {
            Some(own) => program::run(own, cores, follow, again),
            None => Err(format!(
                "there is no peer '{name}'; without arguments the peers are listed"
            )),
        },
    }
}
