//! What clients ask for: memtier's defaults, and the workloads A to F of YCSB as its binding for Redis
//! expresses them.
//!
//! - **memtier**: SET and GET at 1 : 10 over random keys, values of 32 bytes unless told otherwise. Its 10
//!   million keys are fewer here, so that a data set fits into memory three times.
//! - **YCSB**: a record is a hash of 10 fields of 100 bytes; `_indices` is a sorted set of all keys by their
//!   hashes, for scans. A read takes all fields, an update writes one.

use fastrand::Rng;
use serde::Serialize;

use super::keys::{self, Zipfian};
use super::resp;

/// Fields of a record, and bytes of each.
const FIELDS: usize = 10;
const FIELD_BYTES: usize = 100;

/// The most records of a scan.
const SCAN_MAX: u64 = 100;

/// The name of the sorted set of all keys.
const INDEX: &[u8] = b"_indices";

/// The name of the materialized view that is read.
pub const VIEW: &str = "rows";

/// GETs for each SET.
const GETS_PER_SET: u64 = 10;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Only SET.
    Set,
    /// Only GET, of the keys of memtier.
    Get,
    /// Only GET, of the keys of a materialized view ([`VIEW`]).
    GetView,
    /// memtier: a SET for ten GETs.
    Memtier,
    /// A workload of YCSB, `A` to `F`.
    Ycsb(char),
}

/// What happens once the replies of an operation have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The operation is done.
    Done,
    /// The records whose keys were in the reply are read.
    ReadThem,
    /// The record is updated.
    Update(u64),
}

/// The next commands of an operation.
#[derive(Debug)]
pub struct Step {
    /// The commands.
    pub bytes: Vec<u8>,
    /// The number of their replies.
    pub replies: usize,
    /// What follows.
    pub then: Then,
}

/// Operations at random.
pub struct Workload {
    mix: Mix,
    records: u64,
    value: Vec<u8>,
    zipfian: Zipfian,
    random: Rng,
    /// SET is due when this is a multiple of 11.
    turn: u64,
}

impl Mix {
    /// The name in tables.
    pub fn name(self) -> String {
        match self {
            Mix::Set => "SET".to_string(),
            Mix::Get | Mix::GetView => "GET".to_string(),
            Mix::Memtier => "memtier".to_string(),
            Mix::Ycsb(letter) => format!("YCSB {letter}"),
        }
    }

    /// Percent of operations that read, update, insert and scan; what is left reads and updates.
    fn shares(letter: char) -> [u8; 4] {
        match letter {
            'A' => [50, 50, 0, 0],
            'B' => [95, 5, 0, 0],
            'C' => [100, 0, 0, 0],
            'D' => [95, 0, 5, 0],
            'E' => [0, 0, 5, 95],
            'F' => [50, 0, 0, 0],
            _ => panic!("the workloads of YCSB are A to F"),
        }
    }
}

impl Workload {
    /// Operations over so many records, with values of so many bytes (memtier).
    pub fn new(mix: Mix, records: u64, value_bytes: usize, seed: u64) -> Workload {
        let zipfian = match mix {
            Mix::Ycsb('D') => Zipfian::new(records),
            Mix::Set | Mix::Get | Mix::GetView | Mix::Memtier | Mix::Ycsb(_) => {
                Zipfian::for_scrambling()
            }
        };
        Workload {
            mix,
            records: records.max(2),
            value: vec![b'x'; value_bytes],
            zipfian,
            random: Rng::with_seed(seed),
            turn: 0,
        }
    }

    /// The commands that store record `number` before the measurement.
    pub fn fill(&mut self, number: u64) -> Step {
        match self.mix {
            Mix::Set | Mix::Get | Mix::GetView | Mix::Memtier => self.set(number),
            Mix::Ycsb(_) => self.insert(number),
        }
    }

