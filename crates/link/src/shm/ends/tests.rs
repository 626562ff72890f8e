use super::*;
use crate::doorbell::Doorbell;
use crate::lane::UNIT;
use crate::lane::cells::CONTROL_BYTES;
use crate::memory::Memory;
use fastrand::Rng;

/// A lane of `units` on the heap, with wakers that nobody waits for.
fn lane(units: usize) -> (Writer<Vec<u8>>, Reader, Cells) {
    let memory = Arc::new(Memory::on_heap(4096 + units * UNIT));
    let cells = Cells::new(memory, 0, 4096, units);
    const _: () = assert!(CONTROL_BYTES <= 4096);
    let waker = || Waker::new(Arc::new(Doorbell::new().expect("an eventfd")));
    let peer = Peer::new("process 2");
    let writer = Writer::new(vec![Opposite {
        cells: cells.clone(),
        waker: waker(),
        peer: peer.clone(),
    }]);
    let reader = Reader::new(cells.clone(), waker(), waker(), peer);
    (writer, reader, cells)
}

/// A frame whose bytes tell its number and place.
fn frame(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 7 + at) as u8).collect()
}

fn rest(reader: &mut Reader) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(frame) = reader.receive().expect("a sound writer") {
        frames.push(frame.to_vec());
    }
    frames
}

#[test]
fn frames_of_every_length_come_whole() {
    let (mut writer, mut reader, _) = lane(64);
    for length in 1..1000 {
        writer.post(vec![frame(length, length)]).expect("room");
        let received = reader.receive().expect("sound").expect("a frame");
        assert_eq!(*received, *frame(length, length), "{length} bytes");
        let aligned = received.as_ptr().addr().is_multiple_of(64);
        assert!(aligned || length <= INLINE_BYTES_MAX, "{length} bytes");
    }
}

#[test]
fn a_frame_is_gathered_from_its_pieces() {
    let (mut writer, mut reader, _) = lane(64);
    let whole = frame(3, 700);
    for cut in [0, 1, 63, 64, 65, 699, 700] {
        let pieces = vec![whole[..cut].to_vec(), Vec::new(), whole[cut..].to_vec()];
        writer.post(pieces).expect("room");
        assert_eq!(*reader.receive().unwrap().unwrap(), *whole);
    }
}

#[test]
fn a_frame_larger_than_its_ring_is_moved_on_piece_by_piece() {
    let (mut writer, mut reader, _) = lane(16);
    let whole = frame(1, 10_000);
    writer.post(vec![whole.clone()]).expect("an empty ring");
    assert!(!writer.is_drained() && !writer.has_room());
    assert!(matches!(
        writer.post(vec![frame(2, 5)]),
        Err(SendError::Full(handed_back)) if handed_back == [frame(2, 5)]
    ));
    let mut received = None;
    for _ in 0..100 {
        received = reader.receive().expect("sound");
        if received.is_some() {
            break;
        }
        writer.push(false);
    }
    assert_eq!(*received.expect("a frame"), *whole);
    assert!(writer.is_drained());
    writer.post(vec![frame(2, 5)]).expect("room again");
    assert_eq!(*reader.receive().unwrap().unwrap(), *frame(2, 5));
}

#[test]
fn lent_frames_come_back_in_any_order() {
    let (mut writer, mut reader, _) = lane(32);
    let mut lent = Vec::new();
    for number in 0..4 {
        writer.post(vec![frame(number, 100)]).expect("room");
        lent.push(reader.receive().unwrap().unwrap());
    }
    assert!(lent.iter().all(Frame::is_lent));
    let free = writer.free();
    drop(lent.remove(2));
    drop(lent.remove(1));
    reader.settle();
    assert_eq!(writer.free(), free, "the first is still lent");
    assert_eq!(*lent[0], *frame(0, 100));
    drop(lent.remove(0));
    reader.settle();
    assert_eq!(writer.free(), free + 9);
    drop(lent);
    reader.settle();
    assert_eq!(writer.free(), 31);
}

#[test]
fn no_more_than_half_of_a_ring_is_lent() {
    let (mut writer, mut reader, _) = lane(32);
    let mut frames = Vec::new();
    for number in 0..10 {
        writer.post(vec![frame(number, 128)]).expect("room");
        frames.push(reader.receive().unwrap().unwrap());
    }
    let lent = frames.iter().filter(|frame| frame.is_lent()).count();
    assert_eq!(lent, 5, "five frames of three units are half of 32");
    for (number, received) in frames.iter().enumerate() {
        assert_eq!(**received, *frame(number, 128));
    }
}

#[test]
fn a_reader_that_keeps_its_frames_gets_copies() {
    let (mut writer, mut reader, _) = lane(16);
    reader.lend(false);
    let mut kept = Vec::new();
    for number in 0..50 {
        writer.post(vec![frame(number, 150)]).expect("room");
        kept.push(reader.receive().unwrap().unwrap());
    }
    for (number, received) in kept.iter().enumerate() {
        assert!(!received.is_lent());
        assert_eq!(**received, *frame(number, 150));
    }
}

