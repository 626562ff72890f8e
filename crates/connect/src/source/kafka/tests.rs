//! One partition that several threads parse, from the client's own mock of a broker.

use arrow_schema::DataType;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use slackwater_engine::source::{Resume, Tuning};

use super::*;
use crate::source::tests::{drain_until, request};
use crate::table::tests::table;

const MESSAGES: usize = 20_000;

/// The value of a message: some are no record, some are bad.
fn value(number: usize) -> String {
    match number % 100 {
        7 => String::new(),
        50 => "this is not a record".to_string(),
        _ => format!("{{\"a\": {number}, \"b\": \"value {number}\"}}"),
    }
}

#[test]
fn a_partition_that_several_threads_parse_keeps_its_order_and_resumes_anywhere() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let servers = cluster.bootstrap_servers();
    let producer = ClientConfig::new()
        .set("bootstrap.servers", &servers)
        .create();
    let producer: BaseProducer = producer.unwrap();
    for number in 0..MESSAGES {
        let value = value(number);
        let record = BaseRecord::<(), String>::to("orders")
            .payload(&value)
            .partition(0);
        producer
            .send(record)
            .unwrap_or_else(|(error, _)| panic!("{error}"));
    }
    producer.flush(Duration::from_secs(30)).unwrap();
    let options = [
        ("connector", "kafka"),
        ("topic", "orders"),
        ("properties.bootstrap.servers", servers.as_str()),
        ("scan.bounded.mode", "latest-offset"),
        ("format", "json"),
    ];
    let columns = [("a", DataType::Int64), ("b", DataType::Utf8View)];
    let table = table(&columns, &options);
    let connector = KafkaConnector::new(&table, &Options::new(&table.options)).unwrap();
    let expected = |bad: bool| {
        let numbers = (0..MESSAGES).filter(move |number| match number % 100 {
            7 => false,
            50 => bad,
            _ => !bad,
        });
        numbers.collect::<Vec<usize>>()
    };
    let rows = expected(false).into_iter();
    let rows = rows.map(|number| format!("0:{number}:{number}|value {number}"));
    let rows = rows.collect::<Vec<String>>();
    for (parsers, cuts) in [(1, 1), (4, 1), (4, 3)] {
        let (mut read, mut rejected) = (vec![], vec![]);
        let mut resume = vec![];
        for cut in 1..=cuts {
            let mut source = connector.kafka_source(SourceRequest {
                parsers,
                tuning: Arc::new(Tuning::new(0, 100)),
                resume: resume.into(),
                ..request(&[0, 1])
            });
            let mut waiter = Waiter::new().unwrap();
            let named = source.open(&mut waiter).unwrap();
            source.helpers.at_once();
            let enough = if cut < cuts {
                MESSAGES / cuts
            } else {
                usize::MAX
            };
            let drained = drain_until(&mut source, &mut waiter, |drained| {
                drained.strings.len() >= enough
            });
            if parsers > 1 && cuts == 1 {
                assert!(source.take_helped().threads > 0);
            }
            let positions = drained
                .rejected
                .iter()
                .filter_map(|rejected| rejected.position);
            let last = drained.strings.last().unwrap().split(':').nth(1).unwrap();
            let last = positions
                .clone()
                .chain([last.parse().unwrap()])
                .max()
                .unwrap();
            resume = vec![Resume {
                name: named[0].1.clone(),
                position: last + 1,
                bookmark: source.bookmark(0),
                ended: false,
            }];
            rejected.extend(positions.map(|position| position as usize));
            read.extend(drained.strings);
            source.close();
        }
        assert!(
            read == rows,
            "{parsers} threads, {cuts} runs: {} rows",
            read.len()
        );
        assert_eq!(rejected, expected(true), "{parsers} threads, {cuts} runs");
    }
}
