//! Tests of connections without sockets.

use fastrand::Rng;

use super::*;
use crate::keys::{Keys, Purpose};
use crate::secret::Secret;

fn pair() -> [Connection; 2] {
    let keys = Keys::new(&Secret::generate().unwrap(), Purpose::Data);
    let mut connecting = Connection::new(End::Connecting(keys.connecting().unwrap()), None);
    let mut accepting = Connection::new(End::Accepting(keys.accepting().unwrap()), None);
    for _ in 0..2 {
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut connecting, &mut accepting];
            let mut sent = Vec::new();
            assert!(ends[from].shake().is_ok());
            ends[from].pay(&mut sent).unwrap();
            let mut rest = &sent[..];
            while !rest.is_empty() {
                ends[to].take(&mut rest).unwrap();
                ends[to].shake().unwrap();
            }
        }
    }
    assert!(!connecting.is_handshaking() && !accepting.is_handshaking());
    [connecting, accepting]
}

/// New keys from the next record on.
fn renew(connection: &mut Connection) {
    // After what it has to say itself.
    connection.seal(&[]).unwrap();
    let seen = connection.input.seen();
    match &mut connection.end {
        End::Connecting(end) => match end.process_tls_records(seen).state {
            Ok(ConnectionState::WriteTraffic(state)) => state.refresh_traffic_keys().unwrap(),
            other => panic!("{other:?}"),
        },
        End::Accepting(end) => match end.process_tls_records(seen).state {
            Ok(ConnectionState::WriteTraffic(state)) => state.refresh_traffic_keys().unwrap(),
            other => panic!("{other:?}"),
        },
    }
}

/// Both ends write, read in portions of any size into rooms of any size, and take new keys at any time,
/// also while a record has come in part.
#[test]
fn what_is_written_is_read_in_any_portions() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut ends = pair();
        // By writer: what was written, what is on its way, what was read.
        let (mut written, mut sent, mut read) =
            ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
        let mut next = 0u8;
        for step in 0..200 {
            let writer = random.usize(0..2);
            match random.u8(0..10) {
                0..4 => {
                    let lengths = (0..random.usize(1..4)).map(|_| random.usize(0..40_000));
                    let slices = lengths.map(|length| {
                        next = next.wrapping_add(1);
                        vec![next; length]
                    });
                    let slices = slices.collect::<Vec<_>>();
                    let borrowed = slices.iter().map(|slice| IoSlice::new(slice));
                    let count = ends[writer].seal(&borrowed.collect::<Vec<_>>()).unwrap();
                    written[writer].extend_from_slice(&slices.concat()[..count]);
                }
                4 if step % 3 == 0 => renew(&mut ends[writer]),
                _ => {
                    let reader = &mut ends[1 - writer];
                    let mut room = vec![0; random.usize(1..50_000)];
                    match reader.open(&mut room).unwrap() {
                        Moved::Bytes(count) => read[writer].extend_from_slice(&room[..count]),
                        Moved::WouldBlock if sent[writer].is_empty() => {}
                        Moved::WouldBlock => {
                            let most = random.usize(1..=sent[writer].len());
                            let count = reader.take(&mut &sent[writer][..most]).unwrap();
                            sent[writer].drain(..count);
                        }
                        Moved::End => panic!("nobody has said so"),
                    }
                }
            }
            ends[writer].pay(&mut sent[writer]).unwrap();
        }
        for writer in [0, 1] {
            ends[writer].finish();
            ends[writer].pay(&mut sent[writer]).unwrap();
            let reader = &mut ends[1 - writer];
            let (mut rest, mut room) = (&sent[writer][..], [0; 5_000]);
            loop {
                match reader.open(&mut room).unwrap() {
                    Moved::Bytes(count) => read[writer].extend_from_slice(&room[..count]),
                    Moved::WouldBlock => assert_ne!(reader.take(&mut rest).unwrap(), 0),
                    Moved::End => break,
                }
            }
            assert!(read[writer] == written[writer], "seed {seed}");
        }
    }
}

#[test]
fn a_changed_byte_is_an_error_that_stays_and_is_told_to_the_peer() {
    let [mut writer, mut reader] = pair();
    writer.seal(&[IoSlice::new(b"some rows")]).unwrap();
    let mut sent = Vec::new();
    writer.pay(&mut sent).unwrap();
    sent[7] ^= 1;
    reader.take(&mut &sent[..]).unwrap();
    let mut room = [0; 100];
    for _ in 0..3 {
        let error = reader.open(&mut room).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sent bytes that were changed on their way"
        );
        assert!(reader.seal(&[IoSlice::new(b"an answer")]).is_err());
    }
    let mut told = Vec::new();
    reader.pay(&mut told).unwrap();
    writer.take(&mut &told[..]).unwrap();
    let error = writer.open(&mut room).unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
}
