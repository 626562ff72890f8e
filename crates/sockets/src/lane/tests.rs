use super::*;

const BYTES: u64 = 4096;

struct Ring(Lane, Box<[u8]>);

impl Ring {
    fn new() -> Self {
        Self(Lane::default(), vec![0; BYTES as usize].into())
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let ring = self.1.as_mut_ptr();
        let mut from = bytes.as_ptr();
        let copy = |to: *mut u8, bytes: usize| {
            // SAFETY: `fill` asks for at most the bytes of the slice, and for places inside of the ring.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            from = from.wrapping_add(bytes);
            Ok(bytes)
        };
        self.0.fill(ring, BYTES, bytes.len(), copy).unwrap()
    }

    fn read(&mut self, bytes: usize, peeks: bool) -> Vec<u8> {
        let mut read = Vec::new();
        let copy = |from: *const u8, bytes: usize| {
            // SAFETY: `drain` names places inside of the ring.
            read.extend_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        };
        let ring = self.1.as_mut_ptr();
        self.0.drain(ring, BYTES, bytes, peeks, copy).unwrap();
        read
    }
}

#[test]
fn bytes_come_out_as_they_went_in_whatever_the_pieces() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut ring = Ring::new();
        let (mut next_in, mut next_out) = (0_u64, 0_u64);
        for _ in 0..2000 {
            if random.bool() {
                let bytes: Vec<u8> = (0..random.u64(0..3000))
                    .map(|offset| (next_in + offset) as u8)
                    .collect();
                let room = ring.0.room(BYTES).unwrap();
                let written = ring.write(&bytes);
                assert_eq!(written as u64, room.min(bytes.len() as u64));
                next_in += written as u64;
            } else {
                let peeks = random.u8(0..4) == 0;
                let read = ring.read(random.usize(0..3000), peeks);
                for (offset, byte) in read.iter().enumerate() {
                    assert_eq!(*byte, (next_out + offset as u64) as u8, "seed {seed}");
                }
                next_out += if peeks { 0 } else { read.len() as u64 };
            }
            assert_eq!(ring.0.filled(BYTES), Ok(next_in - next_out));
        }
    }
}

#[test]
fn positions_that_nobody_can_have_written_are_an_error() {
    let ring = Ring::new();
    ring.0.tail.0.bytes.store(BYTES + 1, Ordering::Relaxed);
    assert_eq!(ring.0.filled(BYTES), Err(DAMAGED));
    assert_eq!(ring.0.room(BYTES), Err(DAMAGED));
}

#[test]
fn a_lane_moves_only_while_nothing_is_on_its_way_into_the_socket() {
    let lane = Lane::default();
    assert!(lane.enter_tcp());
    assert!(!lane.move_to_ring(|_| true));
    lane.leave_tcp(7);
    assert!(lane.move_to_ring(|sent| sent == 7));
    assert_eq!(lane.way(), Way::Ring);
    assert!(!lane.enter_tcp());
    assert_eq!(lane.tcp_left(), 7);
    assert!(!lane.stay_tcp());
}

#[test]
fn a_lane_whose_count_is_wrong_stays_tcp_for_good() {
    let lane = Lane::default();
    assert!(lane.enter_tcp());
    lane.leave_tcp(7);
    assert!(!lane.move_to_ring(|sent| sent == 8));
    assert_eq!(lane.way(), Way::TcpForever);
    assert!(!lane.move_to_ring(|_| true));
    assert!(lane.enter_tcp());
}

#[test]
fn a_reader_is_not_ready_while_it_waits_in_a_plain_recv() {
    let lane = Lane::default();
    assert!(lane.enter_plain());
    assert!(!lane.make_ready());
    lane.leave_plain();
    assert!(lane.make_ready());
    assert!(!lane.enter_plain());
    assert!(lane.make_ready());
}

#[test]
fn what_was_read_beyond_the_last_byte_of_tcp_were_bells() {
    let lane = Lane::default();
    assert!(lane.enter_tcp());
    lane.leave_tcp(10);
    assert_eq!(lane.bells_of(12), 0);
    assert!(lane.move_to_ring(|_| true));
    let received = lane.add_tcp_received(12);
    assert_eq!(lane.bells_of(received), 2);
    lane.were_bells(2);
    assert_eq!(lane.tcp_left(), 0);
}

#[test]
fn an_announcement_is_taken_once() {
    let word = AtomicU32::new(0);
    assert_eq!(sleepers(&word), 0);
    announce(&word, FUTEX);
    announce(&word, SOCKET);
    assert_eq!(sleepers(&word), FUTEX | SOCKET);
    assert_eq!(sleepers(&word), 0);
}
