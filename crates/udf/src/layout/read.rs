//! A column from a memory. What is there may be anything: it is checked, and never trusted.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, StringArray, StringViewArray,
    StructArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::{Flags, HEADER_BYTES, NODE_BYTES};
use crate::memory::Memory;

/// Results of these types; those with a number have as many values.
///
/// # Errors
///
/// If the memory does not contain them.
pub fn columns(
    memory: &Memory,
    wanted: &[(DataType, Option<usize>)],
    flags: Flags,
) -> Result<Vec<ArrayRef>, String> {
    let mut reader = Reader {
        memory,
        at: HEADER_BYTES,
        flags,
    };
    let read = wanted.iter().map(|(data_type, rows)| {
        let column = reader.column(data_type).map_err(|reason| {
            format!("the worker has returned a column that is not valid: {reason}")
        })?;
        match rows {
            Some(rows) if column.len() != *rows => Err(format!(
                "the worker has returned {} values for {rows} rows",
                column.len()
            )),
            _ => Ok(column),
        }
    });
    read.collect()
}

struct Reader<'a> {
    memory: &'a Memory,
    at: usize,
    flags: Flags,
}

/// A column in the memory.
struct Node {
    length: usize,
    nulls: Option<NullBuffer>,
    /// The places and sizes of values or offsets, and of bytes.
    buffers: [(usize, usize); 2],
}

impl Reader<'_> {
    fn node(&mut self) -> Result<Node, String> {
        let bytes = self.bytes((self.at, NODE_BYTES))?;
        self.at += NODE_BYTES;
        let mut numbers = bytes.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("the chunk has 8 bytes");
            usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        });
        let mut next = || numbers.next().expect("a node has 8 numbers");
        let (length, null_count) = (next(), next());
        let validity = (next(), next());
        let buffers = [(next(), next()), (next(), next())];
        let nulls = match null_count {
            0 => None,
            _ => Some(NullBuffer::new(self.flags(validity, length)?)),
        };
        Ok(Node {
            length,
            nulls,
            buffers,
        })
    }

    fn bytes(&self, (at, length): (usize, usize)) -> Result<Vec<u8>, String> {
        let bytes = self.memory.read(at, length);
        bytes.ok_or_else(|| format!("{length} bytes at {at} are outside of the memory"))
    }

    fn flags(&self, place: (usize, usize), length: usize) -> Result<BooleanBuffer, String> {
        let bytes = self.bytes(place)?;
        let there = match self.flags {
            Flags::Bits => bytes.len().saturating_mul(8),
            Flags::Bytes => bytes.len(),
        };
        if there < length {
            return Err(format!("{there} flags for {length} values"));
        }
        Ok(match self.flags {
            Flags::Bits => BooleanBuffer::new(Buffer::from_vec(bytes), 0, length),
            Flags::Bytes => BooleanBuffer::collect_bool(length, |at| bytes[at] != 0),
        })
    }

    fn offsets(&self, node: &Node) -> Result<OffsetBuffer<i32>, String> {
        let bytes = self.bytes(node.buffers[0])?;
        let offsets = bytes.chunks_exact(4).map(|bytes| {
            let bytes = bytes.try_into().expect("the chunk has 4 bytes");
            i32::from_le_bytes(bytes)
        });
        let offsets = offsets.collect::<Vec<i32>>();
        let is_valid = offsets.len() == node.length + 1 && offsets[0] >= 0 && offsets.is_sorted();
        match is_valid {
            true => Ok(OffsetBuffer::new(ScalarBuffer::from(offsets))),
            false => Err("its offsets don't grow".to_string()),
        }
    }

    fn column(&mut self, data_type: &DataType) -> Result<ArrayRef, String> {
        let node = self.node()?;
        let failed = |error: arrow_schema::ArrowError| error.to_string();
        Ok(match data_type {
            DataType::Boolean => {
                let values = self.flags(node.buffers[0], node.length)?;
                Arc::new(BooleanArray::new(values, node.nulls))
            }
            DataType::Utf8View => {
                let offsets = self.offsets(&node)?;
                let bytes = Buffer::from_vec(self.bytes(node.buffers[1])?);
                let strings = StringArray::try_new(offsets, bytes, node.nulls).map_err(failed)?;
                Arc::new(StringViewArray::from(&strings))
            }
            DataType::Binary => {
                let offsets = self.offsets(&node)?;
                let bytes = Buffer::from_vec(self.bytes(node.buffers[1])?);
                Arc::new(BinaryArray::try_new(offsets, bytes, node.nulls).map_err(failed)?)
            }
            DataType::List(item) => {
                let offsets = self.offsets(&node)?;
                let items = self.column(item.data_type())?;
                let list = ListArray::try_new(Arc::clone(item), offsets, items, node.nulls);
                Arc::new(list.map_err(failed)?)
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| self.column(field.data_type()));
                let columns = columns.collect::<Result<Vec<ArrayRef>, String>>()?;
                let (fields, nulls) = (fields.clone(), node.nulls);
                let row = StructArray::try_new_with_length(fields, columns, nulls, node.length);
                Arc::new(row.map_err(failed)?)
            }
            _ => {
                let values = Buffer::from_vec(self.bytes(node.buffers[0])?);
                // Bytes of a vector need not begin where numbers may: those of an allocation do.
                let values = Buffer::from(values.as_slice());
                let nulls = node.nulls.as_ref().map(|nulls| nulls.buffer().clone());
                let data = ArrayData::try_new(
                    data_type.clone(),
                    node.length,
                    nulls,
                    0,
                    vec![values],
                    Vec::new(),
                );
                let column = make_array(data.map_err(failed)?);
                if let DataType::Decimal128(precision, _) = data_type {
                    let decimals = column.as_primitive::<Decimal128Type>();
                    let checked = decimals.validate_decimal_precision(*precision);
                    checked.map_err(failed)?;
                }
                column
            }
        })
    }
}
