//! Tests of untrusted bytes: they cause an error each, and never a panic.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringViewArray, types::Int32Type};
use arrow_array::{BooleanArray, DictionaryArray, Int8Array, Int32Array, StringArray};

use super::*;
use crate::error::Result;

/// A few messages that together use all parts of the format.
pub fn messages() -> Vec<Message> {
    let mut random = Random(99);
    let nested = DataType::Struct(
        vec![
            Field::new("words", DataType::new_list(DataType::Utf8View, true), true),
            Field::new(
                "sizes",
                DataType::new_fixed_size_list(DataType::Int16, 2, false),
                false,
            ),
        ]
        .into(),
    );
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let types = [
        vec![DataType::Int64, DataType::Utf8],
        vec![DataType::Boolean, DataType::Utf8View, DataType::Null],
        vec![nested],
        vec![
            dictionary,
            DataType::Timestamp(arrow_schema::TimeUnit::Second, Some("UTC".into())),
        ],
    ];
    let mut messages = Vec::new();
    for types in types {
        let names = ["a", "b", "c"];
        let columns = names.into_iter().zip(&types);
        let columns = columns
            .map(|(name, data_type)| (name, random::array(&mut random, data_type, 11, true)));
        let mut chunk = Chunk::new(batch(columns.collect()), 12);
        chunk.origin = Some(Origin {
            partitions: crate::chunk::Partitions::One(2),
            positions: Positions::List(arrow_array::UInt64Array::from_iter_values(5..16)),
            watermarks: Some(Int64Array::from_iter_values(0..11)),
        });
        chunk.kinds = Some(Int8Array::from(vec![0, 1, 2, 0, 0, 1, 2, 1, 1, 0, 0]));
        messages.push(Message::Chunk(chunk));
    }
    messages.extend(random::control_messages());
    messages
}

/// Decodes a message's frames with one of them replaced.
fn decode_with(frames: &[Buffer], replaced: usize, by: Buffer) -> Result<Option<Message>> {
    let mut decoder = Decoder::new();
    let mut message = None;
    for (index, frame) in frames.iter().enumerate() {
        let frame = if index == replaced {
            by.clone()
        } else {
            frame.clone()
        };
        message = decoder.decode(frame)?;
    }
    Ok(message)
}

/// The frames as an input of the fuzz target: each after its length.
fn fuzz_input(frames: &[Buffer]) -> Vec<u8> {
    let mut input = Vec::new();
    for frame in frames {
        input.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        input.extend_from_slice(frame);
    }
    input
}

#[test]
fn a_frame_cut_short_anywhere_is_an_error() {
    for message in messages() {
        let frames = frames(&mut Encoder::new(), &message);
        for (index, frame) in frames.iter().enumerate() {
            for length in 0..frame.len() {
                let cut = place(&[&frame[..length]], 0);
                let error = decode_with(&frames, index, cut).expect_err("a part of a frame");
                assert!(error.place.starts_with("frame byte"), "{error}");
            }
            let longer = place(&[frame, &[0]], 0);
            decode_with(&frames, index, longer).expect_err("more than a frame");
        }
    }
}

#[test]
fn no_changed_byte_causes_a_panic() {
    for message in messages() {
        let frames = frames(&mut Encoder::new(), &message);
        for (index, frame) in frames.iter().enumerate() {
            for at in 0..frame.len() {
                // Each bit, all bits, and zero: mutations below try other values.
                for change in [1, 2, 4, 8, 16, 32, 64, 128, 0xff, frame[at]] {
                    let mut bytes = frame.to_vec();
                    bytes[at] ^= change;
                    let mut changed = frames.clone();
                    changed[index] = bytes.into();
                    fuzz_decode(&fuzz_input(&changed));
                }
            }
        }
    }
}

#[test]
fn no_random_mutation_causes_a_panic() {
    let mut random = Random(7);
    let seeds: Vec<Vec<u8>> = messages()
        .iter()
        .map(|message| fuzz_input(&frames(&mut Encoder::new(), message)))
        .collect();
    for _ in 0..20_000 {
        let seed = random.below(seeds.len());
        fuzz_decode(&mutated(&mut random, &seeds[seed]));
    }
}

