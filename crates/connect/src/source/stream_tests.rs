//! Partitions of a stream, some of whose blocks other threads parse, against one reader.

use proptest::prelude::*;
use slackwater_engine::source::{SourcePoll, SourceRequest};

use super::helpers::Helpers;
use super::stream::{Linger, Shared as _, StreamPartition, StreamSpec};
use super::tests::{request, row_text};
use crate::block::BlockPool;
use crate::format::Format;
use crate::lines::tests::{Read, any_csv, read_pieces, reader};
use crate::options::Options;
use crate::parsers::Block;
use crate::table::TableDefinition;
use crate::table::tests::table;

/// A source of several partitions, each with its own bytes.
struct Stream {
    spec: StreamSpec,
    helpers: Helpers<Block>,
    linger: Linger,
    partitions: Vec<StreamPartition>,
    /// What each has read, and the rest of its bytes.
    read: Vec<(Read, Vec<u8>)>,
}

impl Stream {
    fn new(table: &TableDefinition, inputs: &[String], request: SourceRequest) -> Stream {
        let format = Format::of_source(&Options::new(&table.options), &table.schema).unwrap();
        Stream {
            helpers: Helpers::new(&request),
            spec: StreamSpec::new(&table.schema, &format, request),
            linger: Linger::default(),
            partitions: vec![],
            read: inputs
                .iter()
                .map(|text| (Read::default(), text.clone().into_bytes()))
                .collect(),
        }
    }

    /// Bytes arrive for one partition: at most so many, as far as there is room.
    fn arrive(&mut self, index: usize, most: usize) {
        let count = self.partitions.len();
        let partition = &mut self.partitions[index];
        let rest = &mut self.read[index].1;
        if partition.room().is_empty() {
            self.helpers.hand_over(partition, count, &self.spec.request);
        }
        let length = partition.room().len().min(rest.len()).min(most);
        partition.room()[..length].copy_from_slice(&rest[..length]);
        partition.filled(length, 7);
        rest.drain(..length);
    }

    /// Returns whether there is nothing more to do without more bytes.
    fn poll(&mut self) -> bool {
        let (linger, request) = (&mut self.linger, &self.spec.request);
        match self.helpers.poll(&mut self.partitions, linger, request) {
            Some(SourcePoll::Rows(rows)) => {
                let read = &mut self.read[rows.partition as usize].0;
                for row in 0..rows.batch.num_rows() {
                    let text = row_text(&rows.batch, row);
                    read.rows.push(format!("{}:{text}", rows.positions.at(row)));
                }
                for rejected in rows.rejected {
                    let position = rejected.position.unwrap();
                    read.rejected
                        .push(format!("{position}:{}", rejected.reason));
                    read.records.push(rejected.record);
                }
                assert_eq!(rows.ingest_ns, 7);
                false
            }
            None => !self.partitions.iter().any(StreamPartition::is_ahead),
            _ => panic!("without a linger there is nothing to wait for"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn partitions_are_read_as_by_one_thread(
        inputs in proptest::collection::vec(any_csv(), 1..4),
        header in prop_oneof![Just("true"), Just("false")],
        block_bytes in 2usize..200,
        parsers in 1usize..5,
        rows_max in 1usize..9,
        pieces in proptest::collection::vec((0usize..4, 1usize..300, any::<bool>()), 1..20),
        broken in any::<bool>(),
    ) {
        let columns = [("n", arrow_schema::DataType::Int64), ("s", arrow_schema::DataType::Utf8View)];
        let table = table(&columns, &[("csv.header", header)]);
        let request = SourceRequest { parsers, ..request(&[0, 1]) };
        request.tuning.set(0, rows_max);
        let mut stream = Stream::new(&table, &inputs, request);
        stream.spec.pool = BlockPool::new(block_bytes);
        for number in 0..inputs.len() {
            stream.partitions.push(stream.spec.partition(number as u32));
        }
        let mut pieces = pieces.into_iter().cycle();
        while stream.read.iter().any(|(_, rest)| !rest.is_empty()) {
            let (index, most, polls) = pieces.next().unwrap();
            stream.helpers.at_once();
            stream.arrive(index % inputs.len(), most);
            // All get their bytes, whatever the pieces are.
            (0..inputs.len()).for_each(|index| stream.arrive(index, 1));
            if polls || stream.partitions.iter_mut().any(|partition| partition.room().is_empty()) {
                stream.poll();
            }
        }
        for partition in &mut stream.partitions {
            match broken {
                true => partition.break_off("it broke".into(), 7),
                false => partition.end(7),
            }
        }
        while !stream.poll() {}
        prop_assert!(stream.partitions.iter().all(StreamPartition::is_finished));
        for (input, (read, _)) in inputs.iter().zip(stream.read) {
            let one = reader(&table, &[0, 1], 64 * 1024);
            let whole = match broken {
                false => read_pieces(one, input.as_bytes(), &[usize::MAX], 1_000),
                true => crate::lines::tests::read_broken(one, input.as_bytes()),
            };
            prop_assert_eq!(read, whole);
        }
    }
}
