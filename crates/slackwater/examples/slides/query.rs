//! The query as a process of its own, which is started again when it ends.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::hub::Hub;

/// How often the query is started again, at most.
const STARTS_MAX: usize = 20;

/// The exit code of a query that can't run as it is.
const USAGE: i32 = 2;

/// How long after its end the query is started again, and how often it is looked at.
pub const PAUSE: Duration = Duration::from_millis(300);

/// The text of the query that `slides serve` starts unless `--query` names another.
const TEXT: &str = include_str!("slides.sql");

/// The query.
pub struct Query {
    child: Arc<Mutex<Option<Child>>>,
    /// Why it is not started again.
    failure: Arc<OnceLock<String>>,
    /// The file with its text, and the folder that is removed with it.
    _folder: tempfile::TempDir,
}

/// The text of a query over a slide, with the addresses of a hub instead of those that it has.
///
/// # Errors
///
/// When the file can't be read, or the slide's name can't be part of SQL.
pub fn text(file: Option<&Path>, slide: &str, hub: &Hub) -> Result<String, String> {
    let text = match file {
        Some(file) => {
            std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?
        }
        None => TEXT.to_string(),
    };
    let mut text = text.replace("'slide.tif'", &format!("'{}'", slide.replace('\'', "''")));
    for (port, address) in (7491..).zip(hub.addresses()) {
        text = text.replace(&format!("127.0.0.1:{port}'"), &format!("{address}'"));
    }
    Ok(text)
}

impl Query {
    /// Starts a query with this text by this program; `arguments` are further ones of `run`.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(program: &Path, text: &str, arguments: &[String]) -> Result<Query, String> {
        let failed = |error: io::Error| format!("the query can't be started: {error}");
        let folder = tempfile::tempdir().map_err(failed)?;
        let file = folder.path().join("slides.sql");
        std::fs::write(&file, text).map_err(failed)?;
        let child = run(program, &file, arguments).map_err(failed)?;
        let child = Arc::new(Mutex::new(Some(child)));
        let failure = Arc::new(OnceLock::new());
        let (watched, arguments) = (Arc::clone(&child), arguments.to_vec());
        let (program, end) = (program.to_path_buf(), Arc::clone(&failure));
        thread::spawn(move || {
            if let Some(reason) = watch(&watched, &program, &file, &arguments) {
                drop(end.set(reason));
            }
        });
        Ok(Query {
            child,
            failure,
            _folder: folder,
        })
    }

    /// The process of the query; `None` while there is none.
    pub fn process(&self) -> Option<u32> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.as_ref().map(Child::id)
    }

    /// Why the query has ended and is not started again; `None` while it is.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = child.take() {
            // Its worker processes end with it.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn run(program: &Path, file: &Path, arguments: &[String]) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg("run").arg(file).arg("--quiet").args(arguments);
    command.spawn()
}

/// Starts the query again when it has ended, until it was dropped; returns why it does so no more.
fn watch(
    child: &Mutex<Option<Child>>,
    program: &Path,
    file: &Path,
    arguments: &[String],
) -> Option<String> {
    let mut starts = 0;
    loop {
        thread::sleep(PAUSE);
        let lock = || child.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        let Some(status) = ended(lock().as_mut()?) else {
            continue;
        };
        if status.success() {
            // A signal from the terminal stops it, and then the server stops, too.
            thread::sleep(PAUSE);
        }
        let mut child = lock();
        child.as_ref()?;
        starts += 1;
        if status.code() == Some(USAGE) {
            return Some("the query can't run as it is: see above".to_string());
        }
        if starts > STARTS_MAX {
            return Some(format!("the query ended {starts} times"));
        }
        eprintln!("the query ended ({status}); it is started again");
        match run(program, file, arguments) {
            Ok(next) => *child = Some(next),
            Err(error) => eprintln!("the query can't be started: {error}"),
        }
    }
}