/// A mutation: some bytes changed, words set to tempting numbers, a part cut out or duplicated.
pub fn mutated(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 | 3 => {
                const TEMPTING: [u32; 8] = [0, 1, 2, 63, 64, 0x7fff_ffff, 0x8000_0000, u32::MAX];
                let word = TEMPTING[random.below(8)].to_le_bytes();
                let at = at / 4 * 4;
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            4 => {
                let end = bytes.len().min(at + random.below(40));
                bytes.drain(at..end);
            }
            _ => {
                let end = bytes.len().min(at + random.below(40));
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

#[test]
fn random_bytes_cause_no_panic() {
    let mut random = Random(8);
    for _ in 0..20_000 {
        let length = random.below(200);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        fuzz_decode(&bytes);
        // Passes the first checks: one frame, of a known version and kind.
        if length > 16 {
            let frame = (length as u32 - 4).to_le_bytes();
            bytes[..4].copy_from_slice(&frame);
            bytes[4..8].copy_from_slice(&[VERSION, (length % 7) as u8, 0, 0]);
            bytes[12..16].copy_from_slice(&frame);
            fuzz_decode(&bytes);
        }
    }
}

/// A chunk whose only column has these parts, unchecked, as a broken writer would send it.
fn forged(kind: DataType, nullable: bool, table: &[u32], buffers: &[&[u8]]) -> Result<Message> {
    let schema = Schema::new(vec![Field::new("c", kind, nullable)]);
    let schema = schema::encode(&schema, 1).unwrap();
    let mut frame = vec![VERSION, kind::CHUNK, 0, 0];
    frame.extend(table[0].to_le_bytes());
    frame.extend([0; 8]);
    frame.extend([0; 4]);
    frame.extend(1u32.to_le_bytes());
    frame.extend((4 * table.len() as u32).to_le_bytes());
    frame.extend([0; 12]);
    table
        .iter()
        .for_each(|word| frame.extend(word.to_le_bytes()));
    for buffer in buffers.iter().filter(|buffer| !buffer.is_empty()) {
        frame.resize(frame.len().next_multiple_of(ALIGNMENT_BYTES), 0);
        frame.extend_from_slice(buffer);
    }
    let length = frame.len() as u32;
    frame[16..20].copy_from_slice(&length.to_le_bytes());
    let mut decoder = Decoder::new();
    decoder.decode(place(&[&schema], 0)).unwrap();
    decoder
        .decode(place(&[&frame], 0))
        .map(|message| message.expect("a message"))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn assert_refused(result: Result<Message>, reason: &str) {
    let error = result.expect_err(reason).to_string();
    assert!(error.contains("frame byte"), "{error}");
    assert!(error.contains(reason), "{error} doesn't say '{reason}'");
}

#[test]
fn forged_columns_are_refused_and_say_why() {
    let forge = forged;
    let ok = forge(DataType::Int32, true, &[2, 0, 8], &[&words(&[1, 2])]).unwrap();
    let expected: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    assert_eq!(chunk_of(&ok).batch.column(0), &expected);

    let int = DataType::Int32;
    let one = words(&[1]);
    assert_refused(forge(int.clone(), true, &[2, 0, 4], &[&one]), "expected");
    assert_refused(
        forge(int.clone(), true, &[2, 0, 8], &[&one]),
        "a buffer of 8 bytes from",
    );
    assert_refused(
        forge(int.clone(), true, &[1, 0, 4, 0], &[&one]),
        "more entries",
    );
    assert_refused(
        forge(int.clone(), true, &[1, 0], &[&one]),
        "a buffer's length",
    );
    assert_refused(
        forge(int.clone(), true, &[1, 2, 1, 4], &[&[0], &one]),
        "2 NULLs",
    );
    assert_refused(
        forge(int.clone(), true, &[1, 1, 1, 4], &[&[1], &one]),
        "the bitmap has 0",
    );
    assert_refused(
        forge(int.clone(), false, &[1, 1, 1, 4], &[&[0], &one]),
        "non-nullable",
    );
    assert_refused(forge(DataType::Null, true, &[1, 1], &[]), "type Null");
    assert_refused(
        forge(DataType::Null, true, &[u32::MAX, 0], &[]),
        "take no bytes",
    );
    assert_refused(
        forge(DataType::FixedSizeBinary(0), true, &[1 << 30, 0, 0], &[]),
        "no bytes",
    );

    let text = DataType::Utf8;
    let offsets = words(&[0, 9]);
    assert_refused(
        forge(text.clone(), true, &[1, 0, 8, 4], &[&offsets, b"abcd"]),
        "offset",
    );
    let offsets = words(&[3, 1]);
    assert_refused(
        forge(text.clone(), true, &[1, 0, 8, 4], &[&offsets, b"abcd"]),
        "offset",
    );
    let offsets = words(&[u32::MAX, 1]);
    assert_refused(
        forge(text.clone(), true, &[1, 0, 8, 4], &[&offsets, b"abcd"]),
        "offset",
    );
    let offsets = words(&[0, 1, 2]);
    let half = "ß".as_bytes();
    assert_refused(
        forge(text.clone(), true, &[2, 0, 12, 2], &[&offsets, half]),
        "utf-8",
    );
    let offsets = words(&[0, 2]);
    assert_refused(
        forge(text, true, &[1, 0, 8, 2], &[&offsets, &[0xff, 0xfe]]),
        "UTF8",
    );

    let view = |words_of: [u32; 4]| words(&words_of);
    let utf8 = DataType::Utf8View;
    let far = view([20, 0, 1, 0]);
    assert_refused(
        forge(utf8.clone(), true, &[1, 0, 1, 16, 4], &[&far, b"abcd"]),
        "buffer index",
    );
    let long = view([20, 0, 0, 0]);
    assert_refused(
        forge(utf8.clone(), true, &[1, 0, 1, 16, 4], &[&long, b"abcd"]),
        "buffer slice",
    );
    let dirty = view([1, 0xffff, 0, 0]);
    assert_refused(
        forge(utf8.clone(), true, &[1, 0, 0, 16], &[&dirty]),
        "padding",
    );
    let short = view([0; 4]);
    assert_refused(
        forge(utf8.clone(), true, &[1, 0, 2, 16, 0, 0], &[&short]),
        "an empty buffer",
    );
    let buffers = [1, 0, u32::MAX, 16];
    assert_refused(
        forge(utf8, true, &buffers, &[&view([0; 4])]),
        "a buffer's length",
    );

    let keys = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Int32));
    let key = words(&[1]);
    assert_refused(
        forge(keys, true, &[1, 0, 4, 1, 0, 4], &[&key, &one]),
        "out of bounds",
    );

    // Lengths whose product exceeds all memory, of items that take none.
    let nulls = Field::new("item", DataType::Null, false);
    let list = DataType::FixedSizeList(Arc::new(nulls), i32::MAX);
    let table = [2, 1, 1, u32::MAX - 1, 0];
    assert_refused(forge(list, true, &table, &[&[2]]), "take no bytes");
}

#[test]
fn forged_schemas_are_refused() {
    let frame = |body: &[u8]| {
        let mut frame = vec![VERSION, kind::SCHEMA, 0, 0, 1, 0, 0, 0];
        frame.extend((16 + body.len() as u32).to_le_bytes());
        frame.extend([0; 4]);
        frame.extend(body);
        Decoder::new().decode(place(&[&frame], 0))
    };
    // No metadata, one field without a name, nullable, of the type that follows.
    let field = |encoded: &[u8]| {
        let mut body = words(&[0, 1, 0]);
        body.push(1);
        body.extend(encoded);
        body.extend(words(&[0]));
        frame(&body).map(|_| ())
    };
    field(&[2]).unwrap();
    let refused = |encoded: &[u8], reason: &str| {
        let error = field(encoded).expect_err(reason).to_string();
        assert!(error.starts_with("frame byte"), "{error}");
        assert!(error.contains(reason), "{error} doesn't say '{reason}'");
    };
    refused(&[32], "not the tag of a type");
    refused(&[64, 0xff, 0xff, 0xff, 0xff], "binary of -1");
    refused(&[65, 4], "not a unit");
    refused(&[69, 0, 0], "precision");
    refused(&[69, 39, 0], "precision");
    refused(&[69, 10, 11], "scale");
    refused(&[75, 2], "not 0 or 1");
    refused(&[75, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0], "map's entries");
    refused(&[76, 13, 13], "keys must be integers");
    // Lists in lists, without end.
    let deep: Vec<u8> = [71, 0, 0, 0, 0, 1].repeat(100_000);
    refused(&deep, "nested more than");
    let deep = [76].repeat(100_000);
    refused(&deep, "nested more than");
    let deep: Vec<u8> = [74, 1, 0, 0, 0, 0, 0, 0, 0, 1].repeat(100_000);
    refused(&deep, "nested more than");
    // Numbers that are unverified claims.
    assert!(frame(&words(&[u32::MAX])).is_err());
    assert!(frame(&words(&[0, u32::MAX])).is_err());
    assert!(frame(&words(&[0, 0, 0])).is_err());
    let mut many = words(&[0, FIELDS_MAX as u32 + 1]);
    for _ in 0..=FIELDS_MAX {
        many.extend([0, 0, 0, 0, 1, 2, 0, 0, 0, 0]);
    }
    let error = frame(&many).unwrap_err();
    assert!(error.reason.contains("fields"), "{error}");
    assert!(frame(&vec![0; SCHEMA_BYTES_MAX]).is_err());
}

#[test]
fn invalid_headers_are_refused() {
    let message = messages().remove(0);
    let frames = frames(&mut Encoder::new(), &message);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = frames[1].to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        decode_with(&frames, 1, frame.into())
            .unwrap_err()
            .to_string()
    };
    assert!(with(0, &[2]).contains("same version"));
    assert!(with(1, &[77]).contains("not a kind"));
    assert!(with(2, &[0xff]).contains("flags"));
    assert!(with(2, &[flags::POSITIONS]).contains("no origin"));
    assert!(with(3, &[1]).contains("not zero"));
    assert!(with(4, &[12]).contains("11 elements, but 12 are expected"));
    assert!(with(20, &[2]).contains("rows of schema 2, after schema 1"));
    assert!(with(24, &[0xff; 4]).contains("table of"));
    assert!(with(16, &[1]).contains("bytes of a frame of"));

    let message = Message::Chunk(Chunk::new(longs(3), 1));
    let frames = self::frames(&mut Encoder::new(), &message);
    for at in [28, 32] {
        let mut frame = frames[1].to_vec();
        frame[at] = 1;
        let error = decode_with(&frames, 1, frame.into()).unwrap_err();
        assert!(error.reason.contains("the flags don't declare"), "{error}");
    }
}

#[test]
fn positions_that_overflow_are_refused() {
    let mut chunk = Chunk::new(longs(3), 1);
    chunk.origin = Some(Origin {
        partitions: crate::chunk::Partitions::One(0),
        positions: Positions::Run { first: u64::MAX },
        watermarks: None,
    });
    let frames = frames(&mut Encoder::new(), &Message::Chunk(chunk));
    let error = decode_with(&frames, 9, Buffer::default()).unwrap_err();
    assert!(error.reason.contains("overflow"), "{error}");
}

#[test]
fn rows_before_a_schema_are_refused() {
    let frames = frames(&mut Encoder::new(), &messages()[0]);
    let error = Decoder::new().decode(frames[1].clone()).unwrap_err();
    assert!(error.reason.contains("before any schema"), "{error}");
}

#[test]
fn kinds_of_rows_that_do_not_exist_are_refused() {
    let mut chunk = Chunk::new(longs(2), 1);
    chunk.kinds = Some(Int8Array::from(vec![0, 4]));
    let sent = frames(&mut Encoder::new(), &Message::Chunk(chunk.clone()));
    let error = decode_with(&sent, 9, Buffer::default()).unwrap_err();
    assert!(
        error.to_string().contains("4 is not a kind of row"),
        "{error}"
    );

    chunk.kinds = Some(Int8Array::from(vec![Some(0), None]));
    let sent = frames(&mut Encoder::new(), &Message::Chunk(chunk));
    let error = decode_with(&sent, 9, Buffer::default()).unwrap_err();
    assert!(error.to_string().contains("1 of them are NULL"), "{error}");
}

#[test]
fn a_decoder_continues_after_an_error() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let message = Message::Chunk(Chunk::new(longs(10), 1));
    let sent = frames(&mut encoder, &message);
    assert!(same(&message, &decoded(&mut decoder, &sent)));
    decoder.decode(place(&[b"nonsense"], 0)).unwrap_err();
    let sent = frames(&mut encoder, &message);
    assert!(same(&message, &decoded(&mut decoder, &sent)));
}

