//! A seal without cryptography that is rough with its owner: it hands out what it opened in small portions,
//! withholds records until they are whole, pads them, cuts and joins them at random, and writes in portions.
//!
//! A record: length (2), padding (1), kind (1), check (8), the padding, and the payload, changed by a
//! number that follows from the secret and the record's number. A changed, repeated or missing record is
//! found.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use fastrand::Rng;
use slackwater_link::tcp::{Guard, Moved, Seal};

const HEADER: usize = 12;

/// With its header less than what a link's record costs besides its bytes: 128 - 16.
const PADDING_MAX: u8 = 100;

/// Records are at least this long, unless there is no more to send.
const RECORD_MIN: usize = 4 << 10;
const RECORD_MAX: usize = 16 << 10;

/// The most that it takes at once.
const BATCH_MAX: usize = 64 << 10;

const HANDSHAKE: u8 = 0;
const DATA: u8 = 1;
const FINISH: u8 = 2;

/// A guard of the secret `secret`.
pub fn rough_guard(secret: u64) -> Arc<dyn Guard> {
    Arc::new(Rough(secret))
}

struct Rough(u64);

impl Guard for Rough {
    fn connecting(&self) -> io::Result<Box<dyn Seal>> {
        let mut seal = RoughSeal::new(self.0, true);
        seal.add(HANDSHAKE, b"one");
        Ok(Box::new(seal))
    }

    fn accepting(&self) -> io::Result<Box<dyn Seal>> {
        Ok(Box::new(RoughSeal::new(self.0, false)))
    }
}

struct RoughSeal {
    secret: u64,
    connects: bool,
    is_ready: bool,
    has_ended: bool,
    random: Rng,
    /// Ciphertext that was taken, and how much of it is opened.
    taken: Vec<u8>,
    start: usize,
    opened: Vec<u8>,
    given: usize,
    owed: Vec<u8>,
    numbers: [u64; 2],
}

impl RoughSeal {
    fn new(secret: u64, connects: bool) -> RoughSeal {
        RoughSeal {
            secret,
            connects,
            is_ready: false,
            has_ended: false,
            random: Rng::with_seed(secret ^ u64::from(connects)),
            taken: Vec::new(),
            start: 0,
            opened: Vec::new(),
            given: 0,
            owed: Vec::new(),
            numbers: [0; 2],
        }
    }

    fn key(&self, is_ours: bool) -> u64 {
        let connecting = is_ours == self.connects;
        let number = self.numbers[usize::from(is_ours)];
        Rng::with_seed(self.secret ^ (number << 1 | u64::from(connecting))).u64(..)
    }

    fn add(&mut self, kind: u8, payload: &[u8]) {
        let key = self.key(true);
        self.numbers[1] += 1;
        let padding = self.random.u8(..=PADDING_MAX);
        self.owed.extend((payload.len() as u16).to_le_bytes());
        self.owed.extend([padding, kind]);
        self.owed.extend(check(key, kind, payload));
        self.owed.extend((0..padding).map(|_| 0xEE));
        let start = self.owed.len();
        self.owed.extend(payload);
        change(&mut self.owed[start..], key);
    }

    /// Opens a record if it is whole. Returns whether it was.
    fn open_record(&mut self) -> io::Result<bool> {
        let bytes = &self.taken[self.start..];
        if bytes.len() < HEADER {
            return Ok(false);
        }
        let length = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        let (padding, kind) = (bytes[2], bytes[3]);
        let whole = HEADER + usize::from(padding) + length;
        if kind > FINISH || padding > PADDING_MAX || length > RECORD_MAX {
            return Err(breach("does not use this seal"));
        }
        if bytes.len() < whole {
            return Ok(false);
        }
        let key = self.key(false);
        let mut payload = bytes[whole - length..whole].to_vec();
        change(&mut payload, key);
        if bytes[4..HEADER] != check(key, kind, &payload) {
            return Err(breach("has another secret"));
        }
        self.start += whole;
        self.numbers[0] += 1;
        match (kind, &payload[..]) {
            (HANDSHAKE, b"one") if !self.connects => self.add(HANDSHAKE, b"two"),
            (HANDSHAKE, b"two") if self.connects => {
                self.add(HANDSHAKE, b"three");
                self.is_ready = true;
            }
            (HANDSHAKE, b"three") if !self.connects => self.is_ready = true,
            (DATA, payload) if self.is_ready => self.opened.extend(payload),
            (FINISH, []) => self.has_ended = true,
            _ => return Err(breach("sent a record out of place")),
        }
        Ok(true)
    }
}

