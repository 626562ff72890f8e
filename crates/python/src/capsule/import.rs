//! Columns and types of a producer in another library.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, BufferSpec, layout};
use arrow_schema::{DataType, Field};

use super::{CArray, CSchema, NULLABLE, format};

/// The flag of a map whose keys are sorted.
const SORTED: i64 = 4;

/// How deep types may be nested.
const DEPTH_MAX: usize = 64;

/// The bytes that a buffer may have, as any memory of a program.
const BYTES_MAX: usize = isize::MAX as usize;

/// The column that a schema describes.
///
/// # Errors
///
/// If tables can't have its type.
pub fn field(schema: &CSchema) -> Result<Field, String> {
    field_at(schema, 0)
}

fn field_at(schema: &CSchema, depth: usize) -> Result<Field, String> {
    if schema.release.is_none() || schema.format.is_null() || depth > DEPTH_MAX {
        return Err("the Arrow schema was released, or is not valid".to_string());
    }
    // SAFETY: the producer's strings end with a zero and live until it is released.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text) };
    let format = text(schema.format).to_string_lossy().into_owned();
    let name = match schema.name.is_null() {
        true => String::new(),
        false => text(schema.name).to_string_lossy().into_owned(),
    };
    let is_nullable = schema.flags & NULLABLE != 0;
    if !schema.dictionary.is_null() {
        // SAFETY: a valid schema has a valid dictionary.
        let values = field_at(unsafe { &*schema.dictionary }, depth + 1)?;
        let keys = format::parsed(&format, Vec::new(), false)
            .ok_or_else(|| format!("column '{name}': a dictionary with keys of '{format}'"))?;
        let keys = Box::new(keys);
        let values = Box::new(values.data_type().clone());
        return Ok(Field::new(
            name,
            DataType::Dictionary(keys, values),
            is_nullable,
        ));
    }
    let children = (0..schema.n_children.max(0) as usize).map(|child| {
        // SAFETY: a valid schema has so many valid children, whose pointers are then there.
        let child = unsafe { child_of(schema.children, child) };
        let child =
            child.ok_or_else(|| format!("column '{name}' has an Arrow type without its parts"))?;
        field_at(child, depth + 1).map(Arc::new)
    });
    let children = children.collect::<Result<Vec<_>, String>>()?;
    let data_type = format::parsed(&format, children, schema.flags & SORTED != 0);
    let data_type = data_type
        .ok_or_else(|| format!("column '{name}' has a type that tables don't have: '{format}'"))?;
    Ok(Field::new(name, data_type, is_nullable))
}

/// A child of a structure; `None` if there is no pointer to it.
///
/// # Safety
///
/// `children` is null, or points to more than `number` pointers, each null or to a valid structure that lives
/// for `'a`.
unsafe fn child_of<'a, T>(children: *mut *mut T, number: usize) -> Option<&'a T> {
    if children.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { (*children.add(number)).as_ref() }
}

/// The column of an array.
///
/// # Errors
///
/// If the array does not fit the type.
pub fn array(array: CArray, data_type: &DataType) -> Result<ArrayRef, String> {
    let owner = Arc::new(array);
    Ok(make_array(data(&owner, &owner, data_type)?))
}

