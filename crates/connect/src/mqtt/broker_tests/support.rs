//! A broker, and a source and a sink with it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, StringViewArray};
use arrow_schema::DataType;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::Result;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Sink, SinkConnector, SinkRequest};
use slackwater_engine::source::{Source, SourceConnector, SourceRequest};

use crate::mqtt::packet::{self, Connect, Publish, Qos, Start, Version};
use crate::source::tests::{Drained, drain_until, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

/// A test that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker. It is killed when dropped.
pub(super) struct Broker {
    pub(super) program: PathBuf,
    pub(super) folder: tempfile::TempDir,
    pub(super) port: u16,
    pub(super) process: Option<Child>,
}

impl Broker {
    /// A broker that is not running yet, with lines for its configuration; `None` if it is not installed.
    pub(super) fn new(settings: &str) -> Option<Broker> {
        let Some(program) = std::env::var_os("SLACKWATER_MOSQUITTO") else {
            eprintln!("skipped: no broker; run make test-mqtt");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        // Saved each second and at its end: saving each change takes a disk milliseconds for each message.
        let own = format!(
            "listener {port} 127.0.0.1\npersistence true\npersistence_location {path}/\n\
             autosave_interval 1\nautosave_on_changes false\nmax_queued_messages 0\n\
             set_tcp_nodelay true\n{settings}\n"
        );
        fs::write(folder.path().join("mosquitto.conf"), own).unwrap();
        if fs::metadata("/proc/self")
            .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
        {
            // As root it switches to another user, who must be able to read and write its folder.
            let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(folder.path(), everybody).unwrap();
        }
        Some(Broker {
            program: program.into(),
            folder,
            port,
            process: None,
        })
    }

    pub(super) fn running(settings: &str) -> Option<Broker> {
        let mut broker = Broker::new(&format!("allow_anonymous true\n{settings}"))?;
        broker.start();
        Some(broker)
    }

    pub(super) fn start(&mut self) {
        let mut log = fs::File::options();
        let log = log
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let log = log.unwrap();
        let mut command = Command::new(&self.program);
        command
            .arg("-c")
            .arg(self.folder.path().join("mosquitto.conf"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn().unwrap());
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            assert!(
                begin.elapsed() < PATIENCE,
                "the broker does not start: {log:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Stops the broker with the signal, and waits until it has ended.
    pub(super) fn end(&mut self, signal: &str) {
        self.signal(signal);
        self.process.take().unwrap().wait().unwrap();
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn table(&self, options: &[(&str, &str)]) -> TableDefinition {
        let address = self.address();
        let own = [
            ("connector", "mqtt"),
            ("format", "json"),
            ("address", &address),
        ];
        let columns = [("n", DataType::Int64), ("place", DataType::Utf8View)];
        table(&columns, &[&own, options].concat())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub(super) struct Writer {
    pub(super) connector: Arc<dyn SinkConnector>,
    pub(super) sink: Box<dyn Sink>,
    pub(super) _waiter: Waiter,
}

impl Writer {
    pub(super) fn new(table: &TableDefinition) -> Writer {
        let connector = crate::sink(table).unwrap();
        let saved = SinkRequest {
            epoch: Some(1),
            ..SinkRequest::new(0, 1)
        };
        let mut sink = connector.sink(&saved).unwrap();
        let mut waiter = Waiter::new().unwrap();
        sink.open(&mut waiter).unwrap();
        Writer {
            connector,
            sink,
            _waiter: waiter,
        }
    }

    pub(super) fn write(&mut self, numbers: std::ops::Range<i64>, place: &str) {
        let places = numbers.clone().map(|_| Some(place));
        let columns: [(&str, ArrayRef); 2] = [
            (
                "n",
                Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(
                    numbers.clone(),
                )),
            ),
            ("place", Arc::new(places.collect::<StringViewArray>())),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        self.sink.write(&Chunk::new(batch, 0)).unwrap();
    }

    /// A checkpoint: everything is acknowledged after it.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        let prepared = self.sink.prepare(false)?;
        prepared.map_or(Ok(()), |prepared| self.connector.secure(&prepared))
    }

    pub(super) fn error(&mut self) -> String {
        let begin = Instant::now();
        loop {
            if let Err(error) = self.sink.flush() {
                return error.to_string();
            }
            assert!(begin.elapsed() < PATIENCE, "nothing fails");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub(super) struct Reader {
    pub(super) connector: Arc<dyn SourceConnector>,
    pub(super) source: Box<dyn Source>,
    pub(super) waiter: Waiter,
}

impl Reader {
    pub(super) fn new(table: &TableDefinition, saved: bool) -> Reader {
        let connector = crate::source(table).unwrap();
        let all = (0..table.schema.fields().len()).collect::<Vec<usize>>();
        let request = SourceRequest {
            saved,
            ..request(&all)
        };
        let mut source = connector.source(request).unwrap();
        let mut waiter = Waiter::new().unwrap();
        source.open(&mut waiter).unwrap();
        Reader {
            connector,
            source,
            waiter,
        }
    }

    pub(super) fn read(&mut self, rows: usize) -> Drained {
        drain_until(&mut *self.source, &mut self.waiter, |drained| {
            drained.strings.len() + drained.rejected.len() >= rows
        })
    }

    /// Reads until all of `wanted` have arrived; returns the numbers of the rows, which are the first column.
    pub(super) fn read_all(&mut self, wanted: std::ops::Range<i64>) -> Vec<i64> {
        let mut numbers = vec![];
        let begin = Instant::now();
        while !wanted.clone().all(|number| numbers.contains(&number)) {
            assert!(begin.elapsed() < PATIENCE, "only {numbers:?}");
            numbers.extend(numbers_of(&self.read(1)));
        }
        numbers
    }

    pub(super) fn error(&mut self) -> String {
        let begin = Instant::now();
        loop {
            if let Err(error) = self.source.poll() {
                return error.to_string();
            }
            assert!(begin.elapsed() < PATIENCE, "nothing fails");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn close(mut self) {
        self.source.close();
    }
}

pub(super) fn numbers_of(drained: &Drained) -> Vec<i64> {
    let strings = drained.strings.iter();
    let numbers = strings.map(|text| text.split(':').nth(2).unwrap().split('|').next().unwrap());
    numbers.map(|text| text.parse().unwrap()).collect()
}

/// A session that exists before anything is written.
pub(super) fn subscribe(table: &TableDefinition) {
    let mut reader = Reader::new(table, true);
    // Any result will do: once our own message arrives, the subscriptions exist.
    let name = table.options["client_id"].as_str();
    let topic = format!("{}/begun", table.options["topic"].trim_end_matches("/#"));
    let options = table.options.iter();
    let own = options.filter(|(key, _)| {
        ["connector", "format", "address", "protocol_version"].contains(&key.as_str())
    });
    let mut all = own
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect::<Vec<_>>();
    let id = format!("{name}-begun");
    all.extend([
        ("topic", topic.as_str()),
        ("client_id", &id),
        ("retain", "true"),
    ]);
    let columns = [("n", DataType::Int64), ("place", DataType::Utf8View)];
    let mut writer = Writer::new(&self::table(&columns, &all));
    writer.write(-1..0, "begun");
    writer.checkpoint().unwrap();
    reader.read(1);
    reader.connector.stored(&table.options["topic"], u64::MAX);
    reader.close();
    forget_retained(&table.options["address"], &topic);
}

/// Makes a broker forget the retained message of a topic: a client of version 3.1.1 would get it again.
fn forget_retained(address: &str, topic: &str) {
    let (version, mut out) = (Version::V5, vec![]);
    let connect = Connect {
        client_id: "forget",
        session: Start {
            is_clean: true,
            expiry_s: 0,
        },
        username: None,
        password: None,
    };
    packet::connect(version, &mut out, &connect);
    let empty = Publish {
        topic,
        payload: &[],
        qos: Qos::AtMostOnce,
        retain: true,
        duplicate: false,
        id: 0,
        subscription: None,
    };
    packet::write_publish(version, &mut out, &empty);
    packet::disconnect(&mut out);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&out).unwrap();
    // The broker closes the connection when it has heard everything.
    stream.read_to_end(&mut vec![]).unwrap();
}
