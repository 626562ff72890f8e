//! The query as a process of its own, which is started again when it ends.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::hub::Hub;

/// How often the query is started again, at most.
const STARTS_MAX: usize = 20;

/// How long after its end the query is started again.
const PAUSE: Duration = Duration::from_millis(300);

/// The text of the query that `slides serve` starts unless `--query` names another.
const TEXT: &str = include_str!("slides.sql");

/// The query.
pub struct Query {
    child: Arc<Mutex<Option<Child>>>,
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
        let (watched, arguments) = (Arc::clone(&child), arguments.to_vec());
        let program = program.to_path_buf();
        thread::spawn(move || watch(&watched, &program, &file, &arguments));
        Ok(Query {
            child,
            _folder: folder,
        })
    }

    /// The process of the query; `None` while there is none.
    pub fn process(&self) -> Option<u32> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.as_ref().map(Child::id)
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

/// Starts the query again when it has ended, until it was dropped.
fn watch(child: &Mutex<Option<Child>>, program: &Path, file: &Path, arguments: &[String]) {
    let mut starts = 0;
    loop {
        thread::sleep(PAUSE);
        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = child.as_mut() else {
            return;
        };
        let Ok(Some(status)) = running.try_wait() else {
            continue;
        };
        starts += 1;
        if starts > STARTS_MAX {
            eprintln!("the query ended {starts} times: not started again");
            return;
        }
        eprintln!("the query ended ({status}); it is started again");
        match run(program, file, arguments) {
            Ok(next) => *child = Some(next),
            Err(error) => eprintln!("the query can't be started: {error}"),
        }
    }
}