impl Seal for RoughSeal {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn take(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        let most = [16, 1_000, 5_000, 70_000][self.random.usize(..4)];
        self.taken.drain(..self.start);
        self.start = 0;
        let length = self.taken.len();
        self.taken.resize(length + most, 0);
        let count = from.read(&mut self.taken[length..]);
        self.taken.truncate(length + *count.as_ref().unwrap_or(&0));
        count
    }

    fn open(&mut self, room: &mut [u8]) -> io::Result<Moved> {
        let is_shaking = !self.is_ready;
        loop {
            let left = &self.opened[self.given..];
            if !left.is_empty() && !is_shaking && !room.is_empty() {
                let most = left.len().min(room.len());
                let count = match self.random.u8(..8) {
                    0 => 1,
                    1..4 => self.random.usize(1..=most),
                    _ => most,
                };
                room[..count].copy_from_slice(&left[..count]);
                self.given += count;
                return Ok(Moved::Bytes(count));
            }
            if left.is_empty() {
                (self.opened, self.given) = (Vec::new(), 0);
                if self.has_ended {
                    return Ok(Moved::End);
                }
            }
            let is_done = room.is_empty() && self.is_ready;
            if is_done || !self.open_record()? || (is_shaking && self.is_ready) {
                return Ok(Moved::WouldBlock);
            }
        }
    }

    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(self.owed.is_empty() && self.is_ready, "not its turn");
        let mut all = Vec::new();
        for slice in slices {
            let most = slice.len().min(BATCH_MAX - all.len());
            all.extend_from_slice(&slice[..most]);
        }
        let mut rest = &all[..];
        while !rest.is_empty() {
            let most = self.random.usize(RECORD_MIN..=RECORD_MAX).min(rest.len());
            self.add(DATA, &rest[..most]);
            rest = &rest[most..];
        }
        Ok(all.len())
    }

    fn pay(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        let mut paid = 0;
        while paid < self.owed.len() {
            let left = self.owed.len() - paid;
            let portion = [left, left, 1 + left / 3][self.random.usize(..3)];
            match to.write(&self.owed[paid..paid + portion]) {
                Ok(count) => paid += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.owed.drain(..paid);
        Ok(paid)
    }

    fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    fn waiting(&self, unread: u64) -> u64 {
        let bytes = unread + (self.taken.len() - self.start) as u64;
        let records = bytes / RECORD_MIN as u64 + 8;
        let inside = (self.opened.len() - self.given) as u64;
        inside + bytes.saturating_sub(records * (HEADER as u64 + u64::from(PADDING_MAX)))
    }

    fn finish(&mut self) {
        self.add(FINISH, &[]);
    }
}

/// In words, because it is compiled without optimization.
fn change(bytes: &mut [u8], key: u64) {
    for word in bytes.chunks_mut(8) {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        let changed = (u64::from_le_bytes(eight) ^ key).to_le_bytes();
        word.copy_from_slice(&changed[..word.len()]);
    }
}

fn check(key: u64, kind: u8, payload: &[u8]) -> [u8; 8] {
    let mut hash = key ^ u64::from(kind);
    for word in payload.chunks(8) {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        hash = (hash ^ u64::from_le_bytes(eight)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 29;
    }
    hash.to_le_bytes()
}

fn breach(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}
