//! From arrays to the table and the buffers of a frame.
//!
//! Arrays are walked depth first; each adds its length, its number of NULLs and the length of each of its
//! buffers to the table, and the buffers themselves to a list. A buffer is the array's own (cloning
//! counts a reference) if the bytes that a receiver needs are in one piece and mean the same there;
//! `columns.rs` expects exactly what is written here.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, LargeBinaryType, LargeUtf8Type, StringViewType,
    Utf8Type,
};
use arrow_array::{
    AnyDictionaryArray, Array, ArrayRef, GenericByteArray, OffsetSizeTrait, make_array,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_data::transform::MutableArrayData;
use arrow_schema::DataType;

use super::views::viewed;
use super::{EMPTY_ELEMENTS_MAX, too_large};
use crate::error::{Error, Result};

/// The table and the buffers of one frame; reused for the next.
#[derive(Default)]
pub struct Parts {
    /// The table: numbers of 32 bits.
    pub table: Vec<u8>,
    /// The buffers, in the table's order.
    pub buffers: Vec<Buffer>,
    empty_elements: usize,
}

impl Parts {
    /// Clears the contents and keeps the memory.
    pub fn clear(&mut self) {
        self.table.clear();
        self.buffers.clear();
        self.empty_elements = 0;
    }

    /// Counts elements that take no bytes.
    pub fn count_empty(&mut self, elements: usize) -> Result<()> {
        self.empty_elements = self.empty_elements.saturating_add(elements);
        if self.empty_elements > EMPTY_ELEMENTS_MAX {
            return Err(too_large(format!(
                "has more than {EMPTY_ELEMENTS_MAX} elements that take no bytes"
            )));
        }
        Ok(())
    }

    fn number(&mut self, number: usize) -> Result<()> {
        let number = u32::try_from(number)
            .map_err(|_| too_large(format!("has an array or a buffer of {number}")))?;
        self.table.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn buffer(&mut self, buffer: Buffer) -> Result<()> {
        self.number(buffer.len())?;
        self.buffers.push(buffer);
        Ok(())
    }

    /// Adds an array and its children.
    ///
    /// # Errors
    ///
    /// For arrays that no frame can hold. Types were checked with the schema.
    pub fn array(&mut self, array: &dyn Array) -> Result<()> {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        self.number(array.len())?;
        self.number(nulls.map_or(0, |nulls| nulls.null_count()))?;
        if let Some(nulls) = nulls {
            // Copies only where the slice doesn't begin on a byte.
            self.buffer(nulls.inner().sliced())?;
        }
        match array.data_type() {
            DataType::Null => self.count_empty(array.len()),
            DataType::Boolean => self.buffer(array.as_boolean().values().sliced()),
            DataType::Utf8 => self.strings(array.as_bytes::<Utf8Type>()),
            DataType::LargeUtf8 => self.strings(array.as_bytes::<LargeUtf8Type>()),
            DataType::Binary => self.strings(array.as_bytes::<BinaryType>()),
            DataType::LargeBinary => self.strings(array.as_bytes::<LargeBinaryType>()),
            DataType::Utf8View => self.views(viewed(array.as_byte_view::<StringViewType>())?),
            DataType::BinaryView => self.views(viewed(array.as_byte_view::<BinaryViewType>())?),
            DataType::FixedSizeBinary(width) => {
                if *width == 0 {
                    self.count_empty(array.len())?;
                }
                self.values(array, *width as usize)
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                self.items(list.offsets(), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                self.items(list.offsets(), list.values())
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                let entries: ArrayRef = Arc::new(map.entries().clone());
                self.items(map.offsets(), &entries)
            }
            DataType::FixedSizeList(_, size) => {
                if *size == 0 {
                    self.count_empty(array.len())?;
                }
                let values = array.as_fixed_size_list().values();
                self.range(values, 0, array.len() * *size as usize)
            }
            DataType::Struct(fields) => {
                if fields.is_empty() {
                    self.count_empty(array.len())?;
                }
                let columns = array.as_struct().columns();
                columns.iter().try_for_each(|column| self.array(column))
            }
            DataType::Dictionary(_, _) => self.dictionary(array),
            other => match other.primitive_width() {
                Some(width) => self.values(array, width),
                None => Err(Error::new(
                    "",
                    format!("type {other} is not supported on links"),
                )),
            },
        }
    }

    /// Adds elements of `width` bytes each.
    fn values(&mut self, array: &dyn Array, width: usize) -> Result<()> {
        let data = array.to_data();
        let (from, length) = (data.offset() * width, data.len() * width);
        self.buffer(data.buffers()[0].slice_with_length(from, length))
    }

    fn strings<T: ByteArrayType>(&mut self, array: &GenericByteArray<T>) -> Result<()> {
        let (from, length) = self.offsets(array.offsets())?;
        self.buffer(array.values().slice_with_length(from, length))
    }

    fn items<O: OffsetSizeTrait>(
        &mut self,
        offsets: &OffsetBuffer<O>,
        values: &ArrayRef,
    ) -> Result<()> {
        let (from, length) = self.offsets(offsets)?;
        self.range(values, from, length)
    }

    fn range(&mut self, values: &ArrayRef, from: usize, length: usize) -> Result<()> {
        if from == 0 && length == values.len() {
            return self.array(values);
        }
        self.array(&values.slice(from, length))
    }

    /// Adds offsets that begin at 0; returns the range of the values that they refer to.
    fn offsets<O: OffsetSizeTrait>(&mut self, offsets: &OffsetBuffer<O>) -> Result<(usize, usize)> {
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        let buffer = if first == O::zero() {
            let bytes = std::mem::size_of_val::<[O]>(offsets);
            offsets.inner().inner().slice_with_length(0, bytes)
        } else {
            offsets
                .iter()
                .map(|offset| *offset - first)
                .collect::<Vec<O>>()
                .into()
        };
        self.buffer(buffer)?;
        Ok((first.as_usize(), (last - first).as_usize()))
    }

    fn views(&mut self, (views, data): (Buffer, Vec<Buffer>)) -> Result<()> {
        self.number(data.len())?;
        self.buffer(views)?;
        data.into_iter().try_for_each(|data| self.buffer(data))
    }

    /// Adds the keys, then the dictionary: without the values that no key refers to, if it is longer than
    /// the keys. So no chunk costs more than its rows, and a short dictionary isn't searched.
    fn dictionary(&mut self, array: &dyn Array) -> Result<()> {
        let dictionary = array.as_any_dictionary();
        let (keys, values) = (dictionary.keys(), dictionary.values());
        let width = keys.data_type().primitive_width();
        let width = width.expect("keys are integers");
        if values.len() <= keys.len() {
            self.values(keys, width)?;
            return self.array(values);
        }
        let (keys, values) = compact(dictionary, width)?;
        self.buffer(keys)?;
        self.array(&values)
    }
}

/// Returns keys of `width` bytes, and only the values that they refer to, in the same order. (Arrow's own
/// function filters the values, which loses those of some types that take no bytes.)
fn compact(dictionary: &dyn AnyDictionaryArray, width: usize) -> Result<(Buffer, ArrayRef)> {
    let (keys, values) = (dictionary.keys(), dictionary.values());
    let places = dictionary.normalized_keys();
    let mut used = vec![false; values.len()];
    for (row, place) in places.iter().enumerate() {
        used[*place] |= keys.is_valid(row);
    }
    let source = values.to_data();
    let mut kept = MutableArrayData::new(vec![&source], false, keys.len());
    let mut moved = vec![0u64; values.len()];
    for place in (0..values.len()).filter(|place| used[*place]) {
        moved[place] = kept.len() as u64;
        kept.try_extend(0, place, place + 1)?;
    }
    let mut bytes = Vec::with_capacity(keys.len() * width);
    for (row, place) in places.iter().enumerate() {
        // A key gets smaller or stays, so it fits its bytes. The keys of NULLs mean nothing.
        let key = if keys.is_valid(row) { moved[*place] } else { 0 };
        bytes.extend_from_slice(&key.to_le_bytes()[..width]);
    }
    Ok((bytes.into(), make_array(kept.freeze())))
}
