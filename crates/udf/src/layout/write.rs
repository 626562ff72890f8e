//! Columns to a memory.

use std::io;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringViewArray, downcast_primitive_array};
use arrow_buffer::{BooleanBuffer, Buffer, OffsetBuffer};
use arrow_schema::DataType;

use super::{ALIGNMENT, Flags, HEADER_BYTES, NODE_BYTES};
use crate::memory::Memory;

/// The largest offset: strings of a column beyond it don't fit in one call.
const OFFSET_MAX: usize = i32::MAX as usize;

/// The buffers of a node, by their place in it.
const VALIDITY: usize = 2;
const VALUES: usize = 4;
const TEXT: usize = 6;

/// Columns that are laid out, and not yet written.
pub struct Arguments {
    nodes: Vec<[u64; NODE_BYTES / 8]>,
    parts: Vec<(usize, Part)>,
    end: usize,
    flags: Flags,
}

enum Part {
    Bytes(Buffer),
    Bits(BooleanBuffer),
    Text(StringViewArray),
}

impl Arguments {
    /// Lays out columns.
    ///
    /// # Errors
    ///
    /// If one of them is too large for a call.
    pub fn of(columns: &[ArrayRef], flags: Flags) -> Result<Arguments, String> {
        let nodes = columns.iter().map(|column| nodes(column.data_type()));
        let nodes = nodes.sum::<usize>();
        let mut arguments = Arguments {
            nodes: Vec::with_capacity(nodes),
            parts: Vec::with_capacity(2 * nodes),
            end: HEADER_BYTES + NODE_BYTES * nodes,
            flags,
        };
        for column in columns {
            arguments.column(column.as_ref())?;
        }
        Ok(arguments)
    }

    fn column(&mut self, column: &dyn Array) -> Result<(), String> {
        let number = self.nodes.len();
        self.nodes.push([0; NODE_BYTES / 8]);
        self.nodes[number][0] = column.len() as u64;
        if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
            self.nodes[number][1] = nulls.null_count() as u64;
            self.bits(number, VALIDITY, nulls.inner().clone());
        }
        match column.data_type() {
            DataType::Boolean => self.bits(number, VALUES, column.as_boolean().values().clone()),
            DataType::Utf8View => {
                let column = column.as_string_view();
                let (offsets, bytes) = offsets(column.iter().map(|text| text.map_or(0, str::len)))?;
                self.buffer(number, VALUES, offsets);
                self.part(number, TEXT, bytes, Part::Text(column.clone()));
            }
            DataType::Binary => {
                let column = column.as_binary::<i32>();
                let (first, last) = self.offsets(number, column.offsets());
                let data = column.values().slice_with_length(first, last - first);
                self.buffer(number, TEXT, data);
            }
            DataType::List(_) => {
                let column = column.as_list::<i32>();
                let (first, last) = self.offsets(number, column.offsets());
                self.column(column.values().slice(first, last - first).as_ref())?;
            }
            DataType::Struct(_) => {
                for field in column.as_struct().columns() {
                    self.column(field.as_ref())?;
                }
            }
            _ => {
                let values = downcast_primitive_array!(
                    column => column.values().inner().clone(),
                    other => unreachable!("{other}: unsupported() has accepted it")
                );
                self.buffer(number, VALUES, values);
            }
        }
        Ok(())
    }

    fn bits(&mut self, number: usize, place: usize, bits: BooleanBuffer) {
        let bytes = match self.flags {
            Flags::Bits => bits.len().div_ceil(8),
            Flags::Bytes => bits.len(),
        };
        self.part(number, place, bytes, Part::Bits(bits));
    }

    fn buffer(&mut self, number: usize, place: usize, buffer: Buffer) {
        self.part(number, place, buffer.len(), Part::Bytes(buffer));
    }

    /// Adds offsets that begin with 0, and returns the first and the last one as they were.
    fn offsets(&mut self, number: usize, offsets: &OffsetBuffer<i32>) -> (usize, usize) {
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        let moved = match first {
            0 => offsets.inner().inner().clone(),
            first => offsets.iter().map(|offset| offset - first).collect(),
        };
        self.buffer(number, VALUES, moved);
        (first as usize, last as usize)
    }

    fn part(&mut self, number: usize, place: usize, bytes: usize, part: Part) {
        let at = self.end.next_multiple_of(ALIGNMENT);
        self.nodes[number][place] = at as u64;
        self.nodes[number][place + 1] = bytes as u64;
        self.parts.push((at, part));
        self.end = at + bytes;
    }

    /// The bytes that are needed.
    pub fn bytes(&self) -> usize {
        self.end
    }

    /// Writes everything; the memory grows if it has to.
    pub fn write(&self, memory: &mut Memory) -> io::Result<()> {
        memory.grow(self.end)?;
        for (number, node) in self.nodes.iter().enumerate() {
            let node = node.iter().flat_map(|value| value.to_le_bytes());
            let node = node.collect::<Vec<u8>>();
            memory.write(HEADER_BYTES + NODE_BYTES * number, &node);
        }
        for (at, part) in &self.parts {
            match (part, self.flags) {
                (Part::Bytes(bytes), _) => memory.write(*at, bytes),
                (Part::Bits(bits), Flags::Bits) => {
                    let bytes = bits.sliced();
                    memory.write(*at, &bytes[..bits.len().div_ceil(8)]);
                }
                (Part::Bits(bits), Flags::Bytes) => {
                    memory.write(*at, &bits.iter().map(u8::from).collect::<Vec<u8>>());
                }
                (Part::Text(column), _) => {
                    let mut at = *at;
                    for text in column.iter().flatten() {
                        memory.write(at, text.as_bytes());
                        at += text.len();
                    }
                }
            }
        }
        Ok(())
    }
}

/// The offsets of strings with these lengths, and their sum.
fn offsets(lengths: impl Iterator<Item = usize>) -> Result<(Buffer, usize), String> {
    let mut end = 0;
    let mut offsets = vec![0_i32];
    for length in lengths {
        end += length;
        if end > OFFSET_MAX {
            return Err("the strings of one call are larger than 2 GiB".to_string());
        }
        offsets.push(end as i32);
    }
    Ok((Buffer::from_vec(offsets), end))
}

/// The number of nodes of a column.
fn nodes(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(item) => 1 + nodes(item.data_type()),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| nodes(field.data_type()));
            1 + fields.sum::<usize>()
        }
        _ => 1,
    }
}