#[test]
fn the_end_comes_after_the_last_frame() {
    let (mut writer, mut reader, _) = lane(16);
    writer.post(vec![frame(1, 100)]).expect("room");
    drop(writer);
    assert!(!reader.is_closed());
    assert_eq!(rest(&mut reader), [frame(1, 100)]);
    assert!(reader.is_closed());
}

#[test]
fn a_dead_writer_is_an_error_once_after_its_frames() {
    let (mut writer, mut reader, _) = lane(16);
    writer.post(vec![frame(1, 100)]).expect("room");
    reader.peer.mark_dead();
    assert!(!reader.is_closed());
    assert_eq!(*reader.receive().unwrap().unwrap(), *frame(1, 100));
    let error = reader.receive().expect_err("it is dead");
    assert_eq!(error.peer, "process 2");
    assert!(reader.receive().expect("only once").is_none() && reader.is_closed());
    // To the writer, the reader is dead too: they share the peer here.
    assert!(matches!(
        writer.post(vec![frame(2, 5)]),
        Err(SendError::Closed(_))
    ));
}

#[test]
fn a_writer_that_leaves_in_the_middle_of_a_frame_is_an_error() {
    let (mut writer, mut reader, _) = lane(16);
    writer.post(vec![frame(1, 5000)]).expect("room");
    drop(writer);
    let error = loop {
        match reader.receive() {
            Ok(None) => {}
            Ok(Some(_)) => panic!("half a frame"),
            Err(error) => break error,
        }
    };
    assert!(error.reason.contains("middle of a frame"), "{error}");
    assert!(reader.is_closed());
}

#[test]
fn random_frames_arrive_in_order() {
    let rounds = if cfg!(miri) { 300 } else { 20_000 };
    for units in [16, 32, 128] {
        let (mut writer, mut reader, _) = lane(units);
        let mut random = Rng::with_seed(units as u64);
        let (mut sent, mut received) = (0usize, 0usize);
        let mut lent = Vec::new();
        let length = |number: usize| 1 + Rng::with_seed(number as u64).usize(..units * 48);
        for _ in 0..rounds {
            match random.u64(..4) {
                0 | 1 => {
                    if writer.post(vec![frame(sent, length(sent))]).is_ok() {
                        sent += 1;
                    }
                }
                2 => writer.push(false),
                _ => {
                    if let Some(got) = reader.receive().expect("a sound writer") {
                        assert!(*got == *frame(received, length(received)));
                        received += 1;
                        lent.push(got);
                    }
                    if lent.len() > 3 {
                        lent.swap_remove(random.usize(..lent.len()));
                    }
                    // An old lease in the way of the writer must be dropped at some time.
                    if random.u64(..16) == 0 {
                        lent.clear();
                    }
                }
            }
        }
        assert!(received > rounds / 50, "{received} of {sent}");
    }
}

/// Bytes that no correct writer writes: an error, and never a panic or a read outside of the ring.
#[test]
fn nonsense_in_the_ring_is_an_error() {
    let mut random = Rng::with_seed(1);
    let rounds = if cfg!(miri) { 200 } else { 50_000 };
    let mut errors = 0;
    for round in 0..rounds {
        let (mut writer, mut reader, cells) = lane(16);
        for number in 0..3 {
            writer
                .post(vec![frame(number, 1 + round % 190)])
                .expect("room");
        }
        let mut junk = [0u8; 16];
        for byte in &mut junk {
            // Mostly small changes of a header, sometimes noise.
            *byte = random.u8(..);
        }
        let unit = random.usize(..12);
        let (from, to) = match random.u64(..3) {
            0 => (0, 16),
            1 => (0, 5),
            _ => (8, 12),
        };
        cells.write(unit * UNIT + from, &junk[from..to]);
        for _ in 0..8 {
            match reader.receive() {
                Ok(Some(frame)) => assert!(frame.len() <= 16 * UNIT),
                Ok(None) => {}
                Err(error) => {
                    assert!(error.reason.contains("shared memory"), "{error}");
                    errors += 1;
                    assert!(writer.is_closed(), "the writer is told");
                    break;
                }
            }
        }
    }
    assert!(errors > rounds / 4, "{errors} errors in {rounds}");
}

#[test]
fn an_impossible_position_closes_the_link() {
    for head in [17u64, u64::MAX] {
        let (mut writer, _reader, cells) = lane(16);
        while writer.post(vec![frame(0, 100)]).is_ok() {}
        cells.head().store(head, Ordering::Relaxed);
        assert!(matches!(
            writer.post(vec![frame(0, 100)]),
            Err(SendError::Closed(_))
        ));
        assert!(
            writer
                .error()
                .expect("an error")
                .reason
                .contains("position")
        );
    }
}
