//! Tests of what a chunk costs on the wire: its own rows, not the batch that they were cut from.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, StringArray, StringViewArray,
};
use arrow_select::filter::filter_record_batch;

use super::*;

const ROWS: usize = 8192;

fn bytes(batch: &RecordBatch) -> usize {
    let message = Message::Chunk(Chunk::new(batch.clone(), 1));
    assert!(same(&message, &round_trip(&message)));
    let mut frames = Vec::new();
    Encoder::new().encode(&message, &mut frames).unwrap();
    frames.pop().unwrap().iter().map(Buffer::len).sum()
}

fn long_text(row: usize) -> String {
    format!("text of row {row}, longer than a view holds")
}

/// The same rows, one column of each layout.
fn columns() -> Vec<(&'static str, ArrayRef)> {
    let mut random = Random(4);
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let mut column = |data_type: &DataType| random::array(&mut random, data_type, ROWS, true);
    let fields = vec![field("a", DataType::Int64), field("b", DataType::Utf8)];
    let item = Arc::new(field("item", DataType::Utf8));
    let entries = vec![
        Field::new("key", DataType::Int32, false),
        field("value", DataType::Utf8),
    ];
    let entries = Field::new("entries", DataType::Struct(entries.into()), false);
    let strings: Vec<String> = (0..ROWS).map(long_text).collect();
    let dictionary = DictionaryArray::<Int32Type>::new(
        Int32Array::from_iter_values(0..ROWS as i32),
        Arc::new(StringArray::from(strings.clone())),
    );
    vec![
        ("boolean", column(&DataType::Boolean)),
        ("integer", column(&DataType::Int64)),
        ("text", column(&DataType::Utf8)),
        ("binary", column(&DataType::FixedSizeBinary(10))),
        ("struct", column(&DataType::Struct(fields.into()))),
        ("list", column(&DataType::List(Arc::clone(&item)))),
        (
            "large list",
            column(&DataType::LargeList(Arc::clone(&item))),
        ),
        ("fixed list", column(&DataType::FixedSizeList(item, 3))),
        ("map", column(&DataType::Map(Arc::new(entries), false))),
        (
            "views",
            Arc::new(StringViewArray::from_iter_values(&strings)),
        ),
        ("dictionary", Arc::new(dictionary)),
    ]
}

#[test]
fn ten_rows_of_a_large_batch_cost_only_ten_rows() {
    for (name, column) in columns() {
        let batch = batch(vec![(name, column)]);
        let whole = bytes(&batch);
        for offset in [0, 8, 13, 4099, ROWS - 10] {
            let slice = bytes(&batch.slice(offset, 10));
            // A header, a table, and a padding for each of few buffers, besides the rows.
            let rows = 10 * whole / ROWS;
            let bound = 4 * rows + 700;
            assert!(slice <= bound, "{name} from {offset}: {slice} > {bound}");
        }
    }
}

#[test]
fn a_filtered_view_array_sends_what_is_left() {
    let column = StringViewArray::from_iter_values((0..ROWS).map(long_text));
    let batch = batch(vec![("text", Arc::new(column))]);
    for step in [2, 10, 1000] {
        let keep: BooleanArray = (0..ROWS).map(|row| Some(row % step == 0)).collect();
        let kept = filter_record_batch(&batch, &keep).unwrap();
        let text: usize = (0..ROWS)
            .step_by(step)
            .map(|row| long_text(row).len())
            .sum();
        let due = text + 16 * kept.num_rows();
        let sent = bytes(&kept);
        assert!(sent <= due + 300, "every {step}th row: {sent} > {due}");
    }
}

#[test]
fn views_of_the_same_bytes_are_sent_once() {
    let long = "x".repeat(10_000);
    let one = StringViewArray::from_iter_values([long.as_str()]);
    let rows = arrow_array::UInt32Array::from(vec![0; 1000]);
    let many = arrow_select::take::take(&one, &rows, None).unwrap();
    assert!(bytes(&batch(vec![("text", many)])) < 10_000 + 1000 * 16 + 300);
}

#[test]
fn nulls_keep_no_views_alive() {
    let column = StringViewArray::from_iter_values((0..ROWS).map(long_text));
    let (views, buffers, _) = column.into_parts();
    let nulls = (0..ROWS).map(|row| row == 5).collect();
    let column = StringViewArray::new(views, buffers.to_vec(), Some(nulls));
    let sent = bytes(&batch(vec![("text", Arc::new(column))]));
    assert!(sent < ROWS * 16 + ROWS / 8 + 400, "{sent}");
}

#[test]
fn views_into_many_buffers_are_gathered() {
    let column = StringViewArray::from_iter_values((0..ROWS).map(long_text));
    let slices: Vec<ArrayRef> = (0..40)
        .map(|n| {
            let slice = column.slice(n * 200, 100).gc();
            Arc::new(slice) as ArrayRef
        })
        .collect();
    let slices: Vec<&dyn Array> = slices.iter().map(AsRef::as_ref).collect();
    let joined = arrow_select::concat::concat(&slices).unwrap();
    let message = Message::Chunk(Chunk::new(batch(vec![("text", joined)]), 1));
    assert!(same(&message, &round_trip(&message)));
    let copy = round_trip(&message);
    let data = chunk_of(&copy).batch.column(0).to_data();
    assert!(data.buffers().len() <= 1 + 40);
}

#[test]
fn a_chunk_that_no_frame_can_hold_is_refused() {
    let options = RecordBatchOptions::new().with_row_count(Some(EMPTY_ELEMENTS_MAX + 1));
    let schema = Arc::new(Schema::empty());
    let rows = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    let mut frames = Vec::new();
    let message = Message::Chunk(Chunk::new(rows, 1));
    let error = Encoder::new().encode(&message, &mut frames).unwrap_err();
    assert!(error.to_string().contains("fewer rows"), "{error}");
    assert!(frames.is_empty());

    // Zeroed memory that is never touched: 257 MiB cost nothing.
    let column = arrow_data::ArrayData::new_null(&DataType::Decimal256(76, 0), (257 << 20) / 32);
    let column = arrow_array::make_array(column.into_builder().nulls(None).build().unwrap());
    let wide = batch(vec![("wide", column)]);
    let message = Message::Chunk(Chunk::new(wide, 1));
    let error = Encoder::new().encode(&message, &mut frames).unwrap_err();
    assert!(error.to_string().contains("fewer rows"), "{error}");
    assert!(frames.is_empty());
}
