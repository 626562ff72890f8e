//! Tests of the codec against itself: messages survive a round trip, and cost what they should.

mod corpus;
mod hostile;
mod random;
mod size;

use std::sync::Arc;

use arrow_array::{Array, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::check::{place, same};
use super::*;
use crate::chunk::{Chunk, Message, Origin, Partitions, Positions};
use crate::testing::batch;
use random::Random;

/// The frames of one message, each in one piece at an aligned place.
fn frames(encoder: &mut Encoder, message: &Message) -> Vec<Buffer> {
    let mut frames = Vec::new();
    encoder.encode(message, &mut frames).unwrap();
    frames.iter().map(|frame| whole(frame, 0)).collect()
}

fn whole(frame: &[Buffer], shift: usize) -> Buffer {
    let pieces: Vec<&[u8]> = frame.iter().map(Buffer::as_slice).collect();
    place(&pieces, shift)
}

/// Decodes frames, the last of which is a message's.
fn decoded(decoder: &mut Decoder, frames: &[Buffer]) -> Message {
    let (last, schemas) = frames.split_last().expect("a message has a frame");
    for frame in schemas {
        assert!(decoder.decode(frame.clone()).unwrap().is_none());
    }
    decoder
        .decode(last.clone())
        .unwrap()
        .expect("a message, not a schema")
}

fn round_trip(message: &Message) -> Message {
    decoded(&mut Decoder::new(), &frames(&mut Encoder::new(), message))
}

fn chunk_of(message: &Message) -> &Chunk {
    match message {
        Message::Chunk(chunk) => chunk,
        other => panic!("{other:?} is no chunk"),
    }
}

fn longs(rows: i64) -> RecordBatch {
    batch(vec![("n", Arc::new(Int64Array::from_iter_values(0..rows)))])
}

/// Asserts that every buffer of an array is inside the frame.
fn assert_within(frame: &Buffer, data: &ArrayData) {
    let within = |buffer: &Buffer| {
        let (start, end) = (
            frame.as_ptr() as usize,
            frame.as_ptr() as usize + frame.len(),
        );
        let at = buffer.as_ptr() as usize;
        assert!(buffer.is_empty() || start <= at && at + buffer.len() <= end);
    };
    data.buffers().iter().for_each(within);
    if let Some(nulls) = data.nulls() {
        within(nulls.buffer());
    }
    data.child_data()
        .iter()
        .for_each(|child| assert_within(frame, child));
}

#[test]
fn control_messages_are_short_frames_of_one_buffer() {
    for message in random::control_messages() {
        let mut frames = Vec::new();
        Encoder::new().encode(&message, &mut frames).unwrap();
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].len(), 1, "{message:?}");
        assert!(frames[0][0].len() <= 48, "{message:?}");
        assert!(same(&message, &round_trip(&message)), "{message:?}");
    }
}

