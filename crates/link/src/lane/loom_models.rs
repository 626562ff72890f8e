//! Loom models of the lane: the code that ships, over loom's atomics and cells.
//!
//! A ring of 16 units, the smallest: a piece of 65 to 128 bytes takes 3 of them, a short one 1.

use loom::thread;

use super::cells::Cells;
use super::{FIRST, LAST, LaneReader, LaneWriter, Put, UNITS_MIN};
use crate::loom_models::{Place, explore};
use crate::sync::{Arc, AtomicBool, Ordering};

struct Ends {
    writer: LaneWriter,
    reader: LaneReader,
    writer_place: Place,
    reader_place: Place,
}

fn lane() -> Ends {
    let cells = Cells::new(UNITS_MIN);
    let (writer_place, reader_place) = (Place::new(), Place::new());
    Ends {
        writer: LaneWriter::new(vec![(cells.clone(), reader_place.waker())]),
        reader: LaneReader::new(cells, writer_place.waker(), reader_place.waker()),
        writer_place,
        reader_place,
    }
}

/// Writes a frame of `length` bytes, all of them `byte`.
fn put(writer: &mut LaneWriter, byte: u8, length: usize) -> Put {
    let bytes = vec![byte; length];
    writer.put(FIRST | LAST, length, length, |cells, start| {
        cells.write(start, &bytes);
    })
}

/// Takes a frame and returns its first byte.
fn take(reader: &mut LaneReader) -> Option<u8> {
    let Some(piece) = reader.peek().expect("a sound writer") else {
        reader.settle();
        return None;
    };
    let byte = reader.cells().first_byte(piece.start, piece.length);
    reader.release(piece);
    Some(byte)
}

/// Fills an empty lane with five frames of three units, without a refusal, which would leave its note
/// behind. The sixth needs a padding, and so the units of two frames.
fn fill(writer: &mut LaneWriter) {
    for byte in 0..FILLED {
        assert_eq!(put(writer, byte, 100), Put::Done);
    }
}

const FILLED: u8 = 5;

fn take_sleeping(reader: &mut LaneReader, place: &Place) -> u8 {
    loop {
        let mut taken = take(reader);
        if taken.is_none() {
            place.sleep_unless(|| {
                taken = take(reader);
                taken.is_some()
            });
        }
        if let Some(byte) = taken {
            return byte;
        }
    }
}

/// Each attempt is the look between announcement and sleep, including the first: a worker also announces
/// and then steps its instances.
fn put_sleeping(writer: &mut LaneWriter, place: &Place, byte: u8, length: usize) {
    let mut done = false;
    while !done {
        place.sleep_unless(|| {
            done = put(writer, byte, length) == Put::Done;
            done
        });
    }
}

/// Pieces are whole and in order, and a reader that sleeps is woken for them.
#[test]
fn pieces_are_whole_when_they_are_seen() {
    explore(None, || {
        let Ends {
            mut writer,
            mut reader,
            reader_place,
            ..
        } = lane();
        let waker = reader_place.waker();
        let writing = thread::spawn(move || {
            for (byte, length) in [(1, 100), (2, 8)] {
                assert_eq!(put(&mut writer, byte, length), Put::Done);
                waker.wake();
            }
        });
        assert_eq!(take_sleeping(&mut reader, &reader_place), 1);
        assert_eq!(take_sleeping(&mut reader, &reader_place), 2);
        writing.join().expect("the writing thread");
    });
}

/// A piece that would run over the end appears together with the padding before it.
#[test]
fn padding_and_the_piece_after_it_appear_at_once() {
    explore(None, || {
        let Ends {
            mut writer,
            mut reader,
            ..
        } = lane();
        // Up to one unit before the end, and empty again.
        for byte in 0..5 {
            assert_eq!(put(&mut writer, byte, 100), Put::Done);
            assert_eq!(take(&mut reader), Some(byte));
        }
        let writing = thread::spawn(move || {
            assert_eq!(put(&mut writer, 7, 100), Put::Done);
            writer
        });
        let early = take(&mut reader);
        let mut writer = writing.join().expect("the writing thread");
        assert_eq!(early.or_else(|| take(&mut reader)), Some(7));
        // The unit after the piece is a header that says "nothing".
        assert_eq!(take(&mut reader), None);
        assert_eq!(put(&mut writer, 8, 8), Put::Done);
        assert_eq!(take(&mut reader), Some(8));
    });
}