    /// The records that are stored before the measurement.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next operation.
    pub fn next(&mut self) -> Step {
        let letter = match self.mix {
            Mix::Set => {
                let number = self.random.u64(..self.records);
                return self.set(number);
            }
            Mix::Get | Mix::GetView => {
                let number = self.random.u64(..self.records);
                let key = match self.mix {
                    Mix::GetView => format!("{VIEW}:{number}"),
                    _ => memtier_key(number),
                };
                return step(&[&[b"GET", key.as_bytes()]], Then::Done);
            }
            Mix::Memtier => {
                self.turn += 1;
                let number = self.random.u64(..self.records);
                return match self.turn.is_multiple_of(GETS_PER_SET + 1) {
                    true => self.set(number),
                    false => step(&[&[b"GET", memtier_key(number).as_bytes()]], Then::Done),
                };
            }
            Mix::Ycsb(letter) => letter,
        };
        let [read, update, insert, scan] = Mix::shares(letter);
        let at = self.random.u8(..100);
        if letter == 'D' && at < read {
            let number = keys::latest(&self.zipfian, self.records, &mut self.random);
            return read_record(number, Then::Done);
        }
        let number = keys::scrambled(&self.zipfian, self.records, &mut self.random);
        if at < read {
            read_record(number, Then::Done)
        } else if at < read + update {
            self.update(number)
        } else if at < read + update + insert {
            let number = self.records;
            self.records += 1;
            if letter == 'D' {
                self.zipfian.grow();
            }
            self.insert(number)
        } else if at < read + update + insert + scan {
            self.scan(number)
        } else {
            read_record(number, Then::Update(number))
        }
    }

    /// The next step of an operation whose replies have arrived.
    pub fn follow(&mut self, then: Then, replies: &[resp::Reply]) -> Option<Step> {
        match then {
            Then::Done => None,
            Then::Update(number) => Some(self.update(number)),
            Then::ReadThem => {
                let Some(resp::Reply::Array(keys)) = replies.first() else {
                    return None;
                };
                let keys = keys.iter().filter_map(resp::Reply::text);
                let keys = keys.take(SCAN_MAX as usize).collect::<Vec<String>>();
                let commands = keys
                    .iter()
                    .map(|key| [b"HGETALL".as_slice(), key.as_bytes()]);
                let commands = commands.collect::<Vec<[&[u8]; 2]>>();
                let commands = commands.iter().map(|one| one.as_slice());
                Some(step(&commands.collect::<Vec<&[&[u8]]>>(), Then::Done))
                    .filter(|step| step.replies > 0)
            }
        }
    }

    fn set(&self, number: u64) -> Step {
        let key = memtier_key(number);
        step(&[&[b"SET", key.as_bytes(), &self.value]], Then::Done)
    }

    fn insert(&mut self, number: u64) -> Step {
        let (key, score) = (ycsb_key(number), score(number));
        let field = vec![b'f'; FIELD_BYTES];
        let names = (0..FIELDS).map(|field| format!("field{field}"));
        let names = names.collect::<Vec<String>>();
        let mut record = vec![b"HMSET".as_slice(), key.as_bytes()];
        for name in &names {
            record.extend([name.as_bytes(), field.as_slice()]);
        }
        let index: [&[u8]; 4] = [b"ZADD", INDEX, score.as_bytes(), key.as_bytes()];
        step(&[&record, &index], Then::Done)
    }

    fn update(&mut self, number: u64) -> Step {
        let key = ycsb_key(number);
        let name = format!("field{}", self.random.usize(..FIELDS));
        let value = vec![b'u'; FIELD_BYTES];
        let command: [&[u8]; 4] = [b"HMSET", key.as_bytes(), name.as_bytes(), &value];
        step(&[&command], Then::Done)
    }

    fn scan(&mut self, number: u64) -> Step {
        let length = self.random.u64(1..=SCAN_MAX).to_string();
        let score = score(number);
        let command: [&[u8]; 7] = [
            b"ZRANGEBYSCORE",
            INDEX,
            score.as_bytes(),
            b"+inf",
            b"LIMIT",
            b"0",
            length.as_bytes(),
        ];
        step(&[&command], Then::ReadThem)
    }
}

