//! The datagen source through the public entry point.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_schema::{DataType, Field, TimeUnit};
use slackwater_engine::source::{SourcePoll, SourceRequest, Tuning};

use super::tests::{Drained, read_all, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

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
    let own = [("connector", "datagen"), ("generator", "uservisits")];
    table(&columns, &[&own, options].concat())
}

fn nexmark(options: &[(&str, &str)]) -> TableDefinition {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let row = |fields: &[(&str, &DataType)]| {
        let fields = fields
            .iter()
            .map(|(name, kind)| Field::new(*name, (*kind).clone(), true));
        DataType::Struct(fields.collect())
    };
    let (number, text) = (&DataType::Int64, &DataType::Utf8View);
    let columns = [
        ("event_type", DataType::Int32),
        (
            "person",
            row(&[("name", text), ("emailAddress", text), ("dateTime", &time)]),
        ),
        (
            "auction",
            row(&[("id", number), ("expires", &time), ("date_time", &time)]),
        ),
        (
            "bid",
            row(&[("auction", number), ("price", number), ("datetime", number)]),
        ),
    ];
    let own = [("connector", "datagen"), ("generator", "nexmark")];
    table(&columns, &[&own, options].concat())
}

fn read(table: &TableDefinition, projection: &[usize], chunk_rows: usize) -> Drained {
    let request = SourceRequest {
        tuning: Arc::new(Tuning::new(0, chunk_rows)),
        ..request(projection)
    };
    read_all(&mut *crate::source(table).unwrap().source(request).unwrap())
}

#[test]
fn the_rows_do_not_depend_on_chunks_and_columns() {
    let options = [("rows", "2000"), ("disorder", "100 ms"), ("seed", "7")];
    for table in [visits(&options), nexmark(&options)] {
        let all = (0..table.schema.fields().len()).collect::<Vec<_>>();
        let once = read(&table, &all, 1_000_000);
        assert_eq!(once.strings.len(), 2_000);
        assert_eq!(once.ended, [0]);
        assert_eq!(read(&table, &all, 7).strings, once.strings);
        let first = once
            .strings
            .iter()
            .map(|text| text.split('|').next().unwrap());
        let alone = read(&table, &[0], 100).strings;
        assert!(first.eq(alone.iter().map(String::as_str)));
    }
    let other = [("rows", "2000"), ("disorder", "100 ms"), ("seed", "8")];
    assert_ne!(
        read(&visits(&options), &[2], 99).strings,
        read(&visits(&other), &[2], 99).strings
    );
    assert_ne!(
        read(&nexmark(&options), &[3], 99).strings,
        read(&nexmark(&other), &[3], 99).strings
    );
}

#[test]
fn user_visits_look_as_they_should() {
    let rows = read(
        &visits(&[("rows", "100000"), ("addresses", "1000")]),
        &(0..11).collect::<Vec<_>>(),
        4_096,
    );
    let mut addresses = HashSet::new();
    let mut bytes = 0;
    for (number, text) in rows.strings.iter().enumerate() {
        let (place, values) = text.split_at(text.match_indices(':').nth(1).unwrap().0 + 1);
        assert_eq!(place, format!("0:{}:", number + 1));
        let values = values.split('|').collect::<Vec<_>>();
        assert!(values.iter().all(|value| !value.contains(',')), "{text}");
        assert_eq!(values[0], (1_436_918_400_000 + number as u64).to_string());
        addresses.insert(values[2].to_string());
        bytes += values.iter().map(|value| value.len() + 1).sum::<usize>();
    }
    assert_eq!(addresses.len(), 1_000);
    let mean = bytes as f64 / rows.strings.len() as f64;
    assert!((185.0..215.0).contains(&mean), "{mean} bytes a row");
}

#[test]
fn nexmark_events_have_their_shares_and_times() {
    let table = nexmark(&[
        ("rows", "5000"),
        ("start", "1000"),
        ("events_per_second", "100"),
    ]);
    let mut source = crate::source(&table)
        .unwrap()
        .source(request(&[0, 2, 3]))
        .unwrap();
    let mut kinds = [0; 3];
    let mut number = 0;
    loop {
        let rows = match source.poll().unwrap() {
            SourcePoll::Rows(rows) => rows.batch,
            SourcePoll::End => break,
            _ => continue,
        };
        let kind = rows.column(0).as_primitive::<Int32Type>();
        let auction = rows.column(1).as_struct();
        let bid = rows.column(2).as_struct();
        for row in 0..rows.num_rows() {
            let time_ms = 1_000 + number * 10;
            kinds[kind.value(row) as usize] += 1;
            use arrow_array::Array;
            assert_eq!(auction.is_valid(row), kind.value(row) == 1);
            assert_eq!(bid.is_valid(row), kind.value(row) == 2);
            if bid.is_valid(row) {
                assert_eq!(
                    bid.column(2).as_primitive::<Int64Type>().value(row),
                    time_ms
                );
            }
            if auction.is_valid(row) {
                use arrow_array::types::TimestampMillisecondType as Millis;
                assert_eq!(
                    auction.column(2).as_primitive::<Millis>().value(row),
                    time_ms
                );
                assert!(auction.column(1).as_primitive::<Millis>().value(row) > time_ms);
            }
            number += 1;
        }
    }
    assert_eq!(kinds, [100, 300, 4_600]);
}

#[test]
fn a_rate_paces_and_stamps() {
    let table = visits(&[("rows", "100"), ("rate", "1000/s")]);
    let request = SourceRequest {
        tuning: Arc::new(Tuning::new(9_000_000, 1_000)),
        ..request(&[0])
    };
    let drained = read_all(&mut *crate::source(&table).unwrap().source(request).unwrap());
    assert_eq!((drained.strings.len(), drained.chunks), (100, 10));
    assert!(
        drained
            .ingest_ns
            .windows(2)
            .all(|pair| pair[1] - pair[0] == 10_000_000)
    );
}

#[test]
fn wrong_columns_and_options_are_errors() {
    let error = |table: &TableDefinition| crate::source(table).err().unwrap().to_string();
    let mut wrong = visits(&[]);
    wrong.schema = table(&[("adress", DataType::Utf8View)], &[]).schema;
    assert!(
        error(&wrong).contains("has no column 'adress'"),
        "{}",
        error(&wrong)
    );
    wrong.schema = table(&[("ip", DataType::Int64)], &[]).schema;
    assert!(
        error(&wrong).contains("declare it as STRING"),
        "{}",
        error(&wrong)
    );
    let mut wrong = nexmark(&[]);
    wrong.schema = table(&[("bid", DataType::Int64)], &[]).schema;
    assert!(error(&wrong).contains("ROW"), "{}", error(&wrong));
    for (option, value) in [
        ("rows", "-1"),
        ("disorder", "10"),
        ("disorder", "2 days"),
        ("events_per_second", "0"),
        ("addresses", "0"),
        ("rate", "fast"),
        ("generator", "nexmarc"),
        ("unit_of_work", "file"),
        ("path", "x"),
    ] {
        let mut table = visits(&[]);
        table.options.insert(option.into(), value.into());
        let error = crate::source(&table).err().unwrap();
        assert_eq!(error.option.as_deref(), Some(option), "{error}");
    }
    assert!(error(&nexmark(&[("addresses", "5")])).contains("does not belong"));
}
