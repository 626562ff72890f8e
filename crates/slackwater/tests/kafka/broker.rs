//! An Apache Kafka broker of a test's own, on loopback, with its data in a temporary folder.

use std::future::Future;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// Where `make test-kafka` has put the broker's jars.
pub fn jars() -> Option<PathBuf> {
    let folder = std::env::var_os("SLACKWATER_KAFKA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: no broker; run make test-kafka");
    }
    folder
}

/// A broker that is also the controller. It is killed when dropped.
pub struct Broker {
    jars: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Broker {
    pub fn start(jars: PathBuf) -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let (port, controller) = (free_port(), free_port());
        let data = folder.path().join("data");
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.num.partitions=1\n\
             transaction.abort.timed.out.transaction.cleanup.interval.ms=1000\n\
             transaction.state.log.min.isr=1\n",
            data.display()
        );
        std::fs::write(folder.path().join("server.properties"), properties).unwrap();
        let mut broker = Broker {
            jars,
            folder,
            port,
            process: None,
        };
        let mut format = broker.java(64, "kafka.tools.StorageTool");
        format.args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"]);
        format.arg(broker.folder.path().join("server.properties"));
        assert!(
            format.status().unwrap().success(),
            "the storage is not formatted"
        );
        broker.restart();
        broker
    }

    fn java(&self, heap_mb: usize, class: &str) -> Command {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let mut java = Command::new("java");
        java.args(["-Xms64m", &format!("-Xmx{}m", heap_mb.max(256))])
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(self.jars.join("*"))
            .arg(class)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        java
    }

    /// Starts it on the data that it had before.
    pub fn restart(&mut self) {
        assert!(self.process.is_none());
        let mut java = self.java(256, "kafka.Kafka");
        java.arg(self.folder.path().join("server.properties"));
        self.process = Some(java.spawn().expect("java starts"));
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() || self.admin_knows().is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log"));
            assert!(
                begin.elapsed() < Duration::from_secs(90),
                "no broker: {:?}",
                log()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn admin_knows(&self) -> Result<(), String> {
        let metadata = self
            .admin()
            .inner()
            .fetch_metadata(None, Duration::from_secs(2));
        match metadata {
            Ok(metadata) if !metadata.brokers().is_empty() => Ok(()),
            Ok(_) => Err("no brokers".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Ends it as a power cut would, but for what the operating system has not written yet.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().unwrap()
    }

    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.create_compressed_topic(name, partitions, "producer");
    }

    /// A topic whose messages the broker compresses itself, unless `codec` is `producer`.
    pub fn create_compressed_topic(&self, name: &str, partitions: i32, codec: &str) {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = topic.set("compression.type", codec);
        let admin = self.admin();
        let results = wait_for(admin.create_topics(&[topic], &AdminOptions::new())).unwrap();
        results[0].as_ref().unwrap();
    }

    pub fn grow_topic(&self, name: &str, partitions: usize) {
        let partitions = NewPartitions::new(name, partitions);
        let admin = self.admin();
        let results = wait_for(admin.create_partitions(&[partitions], &AdminOptions::new()));
        results.unwrap()[0].as_ref().unwrap();
    }

    /// Forgets rows before an offset, as a broker does whose topic keeps them for some time only.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(before))
            .unwrap();
        let admin = self.admin();
        let results = wait_for(admin.delete_records(&list, &AdminOptions::new())).unwrap();
        results.elements()[0].error().unwrap();
    }

    /// Forgets a group, as a broker does after some days.
    pub fn delete_group(&self, group: &str) {
        let admin = self.admin();
        let results = wait_for(admin.delete_groups(&[group], &AdminOptions::new())).unwrap();
        results[0].as_ref().unwrap();
    }

    /// The first messages of partition 0: keys and values, empty where there is none.
    pub fn messages(&self, topic: &str, number: usize) -> Vec<(String, String)> {
        let mut config = self.config();
        config.set("group.id", "messages");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut partitions = TopicPartitionList::new();
        let offset = Offset::Beginning;
        partitions.add_partition_offset(topic, 0, offset).unwrap();
        consumer.assign(&partitions).unwrap();
        let text =
            |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
        let begun = Instant::now();
        let mut messages = Vec::new();
        while messages.len() < number {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "only {messages:?}"
            );
            if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                let message = message.unwrap();
                messages.push((text(message.key()), text(message.payload())));
            }
        }
        messages
    }

    /// Writes messages into one partition, in order.
    pub fn produce<'m>(
        &self,
        topic: &str,
        partition: i32,
        messages: impl IntoIterator<Item = &'m [u8]>,
    ) {
        self.produce_batches(topic, partition, 500, messages);
    }

    /// The same in batches of at most so many messages: a fetch brings whole batches.
    pub fn produce_batches<'m>(
        &self,
        topic: &str,
        partition: i32,
        messages_max: usize,
        messages: impl IntoIterator<Item = &'m [u8]>,
    ) {
        let mut config = self.config();
        config.set("enable.idempotence", "true");
        config.set("batch.num.messages", messages_max.to_string());
        let producer: BaseProducer = config.create().unwrap();
        for message in messages {
            loop {
                let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic);
                match producer.send(record.partition(partition).payload(message)) {
                    Ok(()) => break,
                    Err(_) => producer.poll(Duration::from_millis(10)),
                }
            }
        }
        producer.flush(Duration::from_secs(30)).unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// The client's administration answers through futures; a thread that waits is enough for them.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