/// A writer writes to units only when the reader is done with them.
#[test]
fn units_are_written_only_when_they_were_handed_back() {
    explore(None, || {
        let Ends {
            mut writer,
            mut reader,
            ..
        } = lane();
        // One long piece, and short ones up to the last unit, which stays free.
        assert_eq!(put(&mut writer, 0, 100), Put::Done);
        for byte in 1..13 {
            assert_eq!(put(&mut writer, byte, 8), Put::Done);
        }
        let writing = thread::spawn(move || {
            // The first goes to the last unit, the second to the first unit, which the reader has read
            // just before it moved its position.
            let first = put(&mut writer, 13, 8) == Put::Done;
            let second = first && put(&mut writer, 14, 8) == Put::Done;
            13 + u8::from(first) + u8::from(second)
        });
        assert_eq!(take(&mut reader), Some(0));
        let filled = writing.join().expect("the writing thread");
        let rest = std::iter::from_fn(|| take(&mut reader));
        assert!(rest.eq(1..filled));
    });
}

/// A refused writer that sleeps is woken once there is room, by the piece that makes enough of it.
#[test]
fn refused_writer_is_woken() {
    explore(Some(4), || {
        let Ends {
            mut writer,
            mut reader,
            writer_place,
            ..
        } = lane();
        fill(&mut writer);
        let writing = thread::spawn(move || {
            put_sleeping(&mut writer, &writer_place, FILLED, 100);
        });
        for byte in 0..2 {
            assert_eq!(take(&mut reader), Some(byte));
        }
        // It stops here, though there is more.
        reader.settle();
        writing.join().expect("the writing thread");
    });
}

/// A piece that was lent is returned on a third thread, while the reader sleeps and the writer waits for
/// exactly those units.
#[test]
fn lent_piece_comes_back_while_both_ends_sleep() {
    explore(Some(3), || {
        let Ends {
            mut writer,
            mut reader,
            writer_place,
            reader_place,
        } = lane();
        fill(&mut writer);
        let piece = reader.peek().expect("a sound writer").expect("a piece");
        let hold = reader.lend(piece);
        // Done, but after the lent one.
        assert_eq!(take(&mut reader), Some(1));
        let dropping = thread::spawn(move || {
            assert_eq!(hold.cells().first_byte(0, 100), 0);
            drop(hold);
        });
        let done = Arc::new(AtomicBool::new(false));
        let written = Arc::clone(&done);
        let waker = reader_place.waker();
        let writing = thread::spawn(move || {
            put_sleeping(&mut writer, &writer_place, FILLED, 100);
            written.store(true, Ordering::Release);
            waker.wake_urgent();
        });
        while !done.load(Ordering::Acquire) {
            reader_place.sleep_unless(|| {
                reader.settle();
                done.load(Ordering::Acquire)
            });
        }
        dropping.join().expect("the dropping thread");
        writing.join().expect("the writing thread");
    });
}

/// Two readers of the same units: the writer waits for the slower one, whichever that is, and the last of
/// the two that makes room wakes it.
#[test]
fn refused_writer_waits_for_the_slower_of_two_readers() {
    explore(Some(2), || {
        let cells = Cells::new(UNITS_MIN);
        let others = cells.for_another();
        let writer_place = Place::new();
        let places = [Place::new(), Place::new()];
        let mut writer = LaneWriter::new(vec![
            (cells.clone(), places[0].waker()),
            (others.clone(), places[1].waker()),
        ]);
        fill(&mut writer);
        let waker = || writer_place.waker();
        let readers = [(cells, waker(), &places[0]), (others, waker(), &places[1])];
        let [mut one, mut other] =
            readers.map(|(cells, writer, place)| LaneReader::new(cells, writer, place.waker()));
        let writing = thread::spawn(move || {
            put_sleeping(&mut writer, &writer_place, FILLED, 100);
        });
        let reading = thread::spawn(move || {
            for byte in 0..2 {
                assert_eq!(take(&mut other), Some(byte));
            }
            other.settle();
            other
        });
        for byte in 0..2 {
            assert_eq!(take(&mut one), Some(byte));
        }
        one.settle();
        writing.join().expect("the writing thread");
        let mut other = reading.join().expect("the other reader");
        for reader in [&mut one, &mut other] {
            for byte in 2..=FILLED {
                assert_eq!(take(reader), Some(byte), "both get every piece");
            }
        }
    });
}
