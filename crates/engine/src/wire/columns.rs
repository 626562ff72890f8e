//! From the table and the buffers of a frame to arrays.
//!
//! Each array is built by [`ArrayData::builder`], which validates everything that Arrow relies on:
//! offsets, UTF-8, dictionary keys, views, NULLs in fields that allow none. What the builder would panic
//! on or assume is checked before: the exact length of each buffer, its alignment, and lengths that
//! multiply.

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::cursor::Cursor;
use super::{ALIGNMENT_BYTES, EMPTY_ELEMENTS_MAX, VIEWED_BYTES_MAX, error_at};
use crate::error::Result;

/// The largest alignment that an element's type requires.
const ELEMENT_ALIGNMENT_MAX: usize = 16;

// 256-bit integers consist of 128-bit ones.
const _: () = assert!(std::mem::align_of::<u128>() <= ELEMENT_ALIGNMENT_MAX);

/// Reads the arrays of one frame, in the order of its table.
pub struct Columns<'a> {
    frame: &'a Buffer,
    table: Cursor<'a>,
    /// The end of the last buffer read.
    end: usize,
    empty_elements: usize,
    /// The number of buffers copied because they were not aligned.
    pub copies: u64,
}

impl<'a> Columns<'a> {
    /// Reads a frame whose table is from `from` to `to`, both within the frame.
    pub fn new(frame: &'a Buffer, from: usize, to: usize) -> Columns<'a> {
        Columns {
            frame,
            table: Cursor::new(frame, from, to),
            end: to,
            empty_elements: 0,
            copies: 0,
        }
    }

    /// The offset of the table's next entry in the frame.
    pub fn position(&self) -> usize {
        self.table.position()
    }

    /// Checks that all of the table and the frame has been read.
    pub fn finish(&self) -> Result<()> {
        if !self.table.is_at_end() {
            let reason = "the table has more entries than the schema needs";
            return Err(error_at(self.table.position(), reason));
        }
        if self.end != self.frame.len() {
            return Err(error_at(self.end, "bytes after the last buffer"));
        }
        Ok(())
    }

    /// Counts elements that take no bytes.
    pub fn count_empty(&mut self, elements: usize) -> Result<()> {
        self.empty_elements = self.empty_elements.saturating_add(elements);
        if self.empty_elements > EMPTY_ELEMENTS_MAX {
            let reason = format!("more than {EMPTY_ELEMENTS_MAX} elements that take no bytes");
            return Err(error_at(self.table.position(), reason));
        }
        Ok(())
    }

    /// The next array, of a type that the schema's checks accepted, and of `length` elements if that is
    /// known.
    pub fn array(&mut self, data_type: &DataType, length: Option<usize>) -> Result<ArrayData> {
        let at = self.table.position();
        let elements = self.table.length("an array's length")?;
        if length.is_some_and(|length| length != elements) {
            let due = length.unwrap_or_default();
            let reason = format!("an array of {elements} elements, but {due} are expected");
            return Err(error_at(at, reason));
        }
        let nulls = self.nulls(data_type, elements)?;
        let mut buffers = Vec::new();
        let mut children = Vec::new();
        match data_type {
            DataType::Null => self.count_empty(elements)?,
            DataType::Boolean => buffers.push(self.buffer(bytes_of_bits(elements), 1)?),
            DataType::Utf8 | DataType::Binary => {
                buffers.push(self.elements(elements.saturating_add(1), 4)?);
                buffers.push(self.buffer_of_any_length()?);
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                buffers.push(self.elements(elements.saturating_add(1), 8)?);
                buffers.push(self.buffer_of_any_length()?);
            }
            DataType::Utf8View | DataType::BinaryView => self.views(elements, &mut buffers)?,
            DataType::FixedSizeBinary(width) => {
                if *width == 0 {
                    self.count_empty(elements)?;
                }
                buffers.push(self.buffer(product(elements, *width as usize, at)?, 1)?);
            }
            DataType::List(item) | DataType::Map(item, _) => {
                buffers.push(self.elements(elements.saturating_add(1), 4)?);
                children.push(self.array(item.data_type(), None)?);
            }
            DataType::LargeList(item) => {
                buffers.push(self.elements(elements.saturating_add(1), 8)?);
                children.push(self.array(item.data_type(), None)?);
            }
            DataType::FixedSizeList(item, size) => {
                if *size == 0 {
                    self.count_empty(elements)?;
                }
                let items = product(elements, *size as usize, at)?;
                children.push(self.array(item.data_type(), Some(items))?);
            }
            DataType::Struct(fields) => {
                if fields.is_empty() {
                    self.count_empty(elements)?;
                }
                for field in fields {
                    children.push(self.array(field.data_type(), Some(elements))?);
                }
            }
            DataType::Dictionary(keys, values) => {
                let width = keys.primitive_width();
                buffers.push(self.elements(elements, width.expect("keys are integers"))?);
                children.push(self.array(values, None)?);
            }
            other => {
                let width = other.primitive_width();
                let width =
                    width.ok_or_else(|| error_at(at, format!("type {other} is not supported")))?;
                buffers.push(self.elements(elements, width)?);
            }
        }
        ArrayData::builder(data_type.clone())
            .len(elements)
            .nulls(nulls)
            .buffers(buffers)
            .child_data(children)
            .build()
            .map_err(|error| error_at(at, format!("the array described here: {error}")))
    }

    /// The number of NULLs and, if there are any, the bitmap that says which.
    fn nulls(&mut self, data_type: &DataType, elements: usize) -> Result<Option<NullBuffer>> {
        let at = self.table.position();
        let count = self.table.length("an array's number of NULLs")?;
        if count == 0 {
            return Ok(None);
        }
        if count > elements || *data_type == DataType::Null {
            let reason = format!("{count} NULLs among {elements} elements of type {data_type}");
            return Err(error_at(at, reason));
        }
        let bits = self.buffer(bytes_of_bits(elements), 1)?;
        let nulls = NullBuffer::new(BooleanBuffer::new(bits, 0, elements));
        if nulls.null_count() != count {
            let actual = nulls.null_count();
            let reason = format!("{count} NULLs, but the bitmap has {actual}");
            return Err(error_at(at, reason));
        }
        Ok(Some(nulls))
    }

    fn views(&mut self, elements: usize, buffers: &mut Vec<Buffer>) -> Result<()> {
        let at = self.table.position();
        let data = self.table.length("a column's number of buffers")?;
        let views = self.elements(elements, 16)?;
        let viewed = views.typed_data::<u128>().iter();
        let viewed: u64 = viewed.map(|view| u64::from(*view as u32)).sum();
        if viewed > VIEWED_BYTES_MAX {
            let reason = format!("views of {viewed} bytes, more than {VIEWED_BYTES_MAX}");
            return Err(error_at(at, reason));
        }
        buffers.push(views);
        // The list grows as lengths are read: the number is an unverified claim.
        for _ in 0..data {
            let at = self.table.position();
            let buffer = self.buffer_of_any_length()?;
            // An empty buffer would take 20 times the memory of its length in the table.
            if buffer.is_empty() {
                return Err(error_at(at, "an empty buffer, which no view can refer to"));
            }
            buffers.push(buffer);
        }
        Ok(())
    }

    /// The next buffer, of `count` elements of `width` bytes.
    fn elements(&mut self, count: usize, width: usize) -> Result<Buffer> {
        let at = self.table.position();
        self.buffer(product(count, width, at)?, width.min(ELEMENT_ALIGNMENT_MAX))
    }

    /// The next buffer, which must have `length` bytes.
    fn buffer(&mut self, length: usize, alignment: usize) -> Result<Buffer> {
        let at = self.table.position();
        let noted = self.table.length("a buffer's length")?;
        if noted != length {
            let reason = format!("a buffer of {noted} bytes, but {length} are expected");
            return Err(error_at(at, reason));
        }
        self.cut(at, length, alignment)
    }

    /// The next buffer, as long as the table says.
    fn buffer_of_any_length(&mut self) -> Result<Buffer> {
        let at = self.table.position();
        let length = self.table.length("a buffer's length")?;
        self.cut(at, length, 1)
    }

    fn cut(&mut self, at: usize, length: usize, alignment: usize) -> Result<Buffer> {
        if length == 0 {
            return Ok(Buffer::default());
        }
        let start = self.end.next_multiple_of(ALIGNMENT_BYTES);
        let end = start.checked_add(length);
        let Some(end) = end.filter(|end| *end <= self.frame.len()) else {
            let reason = format!(
                "a buffer of {length} bytes from byte {start} of a frame of {} bytes",
                self.frame.len()
            );
            return Err(error_at(at, reason));
        };
        self.end = end;
        let buffer = self.frame.slice_with_length(start, length);
        if buffer.as_ptr().align_offset(alignment) == 0 {
            return Ok(buffer);
        }
        self.copies += 1;
        Ok(Buffer::from(buffer.as_slice()))
    }
}

fn bytes_of_bits(bits: usize) -> usize {
    bits.div_ceil(8)
}

/// The number of elements times their size, which may overflow on a 32-bit machine.
fn product(elements: usize, size: usize, at: usize) -> Result<usize> {
    let product = elements.checked_mul(size);
    product.ok_or_else(|| error_at(at, format!("{elements} elements of {size} are too many")))
}
