//! The server in a process of its own, so that its memory and its files are not those of the tests.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::door;
use slackwater_serve::postgres::Limits;

/// The variable with the passwords; empty for none.
const PASSWORDS: &str = "SLACKWATER_TEST_PASSWORDS";
/// What stands before the address in the output.
const ADDRESS: &str = "the address is ";

pub struct Server {
    process: Child,
    /// The process ends when this is closed.
    _input: ChildStdin,
    pub address: SocketAddr,
}

impl Server {
    /// Starts this program again, as a server with the default limits.
    pub fn new(passwords: &str) -> Server {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "child::serves"])
            .env(PASSWORDS, passwords)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| Some(line.unwrap().split_once(ADDRESS)?.1.parse().unwrap()));
        Server {
            _input: process.stdin.take().unwrap(),
            address: address.expect("the server has started"),
            process,
        }
    }

    /// The most bytes of memory that the server has had until now.
    pub fn memory_max(&self) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .unwrap()
            << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let running = self.process.try_wait().is_ok_and(|status| status.is_none());
        let _ = self.process.kill();
        let _ = self.process.wait();
        assert!(running || std::thread::panicking(), "the server has ended");
    }
}

#[test]
#[ignore = "the other process of these tests"]
fn serves() {
    let passwords = std::env::var(PASSWORDS).unwrap_or_default();
    let passwords = Some(passwords.as_str()).filter(|text| !text.is_empty());
    let door = door(passwords, Limits::default());
    println!("{ADDRESS}{}", door.address());
    std::io::stdin().read_to_end(&mut vec![]).unwrap();
}