#[test]
fn every_flat_type_survives_a_round_trip() {
    let mut random = Random(1);
    for data_type in random::flat_types() {
        for rows in [0, 1, 7, 8, 9, 64, 1000] {
            let column = random::array(&mut random, &data_type, rows, true);
            let batch = batch(vec![("c", column)]);
            let message = Message::Chunk(Chunk::new(batch, 1));
            assert!(
                same(&message, &round_trip(&message)),
                "{rows} of {data_type}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn random_chunks_survive_a_round_trip(
        seed: u64,
        rows in prop_oneof![Just(0usize), 1usize..20, 20usize..400],
        columns in 0usize..6,
        shift in 0usize..64,
    ) {
        let mut random = Random(seed);
        let batch = random::batch(&mut random, rows, columns);
        let message = Message::Chunk(random::chunk(&mut random, batch));
        let mut sent = Vec::new();
        Encoder::new().encode(&message, &mut sent).unwrap();

        let aligned: Vec<Buffer> = sent.iter().map(|frame| whole(frame, 0)).collect();
        let mut decoder = Decoder::new();
        let copy = decoded(&mut decoder, &aligned);
        prop_assert!(same(&message, &copy), "{message:?} became {copy:?}");
        prop_assert_eq!(decoder.copies(), 0);
        let frame = aligned.last().unwrap();
        for column in chunk_of(&copy).batch.columns() {
            assert_within(frame, &column.to_data());
        }

        let shifted: Vec<Buffer> = sent.iter().map(|frame| whole(frame, shift)).collect();
        let copy = decoded(&mut Decoder::new(), &shifted);
        prop_assert!(same(&message, &copy), "shifted by {shift}: {message:?} became {copy:?}");
    }

    #[test]
    fn one_link_carries_many_messages(seed: u64) {
        let mut random = Random(seed);
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let mut last = None;
        for _ in 0..12 {
            let message = if random.one_in(3) {
                let mut messages = random::control_messages();
                messages.swap_remove(random.below(5))
            } else {
                let batch = match last.take() {
                    Some(batch) if !random.one_in(3) => batch,
                    _ => {
                        let (rows, columns) = (random.below(50), random.below(4));
                        random::batch(&mut random, rows, columns)
                    }
                };
                last = Some(batch.clone());
                Message::Chunk(random::chunk(&mut random, batch))
            };
            let copy = decoded(&mut decoder, &frames(&mut encoder, &message));
            prop_assert!(same(&message, &copy), "{message:?} became {copy:?}");
        }
    }
}

#[test]
fn a_misaligned_frame_is_copied_only_if_necessary() {
    let message = Message::Chunk(Chunk::new(longs(100), 1));
    let mut sent = Vec::new();
    Encoder::new().encode(&message, &mut sent).unwrap();
    for (shift, copies) in [(0, 0), (8, 0), (64, 0), (1, 1), (4, 1)] {
        let shifted: Vec<Buffer> = sent.iter().map(|frame| whole(frame, shift)).collect();
        let mut decoder = Decoder::new();
        assert!(same(&message, &decoded(&mut decoder, &shifted)));
        assert_eq!(decoder.copies(), copies, "shifted by {shift}");
    }
}

#[test]
fn a_schema_is_sent_once_and_again_when_it_changes() {
    let count = |encoder: &mut Encoder, batch: &RecordBatch| {
        frames(encoder, &Message::Chunk(Chunk::new(batch.clone(), 1))).len()
    };
    let mut encoder = Encoder::new();
    let first = longs(3);
    assert_eq!(count(&mut encoder, &first), 2);
    assert_eq!(count(&mut encoder, &first), 1);
    // An equal schema at another address.
    assert_eq!(count(&mut encoder, &longs(4)), 1);
    let other = batch(vec![("m", Arc::new(Int64Array::from(vec![1])))]);
    assert_eq!(count(&mut encoder, &other), 2);
    assert_eq!(count(&mut encoder, &other), 1);
    assert_eq!(count(&mut encoder, &first), 2);

    let metadata = [("unit".to_string(), "ms".to_string())].into();
    let schema = first.schema().as_ref().clone().with_metadata(metadata);
    let noted = first.with_schema(Arc::new(schema)).unwrap();
    assert_eq!(count(&mut encoder, &noted), 2);
}

#[test]
fn decoded_chunks_share_one_schema() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let message = Message::Chunk(Chunk::new(longs(3), 1));
    let one = decoded(&mut decoder, &frames(&mut encoder, &message));
    let other = decoded(&mut decoder, &frames(&mut encoder, &message));
    let schemas = [&one, &other].map(|message| chunk_of(message).batch.schema());
    assert!(Arc::ptr_eq(&schemas[0], &schemas[1]));
}

#[test]
fn names_nullability_and_metadata_are_kept() {
    let note = |key: &str| [(key.to_string(), "x".to_string())].into();
    let inner = Field::new("", DataType::Int32, false).with_metadata(note("inner"));
    let list = DataType::List(Arc::new(inner));
    let column = Field::new("naïve 列", list, true).with_metadata(note("column"));
    let schema = Schema::new_with_metadata(vec![column], note("schema"));
    let batch = RecordBatch::new_empty(Arc::new(schema.clone()));
    let copy = round_trip(&Message::Chunk(Chunk::new(batch, 1)));
    assert_eq!(chunk_of(&copy).batch.schema().as_ref(), &schema);
}

#[test]
fn rows_without_columns_are_counted() {
    let options = RecordBatchOptions::new().with_row_count(Some(77));
    let schema = Arc::new(Schema::empty());
    let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    let mut chunk = Chunk::new(batch, 5);
    chunk.origin = Some(Origin {
        partitions: Partitions::One(3),
        positions: Positions::Run { first: 1000 },
        watermarks: None,
    });
    let message = Message::Chunk(chunk);
    let copy = round_trip(&message);
    assert_eq!(chunk_of(&copy).rows(), 77);
    assert!(same(&message, &copy));
}

#[test]
fn large_buffers_are_passed_on_by_reference() {
    let batch = longs(1000);
    let expected = batch.column(0).to_data().buffers()[0].as_ptr();
    let mut frames = Vec::new();
    let message = Message::Chunk(Chunk::new(batch, 1));
    Encoder::new().encode(&message, &mut frames).unwrap();
    assert!(frames[1].iter().any(|buffer| buffer.as_ptr() == expected));
    assert_eq!(frames[1].len(), 2, "a header and the column");
}

#[test]
fn an_encoder_keeps_no_batch_alive() {
    let batch = longs(1000);
    let mut encoder = Encoder::new();
    let mut frames = Vec::new();
    let message = Message::Chunk(Chunk::new(batch.clone(), 1));
    encoder.encode(&message, &mut frames).unwrap();
    drop((message, frames));
    assert_eq!(Arc::strong_count(batch.column(0)), 1);
    let mut batch = batch;
    let column = batch.remove_column(0);
    let buffer = column.to_data().buffers()[0].clone();
    drop(column);
    assert_eq!(buffer.strong_count(), 1);
}

#[test]
fn an_unsupported_type_is_named_with_its_column() {
    let runs = DataType::RunEndEncoded(
        Arc::new(Field::new("run_ends", DataType::Int32, false)),
        Arc::new(Field::new("values", DataType::Int64, true)),
    );
    let nested = DataType::List(Arc::new(Field::new("item", runs, true)));
    let schema = Schema::new(vec![
        Field::new("fine", DataType::Int64, true),
        Field::new("steps", nested, true),
    ]);
    let chunk = Chunk::new(RecordBatch::new_empty(Arc::new(schema)), 1);
    let mut frames = Vec::new();
    let mut encoder = Encoder::new();
    let error = encoder
        .encode(&Message::Chunk(chunk), &mut frames)
        .unwrap_err();
    assert_eq!(error.place, "column 'steps'");
    assert!(error.reason.contains("RunEndEncoded"), "{error}");
    assert!(frames.is_empty());

    // The encoder continues as if nothing had been asked of it.
    let message = Message::Chunk(Chunk::new(longs(3), 1));
    encoder.encode(&message, &mut frames).unwrap();
    assert_eq!(frames.len(), 2);
}

#[test]
fn types_are_nested_at_most_as_deep_as_the_limit() {
    let nested = |levels: usize| {
        (0..levels).fold(DataType::Int8, |data_type, _| {
            DataType::List(Arc::new(Field::new("item", data_type, true)))
        })
    };
    for (levels, travels) in [(NESTING_MAX - 1, true), (NESTING_MAX, false)] {
        let schema = Schema::new(vec![Field::new("deep", nested(levels), true)]);
        let chunk = Chunk::new(RecordBatch::new_empty(Arc::new(schema)), 1);
        let message = Message::Chunk(chunk);
        let mut sent = Vec::new();
        let result = Encoder::new().encode(&message, &mut sent);
        assert_eq!(result.is_ok(), travels, "{levels} levels: {result:?}");
        if travels {
            assert!(same(&message, &round_trip(&message)));
        }
    }
}
