//! How fast records are generated, written and read: `cargo run --release --example csv_speed [ROWS]`.
//!
//! Writes HiBench user visits to a file in memory (`/dev/shm`) and reads them back with different
//! columns, printing CPU nanoseconds per row, the read included. To see where they go:
//! `perf record target/release/examples/csv_speed`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_schema::{DataType, Field, Schema};
use slackwater_connect::{Findings, TableDefinition, sink, source};
use slackwater_engine::chunk::Chunk;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::SinkRequest;
use slackwater_engine::source::{SourcePoll, SourceRequest, Tuning};
use slackwater_engine::time::now_ns;

fn visits(options: &[(&str, &str)]) -> TableDefinition {
    let columns = [
        ("ts_ms", DataType::Int64),
        ("page_id", DataType::Int64),
        ("ip", DataType::Utf8View),
        ("url", DataType::Utf8View),
        ("visit_date", DataType::Utf8View),
        ("ad_revenue", DataType::Float64),
        ("user_agent", DataType::Utf8View),
        ("country", DataType::Utf8View),
        ("language", DataType::Utf8View),
        ("search_word", DataType::Utf8View),
        ("duration", DataType::Int32),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    TableDefinition {
        name: "visits".into(),
        schema: Arc::new(Schema::new(fields.to_vec())),
        metadata: Default::default(),
        primary_key: Vec::new(),
        findings: Findings::Look,
        options: options
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect::<BTreeMap<_, _>>(),
        formats: Vec::new(),
    }
}

fn request(projection: &[usize]) -> SourceRequest {
    SourceRequest {
        projection: projection.to_vec(),
        instance: 0,
        instances: 1,
        here: Arc::new([0]),
        parsers: 1,
        tuning: Arc::new(Tuning::new(0, 8_192)),
        unit_per_partition: false,
        bytes_read: Arc::new(AtomicU64::new(0)),
        saved: false,
        resume: Arc::new([]),
    }
}

/// CPU time of this process.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Polls a table to its end, and passes every chunk to `take`.
fn read(table: &TableDefinition, projection: &[usize], mut take: impl FnMut(Chunk)) -> u64 {
    let mut waiter = Waiter::new().expect("a waiter can be made");
    let mut source = source(table)
        .expect("options")
        .source(request(projection))
        .expect("source");
    source.open(&mut waiter).expect("open");
    let mut rows = 0;
    loop {
        match source.poll().expect("poll") {
            SourcePoll::Rows(chunk) => {
                assert!(chunk.rejected.is_empty(), "{:?}", chunk.rejected);
                rows += chunk.batch.num_rows() as u64;
                take(Chunk::new(chunk.batch, chunk.ingest_ns));
            }
            SourcePoll::End => break,
            _ => {}
        }
    }
    source.close();
    rows
}

fn main() {
    let rows = std::env::args().nth(1).unwrap_or_else(|| "2000000".into());
    let path = format!("/dev/shm/csv_speed_{}.csv", std::process::id());
    let generated = visits(&[
        ("connector", "datagen"),
        ("generator", "uservisits"),
        ("rows", &rows),
    ]);
    let written = visits(&[("connector", "file"), ("path", &path)]);
    let all = (0..11).collect::<Vec<_>>();
    let report = |what: &str, rows: u64, begin_cpu: u64, begin: u64| {
        let (cpu, wall) = (cpu_ns() - begin_cpu, now_ns() - begin);
        let per_row = |ns: u64| ns as f64 / rows as f64;
        println!(
            "{what:<34} {:>7.1} ns CPU/row {:>7.1} ns wall/row",
            per_row(cpu),
            per_row(wall)
        );
    };

    let (cpu, wall) = (cpu_ns(), now_ns());
    let count = read(&generated, &all, |chunk| drop(std::hint::black_box(chunk)));
    report("generate", count, cpu, wall);

    let (cpu, wall) = (cpu_ns(), now_ns());
    let mut waiter = Waiter::new().expect("a waiter can be made");
    let mut out = sink(&written)
        .expect("options")
        .sink(&SinkRequest::new(0, 1))
        .expect("sink");
    out.open(&mut waiter).expect("open");
    let count = read(&generated, &all, |chunk| out.write(&chunk).expect("write"));
    out.finish(true).expect("finish");
    report("generate and write", count, cpu, wall);
    let bytes = std::fs::metadata(&path).expect("the file is there").len();
    println!("{:.1} bytes per row", bytes as f64 / count as f64);

    let cases: [(&str, &[usize]); 6] = [
        ("nothing", &[]),
        ("ts_ms", &[0]),
        ("ts_ms, ip", &[0, 2]),
        ("ts_ms, ip, url", &[0, 2, 3]),
        ("ad_revenue, duration", &[5, 10]),
        ("all", &all),
    ];
    for round in 0..2 {
        for (name, projection) in cases {
            let (cpu, wall) = (cpu_ns(), now_ns());
            let count = read(&written, projection, |chunk| {
                drop(std::hint::black_box(chunk))
            });
            report(&format!("read {name} (round {round})"), count, cpu, wall);
        }
    }
    std::fs::remove_file(&path).expect("the file is ours");
}
