//! Custom sinks, as the engine uses them, and names of both.

use std::collections::BTreeMap;

use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Error;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Delivery, Recovered, SinkRequest};

use super::source_tests::{numbers, offered, source_of};
use super::*;

/// Writes down what it is called with.
struct Logged {
    log: Arc<Mutex<Vec<String>>>,
    fails: Arc<Mutex<BTreeMap<&'static str, &'static str>>>,
}

type Log = (
    Arc<Mutex<Vec<String>>>,
    Arc<Mutex<BTreeMap<&'static str, &'static str>>>,
);

impl Logged {
    fn new() -> (Logged, Log) {
        let (log, fails) = Log::default();
        let logged = Logged {
            log: Arc::clone(&log),
            fails: Arc::clone(&fails),
        };
        (logged, (log, fails))
    }

    fn say(&self, method: &'static str, text: &str) -> Result<()> {
        let said = format!("{method} {text}").trim_end().to_string();
        self.log.lock().unwrap().push(said);
        match self.fails.lock().unwrap().remove(method) {
            None => Ok(()),
            Some(reason) => Err(Error::new("", reason)),
        }
    }
}

impl Writer for Logged {
    fn begin(&self) -> Result<()> {
        self.say("begin", "")
    }

    fn write(&self, rows: &RecordBatch) -> Result<()> {
        self.say("write", &rows.num_rows().to_string())
    }

    fn flush(&self) -> Result<()> {
        self.say("flush", "")
    }

    fn prepare(&self, checkpoint: &str) -> Result<String> {
        self.say("prepare", checkpoint)?;
        Ok(match self.fails.lock().unwrap().contains_key("long") {
            true => "x".repeat(70_000),
            false => format!("rows of {checkpoint}"),
        })
    }

    fn commit(&self, prepared: &str) -> Result<()> {
        self.say("commit", prepared)
    }

    fn close(&self) {
        self.say("close", "").unwrap();
    }
}

fn chunk(rows: u64) -> Chunk {
    Chunk {
        batch: numbers(0, rows, |_| false),
        ingest_ns: 0,
        origin: None,
        kinds: None,
        key_hashes: None,
    }
}

fn said(log: &Log) -> String {
    std::mem::take(&mut *log.0.lock().unwrap()).join(", ")
}

fn sink_of(
    name: &str,
    is_exactly_once: bool,
) -> (Offer, Arc<dyn slackwater_engine::sink::SinkConnector>, Log) {
    let (writer, log) = Logged::new();
    let offer = Offer::new(name, Custom::sink(Box::new(writer), is_exactly_once));
    let connector = crate::sink(&offered(name)).unwrap();
    (offer, connector, log)
}

#[test]
fn an_exactly_once_sink_prepares_what_was_written_and_commits_what_counts() {
    let (_offer, connector, log) = sink_of("once", true);
    assert_eq!(connector.capabilities().delivery, Delivery::ExactlyOnce);
    let error = connector.begin(false).unwrap_err();
    assert!(error.hint.contains("state="), "{error}");
    connector.begin(true).unwrap();
    // What an earlier incarnation has prepared is committed before anything is written.
    let pending = ["rows of 2-9".to_string()];
    assert_eq!(
        connector.recover(3, Some(&pending)).unwrap(),
        Recovered::Committed
    );
    let request = SinkRequest {
        epoch: Some(3),
        ..SinkRequest::new(0, 1)
    };
    let mut sink = connector.sink(&request).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    assert_eq!(sink.prepare(false).unwrap(), None, "there are no rows");
    sink.write(&chunk(2)).unwrap();
    sink.write(&chunk(0)).unwrap();
    sink.flush().unwrap();
    let first = sink.prepare(false).unwrap().unwrap();
    sink.write(&chunk(1)).unwrap();
    connector.commit(&first).unwrap();
    let last = sink.prepare(true).unwrap().unwrap();
    sink.finish(true).unwrap();
    connector.commit(&last).unwrap();
    assert_eq!(
        said(&log),
        "commit rows of 2-9, begin, write 2, prepare 3-1, write 1, commit rows of 3-1, prepare 3-2, close, \
         commit rows of 3-2"
    );
}

#[test]
fn a_sink_that_is_not_exactly_once_writes_out_before_a_checkpoint() {
    let (_offer, connector, log) = sink_of("at least once", false);
    assert_eq!(connector.capabilities().delivery, Delivery::AtLeastOnce);
    assert!(connector.checkpoints().is_none());
    connector.begin(false).unwrap();
    let mut sink = connector.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    let mut other = connector.sink(&SinkRequest::new(0, 1)).unwrap();
    let error = other.open(&mut Waiter::new().unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("another query of this process"),
        "{error}"
    );
    other.finish(false).unwrap();
    sink.write(&chunk(1)).unwrap();
    assert_eq!(sink.prepare(false).unwrap(), None);
    sink.write(&chunk(2)).unwrap();
    sink.finish(true).unwrap();
    assert_eq!(said(&log), "begin, write 1, flush, write 2, flush, close");
    // The next query may write.
    other.open(&mut Waiter::new().unwrap()).unwrap();
    other.write(&chunk(1)).unwrap();
    other.finish(false).unwrap();
    assert_eq!(said(&log), "begin, write 1, close");
}

#[test]
fn what_a_writer_raises_names_the_table() {
    let (_offer, connector, log) = sink_of("raises", true);
    let mut sink = connector.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    for method in ["write", "prepare", "commit"] {
        log.1.lock().unwrap().insert(method, "disk full");
        let error = match method {
            "write" => sink.write(&chunk(1)).unwrap_err(),
            "prepare" => sink.prepare(false).unwrap_err(),
            _ => connector.commit("a").unwrap_err(),
        };
        assert_eq!(error.to_string(), "table 't': disk full");
        // A commit is tried once more, after a restart.
        assert_eq!(error.is_final, method != "commit");
    }
    log.1.lock().unwrap().insert("commit", "disk full");
    let pending = ["a".to_string()];
    assert!(connector.recover(1, Some(&pending)).unwrap_err().is_final);
    assert_eq!(connector.recover(1, None).unwrap(), Recovered::Committed);
    log.1.lock().unwrap().insert("long", "");
    sink.write(&chunk(1)).unwrap();
    let error = sink.prepare(false).unwrap_err();
    assert!(error.to_string().contains("70000 bytes"), "{error}");
}

#[test]
fn names_of_nothing_and_of_the_other_kind_are_errors() {
    let error = crate::source(&offered("nothing"))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("this process offers nothing as 'nothing'"),
        "{error}"
    );
    let offer = source_of("a source", 1, true, |_| {});
    let error = crate::sink(&offered("a source"))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is a source, and can't be written"),
        "{error}"
    );
    let (writer, _) = Logged::new();
    let sink = Offer::new("a sink", Custom::sink(Box::new(writer), true));
    let error = crate::source(&offered("a sink"))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("is a sink, and can't be read"), "{error}");
    let newer = source_of("a source", 1, true, |_| {});
    drop(offer);
    assert!(
        crate::source(&offered("a source")).is_ok(),
        "the newer one has the name"
    );
    drop((newer, sink));
    assert!(crate::source(&offered("a source")).is_err());
}