fn data(owner: &Arc<CArray>, array: &CArray, data_type: &DataType) -> Result<ArrayData, String> {
    if array.release.is_none() || array.length < 0 || array.offset < 0 {
        return Err("the Arrow array was released, or is not valid".to_string());
    }
    let layout = layout(data_type);
    let (length, offset) = (array.length as usize, array.offset as usize);
    let too_long = || format!("an Arrow array of {data_type} has {length} rows");
    let rows = length.checked_add(offset).ok_or_else(too_long)?;
    if array.buffers.is_null() && array.n_buffers > 0 {
        return Err(format!("an Arrow array of {data_type} lacks its buffers"));
    }
    let masks = usize::from(layout.can_contain_null_mask);
    let expected = masks + layout.buffers.len();
    let found = array.n_buffers.max(0) as usize;
    let fits = match layout.variadic {
        true => found > expected,
        false => found == expected,
    };
    if !fits {
        return Err(format!("an Arrow array of {data_type} has {found} buffers"));
    }
    let at = |number: usize, bytes: usize| {
        // SAFETY: a valid array has so many pointers, each to as many bytes as its layout says, which live
        // until `owner` is dropped.
        unsafe {
            let pointer = (*array.buffers.add(number)).cast::<u8>().cast_mut();
            match NonNull::new(pointer) {
                Some(pointer) if bytes > 0 => {
                    Buffer::from_custom_allocation(pointer, bytes, Arc::clone(owner) as _)
                }
                _ => Buffer::from(Vec::<u8>::new()),
            }
        }
    };
    let mut buffers: Vec<Buffer> = Vec::new();
    for (number, spec) in layout.buffers.iter().enumerate() {
        let bytes = match spec {
            BufferSpec::FixedWidth { byte_width, .. } => {
                let is_offsets = number == 0
                    && matches!(
                        data_type,
                        DataType::Utf8
                            | DataType::LargeUtf8
                            | DataType::Binary
                            | DataType::LargeBinary
                            | DataType::List(_)
                            | DataType::LargeList(_)
                            | DataType::Map(_, _)
                    );
                let values = rows.checked_add(usize::from(is_offsets));
                let bytes = values.and_then(|values| values.checked_mul(*byte_width));
                bytes
                    .filter(|bytes| *bytes <= BYTES_MAX)
                    .ok_or_else(too_long)?
            }
            BufferSpec::BitMap => rows.div_ceil(8),
            BufferSpec::VariableWidth => end(&buffers[0], data_type, rows),
            BufferSpec::AlwaysNull => 0,
        };
        let buffer = at(masks + number, bytes);
        buffers.push(match (buffer.is_empty() && bytes > 0, rows) {
            // An empty array of strings may have no offsets.
            (true, 0) => Buffer::from(vec![0u8; bytes]),
            (true, _) => return Err(format!("an Arrow array of {data_type} lacks a buffer")),
            (false, _) => buffer,
        });
    }
    if layout.variadic {
        let count = found - expected - 1;
        let lengths = at(
            found - 1,
            count.saturating_mul(size_of::<i64>()).min(BYTES_MAX),
        );
        // They may be at any address.
        let lengths = lengths.as_slice().chunks_exact(size_of::<i64>());
        let lengths = lengths.map(|bytes| bytes.try_into().map_or(-1, i64::from_ne_bytes));
        let lengths = lengths.collect::<Vec<i64>>();
        for number in 0..count {
            let bytes = lengths
                .get(number)
                .and_then(|&bytes| usize::try_from(bytes).ok());
            let buffer = bytes.map(|bytes| (bytes, at(expected + number, bytes)));
            match buffer {
                Some((bytes, buffer)) if buffer.len() == bytes => buffers.push(buffer),
                _ => return Err(format!("an Arrow array of {data_type} lacks a buffer")),
            }
        }
    }
    let mut nulls = None;
    if layout.can_contain_null_mask && array.null_count != 0 {
        let bits = at(0, rows.div_ceil(8));
        if !bits.is_empty() {
            nulls = Some(NullBuffer::new(BooleanBuffer::new(bits, offset, length)));
        }
    }
    let mut children = Vec::new();
    for (child, of_child) in types_of_children(data_type).into_iter().enumerate() {
        if child >= array.n_children.max(0) as usize {
            return Err(format!(
                "an Arrow array of {data_type} has too few children"
            ));
        }
        // SAFETY: a valid array has so many valid children, which its owner owns.
        let child = unsafe { child_of(array.children, child) };
        let child = child.ok_or_else(|| format!("an Arrow array of {data_type} lacks a child"))?;
        children.push(data(owner, child, &of_child)?);
    }
    let items = match data_type {
        DataType::Struct(_) => Some(rows),
        DataType::FixedSizeList(_, size) => rows.checked_mul(usize::try_from(*size).unwrap_or(0)),
        _ => Some(0),
    };
    let items = items.ok_or_else(too_long)?;
    if children.iter().any(|child: &ArrayData| child.len() < items) {
        return Err(format!(
            "an Arrow array of {data_type} has more rows than a child of it"
        ));
    }
    if let DataType::Dictionary(_, values) = data_type {
        if array.dictionary.is_null() {
            return Err("an Arrow array lacks its dictionary".to_string());
        }
        // SAFETY: it is there, and valid.
        children.push(data(owner, unsafe { &*array.dictionary }, values)?);
    }
    let builder = ArrayData::builder(data_type.clone())
        .len(length)
        .offset(offset)
        .buffers(buffers)
        .child_data(children)
        .nulls(nulls)
        .align_buffers(true);
    // SAFETY: the producer vouches for what the buffers contain, as the interface demands. That they are as
    // long as they have to be is looked at below, before anything reads them.
    let data = unsafe { builder.build_unchecked() };
    let checked = data.validate();
    checked.map_err(|error| format!("an Arrow array of {data_type} is not valid: {error}"))?;
    Ok(data)
}

/// The last offset, which is the number of bytes of the values.
fn end(offsets: &Buffer, data_type: &DataType, rows: usize) -> usize {
    let is_large = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary);
    let width = if is_large { 8 } else { 4 };
    let bytes = offsets.as_slice().get(rows * width..(rows + 1) * width);
    match (is_large, bytes) {
        (true, Some(bytes)) => bytes.try_into().map_or(0, i64::from_ne_bytes).max(0) as usize,
        (false, Some(bytes)) => bytes.try_into().map_or(0, i32::from_ne_bytes).max(0) as usize,
        (_, None) => 0,
    }
}

fn types_of_children(data_type: &DataType) -> Vec<DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type().clone()],
        DataType::Struct(fields) => {
            let fields = fields.iter();
            fields.map(|field| field.data_type().clone()).collect()
        }
        _ => Vec::new(),
    }
}
