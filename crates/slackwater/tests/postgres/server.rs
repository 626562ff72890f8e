//! A server of PostgreSQL of a test's own: on a free port of loopback, with its data in a temporary folder.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::sqlite::queries::Database;

pub const PASSWORD: &str = "pass/word 1";

/// Where `make test-postgres` has found the server's programs.
pub fn programs() -> Option<PathBuf> {
    let folder = std::env::var_os("SLACKWATER_POSTGRES").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: no server; run make test-postgres");
    }
    folder
}

/// A server. It is stopped when dropped.
pub struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    /// Whose process it is: the server refuses to run as root.
    user: Option<(u32, u32)>,
    process: Option<Child>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The user `postgres` that Debian's package has made, where the test runs as root.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let id = |option: &str| {
        let id = Command::new("id")
            .args([option, "postgres"])
            .output()
            .unwrap();
        let id = String::from_utf8(id.stdout).unwrap();
        id.trim().parse::<u32>().expect("there is a user postgres")
    };
    Some((id("-u"), id("-g")))
}

impl Server {
    pub fn start(programs: PathBuf) -> Server {
        let mut server = Server {
            programs,
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
            user: unprivileged(),
            process: None,
        };
        let folder = server.folder.path().join("server");
        std::fs::create_dir(&folder).unwrap();
        // The other user has to come through, and to own its data.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(server.folder.path(), open).unwrap();
        let (user, group) = server.user.unzip();
        std::os::unix::fs::chown(&folder, user, group).unwrap();
        let password = folder.join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        let made = server
            .program("initdb")
            .args([
                "-U",
                "tester",
                "-A",
                "scram-sha-256",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
            ])
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "the cluster is not made");
        server.restart();
        server
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Starts it on the data that it had before.
    pub fn restart(&mut self) {
        assert!(self.process.is_none());
        let folder = self.folder.path().join("server");
        let mut log = std::fs::File::options();
        let log = log
            .create(true)
            .append(true)
            .open(folder.join("log"))
            .unwrap();
        let mut server = self.program("postgres");
        server
            .arg("-D")
            .arg(folder.join("data"))
            .args([
                "-p",
                &self.port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
            ])
            .args([
                "-c",
                "shared_buffers=16MB",
                "-c",
                "unix_socket_directories=",
            ])
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.process = Some(server.spawn().expect("the server starts"));
        let begin = Instant::now();
        while self.connect().is_err() {
            let log = || std::fs::read_to_string(folder.join("log"));
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "no server: {:?}",
                log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, as the kernel does when memory is short. Its children notice.
    pub fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        // A new one refuses to begin while they hold the shared memory.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Stops it at once, without killing its children.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let pid = rustix::process::Pid::from_child(&process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = process.wait();
    }

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    fn connect(&self) -> Result<Client, postgres::Error> {
        let mut config = Client::configure();
        config.host("127.0.0.1").port(self.port).user("tester");
        config.dbname("postgres").password(PASSWORD);
        config.connect(NoTls)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Database for Server {
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn options(&self) -> String {
        format!(
            "'connector' = 'postgres', 'url' = 'postgresql://tester@{}/postgres', 'password' = '{PASSWORD}'",
            self.address()
        )
    }

    fn run(&self, statements: &str) {
        self.connect().unwrap().batch_execute(statements).unwrap();
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        let answer = self.connect().unwrap().simple_query(sql).unwrap();
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let rows = rows.map(|row| {
            let values = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL"));
            values.collect::<Vec<_>>().join(",")
        });
        rows.collect()
    }
}
