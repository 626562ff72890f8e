//! Columns and types for a consumer in another library.

use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;

use arrow_buffer::{BooleanBufferBuilder, Buffer};
use arrow_data::{ArrayData, layout};
use arrow_schema::{DataType, Field};

use super::{CArray, CSchema, NULLABLE, format};

/// What a schema points to.
struct OfSchema {
    /// The format and the name.
    _strings: [CString; 2],
    children: Vec<*mut CSchema>,
}

/// What an array points to.
struct OfArray {
    /// Keeps the buffers.
    _buffers: Vec<Buffer>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut CArray>,
}

/// The C schema of a column.
///
/// # Errors
///
/// If there is no such type in the interface.
pub fn schema(field: &Field) -> Result<CSchema, String> {
    let data_type = field.data_type();
    let format = format::of(data_type);
    let format = format.ok_or_else(|| format!("a column of {data_type} can't be handed over"))?;
    let own: Vec<&Field> = match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item],
        DataType::Struct(fields) => fields.iter().map(AsRef::as_ref).collect(),
        _ => Vec::new(),
    };
    let children = own.into_iter().map(schema);
    let children = children.collect::<Result<Vec<CSchema>, String>>()?;
    let children = children
        .into_iter()
        .map(|child| Box::into_raw(Box::new(child)));
    let text = |text: String| CString::new(text.replace('\0', "")).unwrap_or_default();
    let mut owned = Box::new(OfSchema {
        _strings: [text(format), text(field.name().clone())],
        children: children.collect(),
    });
    Ok(CSchema {
        format: owned._strings[0].as_ptr(),
        name: owned._strings[1].as_ptr(),
        metadata: std::ptr::null::<c_char>(),
        flags: if field.is_nullable() { NULLABLE } else { 0 },
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    })
}

unsafe extern "C" fn release_schema(schema: *mut CSchema) {
    // SAFETY: the consumer passes a structure of `schema`. One that was released has no data of its own.
    let owned = unsafe {
        (*schema).release = None;
        let owned = std::mem::replace(&mut (*schema).private_data, null_mut());
        if owned.is_null() {
            return;
        }
        Box::from_raw(owned.cast::<OfSchema>())
    };
    for child in owned.children {
        // SAFETY: it was made by `Box::into_raw`; a child that the consumer has moved is empty.
        drop(unsafe { Box::from_raw(child) });
    }
}

/// The C array of a column.
pub fn array(data: &ArrayData) -> CArray {
    let layout = layout(data.data_type());
    let mut buffers = Vec::new();
    let mut pointers = Vec::new();
    if layout.can_contain_null_mask {
        let nulls = validity(data);
        pointers.push(nulls.as_ref().map_or(std::ptr::null(), pointer));
        buffers.extend(nulls);
    }
    pointers.extend(data.buffers().iter().map(pointer));
    buffers.extend(data.buffers().iter().cloned());
    if layout.variadic {
        // The lengths of the buffers with the strings.
        let lengths = data.buffers().iter().skip(1);
        let lengths = lengths.map(|buffer| buffer.len() as i64);
        let lengths = Buffer::from_vec(lengths.collect::<Vec<i64>>());
        pointers.push(pointer(&lengths));
        buffers.push(lengths);
    }
    let children = data.child_data().iter();
    let children = children.map(|child| Box::into_raw(Box::new(array(child))));
    let mut owned = Box::new(OfArray {
        _buffers: buffers,
        pointers,
        children: children.collect(),
    });
    CArray {
        length: data.len() as i64,
        null_count: match data.data_type() {
            DataType::Null => data.len() as i64,
            _ => data.null_count() as i64,
        },
        offset: data.offset() as i64,
        n_buffers: owned.pointers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.pointers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

fn pointer(buffer: &Buffer) -> *const c_void {
    buffer.as_ptr().cast()
}

/// The bits that say which rows are not NULL, from the same offset as the other buffers.
fn validity(data: &ArrayData) -> Option<Buffer> {
    let nulls = data.nulls()?;
    if nulls.offset() == data.offset() {
        return Some(nulls.buffer().clone());
    }
    let mut bits = BooleanBufferBuilder::new(data.offset() + nulls.len());
    bits.append_n(data.offset(), false);
    bits.append_buffer(nulls.inner());
    Some(bits.finish().into_inner())
}

unsafe extern "C" fn release_array(array: *mut CArray) {
    // SAFETY: the consumer passes a structure of `array`. One that was released has no data of its own.
    let owned = unsafe {
        (*array).release = None;
        let owned = std::mem::replace(&mut (*array).private_data, null_mut());
        if owned.is_null() {
            return;
        }
        Box::from_raw(owned.cast::<OfArray>())
    };
    for child in owned.children {
        // SAFETY: it was made by `Box::into_raw`; a child that the consumer has moved is empty.
        drop(unsafe { Box::from_raw(child) });
    }
}
