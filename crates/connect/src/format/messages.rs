//! Records that arrive one by one, each in its own message, instead of as lines.
//!
//! A message is one record, even if it contains line ends: a row, a rejection, or nothing if it is empty. (A
//! decoder that the program brings makes any number of rows.) Its position is the number that the queue gave
//! it.

use arrow_buffer::Buffer;
use slackwater_engine::source::Rejected;

use super::cells::{BadRow, Span};
use super::{DecodedRows, Decoder, Kind};

/// The place of a message in its block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The message's position in the partition.
    pub(crate) number: u64,
}

impl Decoder {
    /// The message without the line ends around it, which are not part of a record.
    pub(crate) fn trim_message<'m>(&self, message: &'m [u8]) -> &'m [u8] {
        if let Kind::Raw | Kind::Own(_) = self.kind {
            return message;
        }
        let is_line_end = |byte: &&u8| matches!(byte, b'\n' | b'\r');
        let before = message.iter().take_while(is_line_end).count();
        let behind = message[before..]
            .iter()
            .rev()
            .take_while(is_line_end)
            .count();
        &message[before..message.len() - behind]
    }

    /// Makes a message readable as a line: line ends between the tokens of JSON are whitespace. (Within
    /// strings they would be invalid, and are read as spaces too.)
    pub(crate) fn prepare_message(&self, message: &mut [u8]) {
        if let Kind::Json(_) = self.kind {
            let mut from = 0;
            while let Some(length) = memchr::memchr(b'\n', &message[from..]) {
                from += length;
                message[from] = b' ';
            }
        }
    }

    /// Rejects a message because it is too long.
    pub(crate) fn reject_message(&mut self, message: &[u8], number: u64) -> Rejected {
        self.progress.line = number;
        self.reject_too_long(message)
    }

    /// The rows of the messages, whose numbers increase, and the rejected ones.
    pub(crate) fn decode_messages(&mut self, block: &Buffer, messages: &[Message]) -> DecodedRows {
        let progress = &mut self.progress;
        progress.begin(messages.len().max(1));
        let bytes = block.as_slice();
        let mut bad_rows: Vec<BadRow> = vec![];
        for message in messages {
            let (start, end) = (message.start as usize, message.end as usize);
            progress.begin_message(message.number);
            let (until, rows) = (&bytes[..end], progress.rows());
            let (at, _) = match &mut self.kind {
                Kind::Csv(scanner) => scanner.scan(until, start, true, progress),
                Kind::Json(decoder) => decoder.scan(until, start, true, progress),
                Kind::Log(scanner) => scanner.scan(until, start, true, progress),
                Kind::Regex(scanner) => scanner.scan(until, start, true, progress),
                Kind::Raw | Kind::Own(_) if start == end => continue,
                Kind::Own(decoder) => {
                    progress.decode_own(decoder.as_mut(), bytes, (start, end));
                    continue;
                }
                Kind::Raw => {
                    if self.read.fields().len() == 1 {
                        progress.records.spans.push(Span::new(start, end));
                    }
                    progress.accept(start, end);
                    continue;
                }
            };
            if at < end && progress.rows() > rows {
                let reason = "the message continues after the end of its record";
                bad_rows.push((progress.rows() - 1, reason.into()));
            }
        }
        self.rows(block, bad_rows)
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;
    use crate::format::Format;
    use crate::lines::tests::Read;
    use crate::options::Options;
    use crate::table::tests::table;

    fn read(format: &str, columns: &[(&str, DataType)], messages: &[(u64, &str)]) -> Read {
        let table = table(columns, &[("format", format)]);
        let format = Format::of_source(&Options::new(&table.options), &table.schema).unwrap();
        let all = (0..columns.len()).collect::<Vec<_>>();
        let mut decoder = format.decoder(&table.schema, &all);
        let mut bytes = vec![];
        let mut places = vec![];
        for (number, text) in messages {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(decoder.trim_message(text.as_bytes()));
            decoder.prepare_message(&mut bytes[start as usize..]);
            places.push(Message {
                start,
                end: bytes.len() as u32,
                number: *number,
            });
        }
        let mut read = Read::default();
        read.take(decoder.decode_messages(&Buffer::from(bytes), &places));
        read
    }

    #[test]
    fn a_message_is_a_record_and_its_number_the_position() {
        let columns = [("a", DataType::Int64), ("b", DataType::Utf8View)];
        let messages = [
            (7, "1,x"),
            (8, "2,y\r\n"),
            (9, ""),
            (12, "x,z"),
            (13, "3,\"p\nq\""),
        ];
        let read = read("csv", &columns, &messages);
        assert_eq!(read.rows, ["7:1|x", "8:2|y", "13:3|p\nq"]);
        assert_eq!(read.rejected, ["12:column 'a' (BIGINT): can't read 'x'"]);
        assert_eq!(read.records, ["x,z"]);
    }

    #[test]
    fn a_second_line_does_not_become_a_row() {
        let columns = [("a", DataType::Int64), ("b", DataType::Int64)];
        let messages = [(0, "1,2"), (1, "3,4\n5,6"), (2, "x,4\n5,6"), (3, "7,8")];
        let read = read("csv", &columns, &messages);
        assert_eq!(read.rows, ["0:1|2", "3:7|8"]);
        let why = "the message continues after the end of its record";
        assert_eq!(read.rejected[0], format!("1:{why}"));
        assert!(read.rejected[1].starts_with("2:"), "{:?}", read.rejected);
        assert_eq!(read.rejected.len(), 2);
    }

    #[test]
    fn raw_and_json_messages() {
        let columns = [("line", DataType::Utf8View)];
        let read_raw = read("raw", &columns, &[(0, "a\nb"), (1, ""), (5, "c")]);
        assert_eq!(read_raw.rows, ["0:a\nb", "5:c"]);
        let messages = [
            (3, "{\"line\": \"x\"}"),
            (4, "{"),
            (6, "{\"line\":1}{}"),
            (8, "\n{\n\"line\":\r\n2}\r\n"),
        ];
        let read_json = read("json", &columns, &messages);
        assert_eq!(read_json.rows, ["3:x", "8:2"]);
        assert_eq!(read_json.rejected.len(), 2);
    }
}
