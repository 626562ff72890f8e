//! Sources go on where a checkpoint says.

use super::broker::Broker;
use super::driver::{Reading, definition};
use super::{bytes, numbered};
use crate::support::Seeded;
use slackwater_engine::source::Resume;

const BOUNDED: (&str, &str) = ("scan.bounded.mode", "latest-offset");
const LATEST: (&str, &str) = ("scan.startup.mode", "latest-offset");

pub fn sources_go_on(broker: &Broker) {
    a_cut_anywhere_gives_the_rest(broker);
    several_threads_parse_one_partition(broker);
    a_bounded_source_keeps_its_end(broker);
    a_partition_without_rows_goes_on_where_it_began(broker);
    later_partitions_are_read_from_their_beginning(broker);
    offsets_that_are_gone_are_said(broker);
}

/// Cut between any two polls, many times over: each line once, and positions as in one go.
fn a_cut_anywhere_gives_the_rest(broker: &Broker) {
    broker.create_topic("cut", 3);
    for partition in 0..3 {
        // Every seventh message is none.
        let mut lines = numbered(partition, 0..300);
        lines.iter_mut().step_by(7).for_each(String::clear);
        broker.produce("cut", partition as i32, bytes(&lines));
    }
    let table = definition(broker, "cut", &[BOUNDED]);
    let mut whole = Reading::open(&table, &[]).unwrap();
    whole.read(usize::MAX);
    whole.lines.sort();
    assert_eq!(whole.lines.len(), 3 * (300 - 43));
    let mut seeded = Seeded(11);
    for _ in 0..4 {
        let (mut found, mut cut) = (vec![], vec![]);
        loop {
            let mut reading = Reading::open(&table, &cut).unwrap();
            for _ in 0..seeded.below(60) {
                reading.step();
            }
            found.append(&mut reading.lines);
            if reading.is_over {
                break;
            }
            cut = reading.cut();
        }
        found.sort();
        assert_eq!(found, whole.lines);
    }
}

/// Enough messages that one thread doesn't keep up: lines in their order, also after a cut.
fn several_threads_parse_one_partition(broker: &Broker) {
    const MESSAGES: usize = 100_000;
    broker.create_topic("ahead", 1);
    broker.produce("ahead", 0, bytes(&numbered(0, 0..MESSAGES)));
    let table = definition(broker, "ahead", &[BOUNDED]);
    let mut seeded = Seeded(13);
    let (mut found, mut cut) = (vec![], vec![]);
    let mut helpers = 0;
    loop {
        let mut reading = Reading::open_with(&table, &cut, 4).unwrap();
        reading.read(MESSAGES / 4 + seeded.below(20_000) as usize);
        found.append(&mut reading.lines);
        helpers = helpers.max(reading.helpers());
        if reading.is_over {
            break;
        }
        cut = reading.cut();
    }
    eprintln!("{helpers} more threads parsed");
    let lines = numbered(0, 0..MESSAGES);
    let expected = lines.into_iter().enumerate();
    let expected = expected.map(|(offset, line)| ("ahead[0]".to_string(), offset as u64, line));
    assert!(found.into_iter().eq(expected));
}

fn a_bounded_source_keeps_its_end(broker: &Broker) {
    broker.create_topic("ends", 1);
    broker.produce("ends", 0, bytes(&numbered(0, 0..50)));
    let table = definition(broker, "ends", &[BOUNDED]);
    let mut first = Reading::open(&table, &[]).unwrap();
    let before = first.cut();
    first.read(20);
    let (cut, mut found) = (first.cut(), first.sorted());
    drop(first);
    broker.produce("ends", 0, bytes(&numbered(0, 50..60)));
    let mut second = Reading::open(&table, &cut).unwrap();
    second.read(usize::MAX);
    found.extend(second.sorted());
    found.sort();
    let mut expected = numbered(0, 0..50);
    expected.sort();
    assert_eq!(found, expected);
    let mut again = Reading::open(&table, &before).unwrap();
    again.read(usize::MAX);
    assert_eq!(again.sorted(), expected);
    // What has ended stays so.
    let over = second.cut();
    assert!(over[0].ended);
    let mut third = Reading::open(&table, &over).unwrap();
    third.read(usize::MAX);
    assert!(third.lines.is_empty());
}

fn a_partition_without_rows_goes_on_where_it_began(broker: &Broker) {
    broker.create_topic("quiet", 1);
    broker.produce("quiet", 0, bytes(&numbered(0, 0..10)));
    let table = definition(broker, "quiet", &[LATEST]);
    let mut first = Reading::open(&table, &[]).unwrap();
    first.step();
    let cut = first.cut();
    assert_eq!(cut[0].bookmark.as_deref(), Some("10.."));
    drop(first);
    broker.produce("quiet", 0, bytes(&numbered(0, 10..15)));
    let mut second = Reading::open(&table, &cut).unwrap();
    second.read(5);
    assert_eq!(second.sorted(), numbered(0, 10..15));
}

fn later_partitions_are_read_from_their_beginning(broker: &Broker) {
    broker.create_topic("later", 1);
    broker.produce("later", 0, bytes(&numbered(0, 0..10)));
    let table = definition(broker, "later", &[LATEST]);
    let cut = Reading::open(&table, &[]).unwrap().cut();
    let bounded = definition(broker, "later", &[BOUNDED]);
    let bounded_cut = Reading::open(&bounded, &[]).unwrap().cut();
    broker.grow_topic("later", 2);
    for partition in 0..2 {
        let lines = numbered(partition, 10..15);
        broker.produce("later", partition as i32, bytes(&lines));
    }
    let mut second = Reading::open(&table, &cut).unwrap();
    second.read(10);
    let mut expected = numbered(0, 10..15);
    expected.extend(numbered(1, 10..15));
    assert_eq!(second.sorted(), expected);
    // What ends with what was there doesn't have them.
    let mut second = Reading::open(&bounded, &bounded_cut).unwrap();
    second.read(usize::MAX);
    assert_eq!(second.sorted(), numbered(0, 0..10));
}

fn offsets_that_are_gone_are_said(broker: &Broker) {
    broker.create_topic("gone", 1);
    broker.produce("gone", 0, bytes(&numbered(0, 0..50)));
    let table = definition(broker, "gone", &[]);
    let mut first = Reading::open(&table, &[]).unwrap();
    let unread = first.cut();
    first.read(20);
    let (position, cut) = (first.cut()[0].position, first.cut());
    broker.delete_records("gone", 0, position as i64 + 5);
    let error = |cut: &[Resume]| Reading::open(&table, cut).err().unwrap().to_string();
    let gone = error(&cut);
    let goes_on = format!("resumes at offset {position}");
    let still = format!("still have is {}", position + 5);
    for part in ["gone[0]", &goes_on, &still, "retention.ms"] {
        assert!(gone.contains(part), "{part:?} is not in: {gone}");
    }
    // Nothing of it was read: it begins with what there is.
    let mut anew = Reading::open(&table, &unread).unwrap();
    anew.read(45 - position as usize);
    assert_eq!(anew.lines[0].1, position + 5);
    let beyond = Resume {
        position: 51,
        bookmark: None,
        ..cut[0].clone()
    };
    let beyond = error(&[beyond]);
    assert!(
        beyond.contains("up to 50") && beyond.contains("created again"),
        "{beyond}"
    );
}
