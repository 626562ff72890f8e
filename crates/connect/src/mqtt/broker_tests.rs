//! Source and sink against a broker: Mosquitto, which `make test-mqtt` installs. The tests start and stop
//! their own brokers, each on a free port of the loopback address, with its data in a temporary folder.

use std::fs;
use std::io::Write;
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
use slackwater_engine::source::{Source, SourceConnector, SourcePoll, SourceRequest};

use crate::source::tests::{Drained, drain_until, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

/// A test that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker. It is killed when dropped.
struct Broker {
    program: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl Broker {
    /// A broker that is not running yet, with lines for its configuration; `None` if it is not installed.
    fn new(settings: &str) -> Option<Broker> {
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
        let own = format!(
            "listener {port} 127.0.0.1\npersistence true\npersistence_location {path}/\n\
             autosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\n{settings}\n"
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

    fn running(settings: &str) -> Option<Broker> {
        let mut broker = Broker::new(&format!("allow_anonymous true\n{settings}"))?;
        broker.start();
        Some(broker)
    }

    fn start(&mut self) {
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

    fn signal(&self, signal: &str) {
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
    fn end(&mut self, signal: &str) {
        self.signal(signal);
        self.process.take().unwrap().wait().unwrap();
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn table(&self, options: &[(&str, &str)]) -> TableDefinition {
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

struct Writer {
    connector: Arc<dyn SinkConnector>,
    sink: Box<dyn Sink>,
    _waiter: Waiter,
}

impl Writer {
    fn new(table: &TableDefinition) -> Writer {
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

    fn write(&mut self, numbers: std::ops::Range<i64>, place: &str) {
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
    fn checkpoint(&mut self) -> Result<()> {
        let prepared = self.sink.prepare(false)?;
        prepared.map_or(Ok(()), |prepared| self.connector.secure(&prepared))
    }

    fn error(&mut self) -> String {
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

struct Reader {
    connector: Arc<dyn SourceConnector>,
    source: Box<dyn Source>,
    waiter: Waiter,
}

impl Reader {
    fn new(table: &TableDefinition, saved: bool) -> Reader {
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

    fn read(&mut self, rows: usize) -> Drained {
        drain_until(&mut *self.source, &mut self.waiter, |drained| {
            drained.strings.len() + drained.rejected.len() >= rows
        })
    }

    /// Reads until all of `wanted` have arrived; returns the numbers of the rows, which are the first column.
    fn read_all(&mut self, wanted: std::ops::Range<i64>) -> Vec<i64> {
        let mut numbers = vec![];
        let begin = Instant::now();
        while !wanted.clone().all(|number| numbers.contains(&number)) {
            assert!(begin.elapsed() < PATIENCE, "only {numbers:?}");
            numbers.extend(numbers_of(&self.read(1)));
        }
        numbers
    }

    fn error(&mut self) -> String {
        let begin = Instant::now();
        loop {
            if let Err(error) = self.source.poll() {
                return error.to_string();
            }
            assert!(begin.elapsed() < PATIENCE, "nothing fails");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn close(mut self) {
        self.source.close();
    }
}

fn numbers_of(drained: &Drained) -> Vec<i64> {
    let strings = drained.strings.iter();
    let numbers = strings.map(|text| text.split(':').nth(2).unwrap().split('|').next().unwrap());
    numbers.map(|text| text.parse().unwrap()).collect()
}

/// A session that exists before anything is written.
fn subscribe(table: &TableDefinition) {
    let mut reader = Reader::new(table, true);
    // Any result will do: once our own message arrives, the subscriptions exist.
    let name = table.options["client_id"].as_str();
    let topic = format!("{}/begun", table.options["topic"].trim_end_matches("/#"));
    let options = table.options.iter();
    let own = options.filter(|(key, _)| ["connector", "format", "address"].contains(&key.as_str()));
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
}

#[test]
fn mqtt_rows_come_back() {
    let Some(broker) = Broker::running("") else {
        return;
    };
    for qos in ["0", "1", "2"] {
        let topic = format!("q{qos}/#");
        let client = format!("reader {qos}");
        let mut of_source =
            broker.table(&[("topic", &topic), ("qos", qos), ("client_id", &client)]);
        subscribe(&of_source);
        let topics = arrow_schema::Field::new("topic", DataType::Utf8View, true);
        let fields = of_source
            .schema
            .fields()
            .iter()
            .cloned()
            .chain([Arc::new(topics)]);
        of_source.schema = Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<_>>()));
        of_source.metadata = [(2, "topic".to_string())].into();
        let mut reader = Reader::new(&of_source, false);
        // With qos 0 nothing is kept for clients that are not connected.
        std::thread::sleep(Duration::from_millis(if qos == "0" { 500 } else { 0 }));
        let options = [("topic_column", "place"), ("qos", qos)];
        let mut writer = Writer::new(&broker.table(&options));
        for first in (0..3_000).step_by(1_000) {
            writer.write(first..first + 1_000, &format!("q{qos}/{first}"));
        }
        let read = reader.read(3_000).strings;
        assert_eq!(read[0], format!("0:1:0|q{qos}/0|q{qos}/0"));
        assert_eq!(read[2_999], format!("0:3000:2999|q{qos}/2000|q{qos}/2000"));
        assert_eq!(read.len(), 3_000);
        writer.sink.finish(true).unwrap();
        reader.close();
    }
}

#[test]
fn mqtt_waits_for_a_broker_that_is_not_available() {
    let Some(mut broker) = Broker::new("allow_anonymous true") else {
        return;
    };
    let mut writer = Writer::new(&broker.table(&[("topic", "t"), ("retain", "true")]));
    let mut reader = Reader::new(&broker.table(&[("topic", "t")]), false);
    writer.write(7..8, "x");
    assert!(matches!(reader.source.poll().unwrap(), SourcePoll::Pending));
    broker.start();
    assert_eq!(reader.read(1).strings, ["0:1:7|x"]);
    writer.sink.finish(true).unwrap();
}

#[test]
fn mqtt_survives_brokers_that_are_stopped_or_killed_or_stalled() {
    let Some(mut broker) = Broker::running("") else {
        return;
    };
    let of_source = broker.table(&[("topic", "t/#"), ("client_id", "reader"), ("qos", "2")]);
    subscribe(&of_source);
    let mut reader = Reader::new(&of_source, false);
    let mut writer = Writer::new(&broker.table(&[("topic", "t/x"), ("qos", "2")]));
    writer.write(0..500, "x");
    writer.checkpoint().unwrap();
    let mut numbers = reader.read_all(0..500);
    broker.end("-TERM");
    writer.write(500..1_000, "x");
    broker.start();
    numbers.extend(reader.read_all(500..1_000));
    writer.checkpoint().unwrap();
    broker.signal("-STOP");
    writer.write(1_000..1_500, "x");
    std::thread::sleep(Duration::from_millis(300));
    broker.signal("-CONT");
    numbers.extend(reader.read_all(1_000..1_500));
    // Each message at least once: of those in flight when it was stopped, Mosquitto keeps the identifiers of
    // only twenty, and sends the others again as new ones.
    assert!(numbers.len() >= 1_500);
    // Killed: the broker forgets what it has not saved, and messages in flight are sent again.
    writer.write(1_500..2_000, "x");
    broker.end("-KILL");
    broker.start();
    writer.write(2_000..2_100, "x");
    writer.checkpoint().unwrap();
    reader.read_all(2_000..2_100);
}

#[test]
fn mqtt_a_stalled_broker_holds_the_sink_back() {
    let Some(broker) = Broker::running("") else {
        return;
    };
    let mut writer = Writer::new(&broker.table(&[("topic", "t")]));
    writer.write(0..10, "x");
    writer.checkpoint().unwrap();
    broker.signal("-STOP");
    let mut chunks = 0;
    while writer.sink.ready().unwrap() {
        writer.write(0..1_000, &"y".repeat(1_000));
        chunks += 1;
        // 4 MiB that wait, 8 MiB in flight, and what sockets hold; a chunk has one.
        assert!(chunks < 40, "nothing holds it back");
        std::thread::sleep(Duration::from_millis(5));
    }
    broker.signal("-CONT");
    writer.checkpoint().unwrap();
    assert!(writer.sink.ready().unwrap());
}

#[test]
fn mqtt_messages_that_are_in_no_checkpoint_are_sent_again() {
    let Some(broker) = Broker::running("") else {
        return;
    };
    for qos in ["1", "2"] {
        let topic = format!("again{qos}/#");
        let client = format!("again {qos}");
        let options = [("topic", &*topic), ("client_id", &client), ("qos", qos)];
        let of_source = broker.table(&options);
        subscribe(&of_source);
        let mut writer = Writer::new(&broker.table(&[("topic", &format!("again{qos}/x"))]));
        writer.write(0..30, "x");
        writer.checkpoint().unwrap();
        let mut reader = Reader::new(&of_source, true);
        assert_eq!(numbers_of(&reader.read(30)), (0..30).collect::<Vec<i64>>());
        // A checkpoint that contains the first ten.
        reader.connector.stored(&topic, 11);
        reader.close();
        let mut reader = Reader::new(&of_source, true);
        let mut numbers = numbers_of(&reader.read(20));
        numbers.sort_unstable();
        assert_eq!(numbers, (10..30).collect::<Vec<i64>>());
        reader.connector.stored(&topic, 21);
        reader.close();
        writer.write(30..31, "x");
        let mut reader = Reader::new(&of_source, true);
        assert_eq!(numbers_of(&reader.read(1)), [30]);
    }
}

#[test]
fn mqtt_errors_name_the_broker_and_the_option_but_no_password() {
    let Some(mut broker) = Broker::new("") else {
        return;
    };
    let passwords = broker.folder.path().join("passwords");
    let made = Command::new("mosquitto_passwd")
        .args(["-c", "-b", passwords.to_str().unwrap(), "anna", "right"])
        .output();
    let Ok(made) = made else {
        eprintln!("skipped: no mosquitto_passwd");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let acl = broker.folder.path().join("acl");
    fs::write(&acl, "user anna\ntopic readwrite open/#\n").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&passwords, everybody).unwrap();
    let mut settings = fs::File::options()
        .append(true)
        .open(broker.folder.path().join("mosquitto.conf"))
        .unwrap();
    let (passwords, acl) = (passwords.display(), acl.display());
    writeln!(
        settings,
        "allow_anonymous false\npassword_file {passwords}\nacl_file {acl}"
    )
    .unwrap();
    broker.start();
    let wrong = [
        ("topic", "open/x"),
        ("username", "anna"),
        ("password", "secret7"),
    ];
    for error in [
        Reader::new(&broker.table(&wrong), false).error(),
        Writer::new(&broker.table(&wrong)).error(),
    ] {
        assert!(
            error.contains(&format!("mqtt broker {}", broker.address())),
            "{error}"
        );
        assert!(error.contains("check 'username' and 'password'"), "{error}");
        assert!(!error.contains("secret7"), "{error}");
    }
    let error = Reader::new(&broker.table(&[("topic", "t")]), false).error();
    assert!(error.contains("add 'username' and 'password'"), "{error}");
    let right = [("username", "anna"), ("password", "right")];
    let shut = [&right[..], &[("topic", "shut/x")]].concat();
    let mut writer = Writer::new(&broker.table(&shut));
    writer.write(0..1, "x");
    let error = writer.error();
    assert!(
        error.contains("may not write to the topic") && error.contains("'topic'"),
        "{error}"
    );
    let open = [&right[..], &[("topic", "open/x")]].concat();
    let mut writer = Writer::new(&broker.table(&open));
    writer.write(0..1, "x");
    writer.checkpoint().unwrap();
}

#[test]
fn mqtt_a_server_that_does_not_speak_mqtt_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let web = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        // Wait until the other side has read it.
        let _ = std::io::Read::read(&mut stream, &mut [0; 100]);
        std::thread::sleep(Duration::from_millis(200));
    });
    let options = [
        ("connector", "mqtt"),
        ("format", "raw"),
        ("topic", "t"),
        ("address", &address),
    ];
    let table = table(&[("line", DataType::Utf8View)], &options);
    let error = Reader::new(&table, false).error();
    assert!(error.contains("does not speak MQTT 5"), "{error}");
    assert!(
        error.contains(&address) && error.contains("'address'"),
        "{error}"
    );
    web.join().unwrap();
}