#[test]
fn a_long_dictionary_of_values_without_bytes_is_compacted() {
    let empty_list = DataType::new_fixed_size_list(DataType::Int32, 0, true);
    let mut random = Random(3);
    for values in [
        DataType::FixedSizeBinary(0),
        empty_list,
        DataType::Struct(Default::default()),
        DataType::Null,
    ] {
        let values = random::array(&mut random, &values, 50, false);
        let keys = Int32Array::from(vec![Some(49), None, Some(7), Some(49)]);
        let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
        let message = Message::Chunk(Chunk::new(batch(vec![("c", Arc::new(dictionary))]), 1));
        assert!(same(&message, &round_trip(&message)), "{message:?}");
    }
}

/// Arrays that are valid in Arrow, and unusual.
#[test]
fn unusual_arrays_survive_a_round_trip() {
    let keys = Int32Array::new(vec![9, 0].into(), Some(vec![false, true].into()));
    let dictionary: DictionaryArray<Int32Type> =
        DictionaryArray::new(keys, Arc::new(StringArray::from(vec![Some("a"), None])));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("null key beyond the values", Arc::new(dictionary)),
        (
            "views",
            Arc::new(StringViewArray::from(vec![Some("a"), None])),
        ),
        (
            "booleans",
            Arc::new(BooleanArray::from(vec![None, Some(true)])),
        ),
    ];
    let whole = batch(columns);
    for (from, length) in [(0, 2), (1, 1), (0, 1), (2, 0)] {
        let message = Message::Chunk(Chunk::new(whole.slice(from, length), 1));
        assert!(same(&message, &round_trip(&message)));
    }
}