fn step(commands: &[&[&[u8]]], then: Then) -> Step {
    let mut bytes = Vec::new();
    for command in commands {
        resp::command(&mut bytes, command);
    }
    Step {
        bytes,
        replies: commands.len(),
        then,
    }
}

fn read_record(number: u64, then: Then) -> Step {
    step(&[&[b"HGETALL", ycsb_key(number).as_bytes()]], then)
}

fn memtier_key(number: u64) -> String {
    format!("memtier-{number}")
}

fn ycsb_key(number: u64) -> String {
    format!("user{}", keys::hash(number))
}

/// The place of a record in the index. YCSB hashes the key once more; any fixed order will do.
fn score(number: u64) -> String {
    (keys::hash(number) as f64 / u64::MAX as f64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(mix: Mix, count: usize) -> impl Fn(&str) -> f64 {
        let mut workload = Workload::new(mix, 1_000, 32, 5);
        let steps = (0..count).map(|_| workload.next()).collect::<Vec<Step>>();
        move |name: &str| {
            let with = steps.iter().filter(|step| {
                let text = String::from_utf8_lossy(&step.bytes).into_owned();
                text.contains(&format!("\r\n{name}\r\n"))
            });
            with.count() as f64 / count as f64
        }
    }

    #[test]
    fn operations_have_the_documented_shares() {
        let memtier = kinds(Mix::Memtier, 1_100);
        assert_eq!((memtier("SET"), memtier("GET")), (1.0 / 11.0, 10.0 / 11.0));
        for (letter, reads, writes, scans) in [
            ('A', 0.5, 0.5, 0.0),
            ('B', 0.95, 0.05, 0.0),
            ('C', 1.0, 0.0, 0.0),
            ('D', 0.95, 0.05, 0.0),
            ('E', 0.0, 0.05, 0.95),
            // Half of the reads are followed by an update.
            ('F', 1.0, 0.0, 0.0),
        ] {
            let share = kinds(Mix::Ycsb(letter), 10_000);
            for (name, expected) in [
                ("HGETALL", reads),
                ("HMSET", writes),
                ("ZRANGEBYSCORE", scans),
            ] {
                let share = share(name);
                assert!((share - expected).abs() < 0.02, "{letter}: {name}: {share}");
            }
        }
    }

    #[test]
    fn half_of_the_reads_of_f_are_followed_by_an_update() {
        let mut workload = Workload::new(Mix::Ycsb('F'), 1_000, 32, 5);
        let steps = (0..10_000).map(|_| workload.next().then);
        let updates = steps.filter(|then| matches!(then, Then::Update(_))).count();
        assert!((4_800..5_200).contains(&updates), "{updates}");
        let update = workload.follow(Then::Update(7), &[]).unwrap();
        assert!(update.bytes.starts_with(b"*4\r\n$5\r\nHMSET\r\n"));
    }

    #[test]
    fn a_scan_reads_the_records_that_it_found() {
        let mut workload = Workload::new(Mix::Ycsb('E'), 1_000, 32, 5);
        let keys = ["user1", "user2"].map(|key| resp::Reply::String(Some(key.into())));
        let found = [resp::Reply::Array(keys.to_vec())];
        let step = workload.follow(Then::ReadThem, &found).unwrap();
        assert_eq!((step.replies, step.then), (2, Then::Done));
        let none = [resp::Reply::Array(Vec::new())];
        assert!(workload.follow(Then::ReadThem, &none).is_none());
    }

    #[test]
    fn inserts_of_d_are_new_records() {
        let mut workload = Workload::new(Mix::Ycsb('D'), 1_000, 32, 5);
        (0..2_000).for_each(|_| drop(workload.next()));
        assert!((1_050..1_150).contains(&workload.records()));
    }
}
