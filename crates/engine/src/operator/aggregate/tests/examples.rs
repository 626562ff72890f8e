//! Aggregation by example: keys of every type, rejected rows, late rows.

use super::*;

#[test]
fn keys_of_every_type_come_out_as_they_went_in() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![
        Some(3),
        None,
        Some(0),
        Some(3),
        None,
    ]));
    let narrow = arrow_cast::cast(&numbers, &DataType::Int32).unwrap();
    let mut types = vec![
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Boolean,
        DataType::Decimal128(12, 3),
        DataType::Date32,
        DataType::Utf8,
        DataType::Utf8View,
        DataType::LargeUtf8,
    ];
    for unit in [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ] {
        types.push(DataType::Timestamp(unit, None));
        types.push(DataType::Timestamp(unit, Some("+02:00".into())));
    }
    for data_type in types {
        let from = if data_type == DataType::Date32 {
            &narrow
        } else {
            &numbers
        };
        let column = arrow_cast::cast(from, &data_type).unwrap();
        let spec = AggregateSpec {
            window: None,
            keys: vec![0],
            calls: vec![AggregateCall {
                function: AggregateFunction::Count,
                arguments: vec![],
                filter: None,
            }],
            time_column: None,
            emit: Emit::Changes,
            refires: None,
            takes_back: false,
            starts_empty: false,
            emits_before: false,
            retention_us: None,
            schema: schema(&[("key", data_type.clone()), ("count", DataType::Int64)]),
        };
        let input = batch(vec![("key", column.clone())]);
        let mut operator = Aggregate::new(spec, &input.schema()).unwrap();
        let mut output = Output::new(100);
        operator
            .process(0, Chunk::new(input, 0), &mut output)
            .unwrap();
        let result = output.take_chunks().remove(0).batch;
        assert_eq!(
            result.column(0).as_ref(),
            column.slice(0, 3).as_ref(),
            "{data_type}"
        );
        assert_eq!(
            shown(result.column(1)),
            ["2", "2", "1"].map(|v| Some(v.to_string())),
            "{data_type}"
        );
    }
}

#[test]
fn a_sum_that_overflows_refuses_its_row_and_keeps_the_others() {
    let row = |text: u8, value: i64| Row {
        text: Some(text),
        number: None,
        value: Some(value),
        keep: None,
        time: 0,
        position: 0,
    };
    let rows_in = [row(1, i64::MAX), row(2, 5), row(1, 1)];
    for window in [Some(false), None] {
        let mut operator = aggregate(window, &[TEXT], Emit::Changes);
        let mut output = Output::new(100);
        operator.process(0, chunk(&rows_in), &mut output).unwrap();
        advance(&mut operator, MAX_WATERMARK, &mut output);
        assert_eq!(output.rejected().len(), 1);
        let reason = &output.rejected()[0].reason;
        assert!(reason.contains("SUM overflows"), "{reason}");
        assert!(output.rejected()[0].record.contains("key 1"));
        let rows = rows(&output.take_chunks());
        assert_eq!(rows.len(), 1);
        assert!(rows[0].contains("key 2"), "{rows:?}");
    }
}

#[test]
fn rows_of_a_closed_window_are_late() {
    let row = |time: i64| Row {
        text: None,
        number: None,
        value: None,
        keep: None,
        time,
        position: 0,
    };
    for is_start in [false, true] {
        let mut operator = aggregate(Some(is_start), &[], Emit::Changes);
        let mut output = Output::new(100);
        advance(&mut operator, 10_000, &mut output);
        // One chunk of a closed window only, one of a closed and an open window.
        operator
            .process(0, chunk(&[row(9), row(0)]), &mut output)
            .unwrap();
        operator
            .process(0, chunk(&[row(10), row(9)]), &mut output)
            .unwrap();
        assert_eq!(output.rows_late(), 3);
        advance(&mut operator, MAX_WATERMARK, &mut output);
        assert_eq!(printed(&output.take_chunks()).len(), 1);
    }
}

#[test]
fn regression_a_row_whose_window_is_null_is_in_no_window() {
    let row = |time: i64| Row {
        text: None,
        number: None,
        value: None,
        keep: None,
        time,
        position: 0,
    };
    let mut input = chunk(&[row(0), row(1)]);
    let mut columns = input.batch.columns().to_vec();
    columns[END] = Arc::new(TimestampMillisecondArray::from(vec![Some(10), None]));
    input = input.with_columns(input_schema(), columns).unwrap();
    let mut operator = aggregate(Some(false), &[], Emit::Changes);
    let mut output = Output::new(100);
    operator.process(0, input.slice(1, 1), &mut output).unwrap();
    operator.process(0, input, &mut output).unwrap();
    advance(&mut operator, MAX_WATERMARK, &mut output);
    let printed = printed(&output.take_chunks());
    assert_eq!(printed.len(), 1);
    assert_eq!(
        printed[0][..3],
        [Some("0".into()), Some("10".into()), Some("1".into())]
    );
    assert_eq!(output.rows_late(), 0);
}
