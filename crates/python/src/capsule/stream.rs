//! Streams of batches, in both directions.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::{CArray, CSchema, CStream, export, import};

/// What makes the next batch of a stream: `None` after the last one, an error at most once.
pub type Make = Box<dyn FnMut() -> Result<Option<RecordBatch>, String> + Send>;

struct OfStream {
    schema: SchemaRef,
    make: Make,
    error: CString,
}

/// EIO: what went wrong is in `get_last_error`.
const FAILED: c_int = 5;

/// The field of a struct with these columns.
pub fn row_of(schema: &Schema) -> Field {
    Field::new("", DataType::Struct(schema.fields().clone()), false)
}

/// The columns as the fields of a struct.
pub fn struct_of(batch: &RecordBatch) -> StructArray {
    let (fields, columns) = (batch.schema().fields().clone(), batch.columns().to_vec());
    StructArray::try_new_with_length(fields, columns, None, batch.num_rows())
        .expect("the columns of a batch fit its schema")
}

/// The fields of a struct as columns.
pub fn batch_of(rows: &dyn Array) -> Result<RecordBatch, String> {
    let Some(rows) = rows.as_struct_opt() else {
        return Err(format!(
            "an Arrow array of {}, not of rows",
            rows.data_type()
        ));
    };
    let schema = Arc::new(Schema::new(rows.fields().clone()));
    let count = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let columns = rows.columns().to_vec();
    RecordBatch::try_new_with_options(schema, columns, &count).map_err(|error| error.to_string())
}

/// A stream of batches.
pub fn exported(schema: SchemaRef, make: Make) -> CStream {
    let owned = Box::new(OfStream {
        schema,
        make,
        error: CString::default(),
    });
    CStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// The stream's own data.
///
/// # Safety
///
/// `stream` was made by [`exported`], and not released.
unsafe fn owned<'a>(stream: *mut CStream) -> &'a mut OfStream {
    // SAFETY: as the caller promises; consumers call one function of a stream at a time.
    unsafe { &mut *(*stream).private_data.cast::<OfStream>() }
}

fn failed(owned: &mut OfStream, reason: String) -> c_int {
    owned.error = CString::new(reason.replace('\0', " ")).unwrap_or_default();
    FAILED
}

unsafe extern "C" fn get_schema(stream: *mut CStream, out: *mut CSchema) -> c_int {
    // SAFETY: the consumer passes a stream of `exported`, and room for a schema.
    let owned = unsafe { owned(stream) };
    match export::schema(&row_of(&owned.schema)) {
        Ok(schema) => {
            // SAFETY: what was there before is not initialized, so it is not dropped.
            unsafe { out.write(schema) };
            0
        }
        Err(reason) => failed(owned, reason),
    }
}

unsafe extern "C" fn get_next(stream: *mut CStream, out: *mut CArray) -> c_int {
    // SAFETY: as above.
    let owned = unsafe { owned(stream) };
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (owned.make)()));
    let array = match made {
        Ok(Ok(Some(batch))) => export::array(&struct_of(&batch).to_data()),
        Ok(Ok(None)) => CArray::empty(),
        Ok(Err(reason)) => return failed(owned, reason),
        Err(_) => return failed(owned, "a panic: this is a bug".to_string()),
    };
    // SAFETY: as above.
    unsafe { out.write(array) };
    0
}

unsafe extern "C" fn get_last_error(stream: *mut CStream) -> *const c_char {
    // SAFETY: as above.
    unsafe { owned(stream) }.error.as_ptr()
}

unsafe extern "C" fn release(stream: *mut CStream) {
    // SAFETY: the consumer passes a stream of `exported`. One that was released has no data of its own.
    unsafe {
        (*stream).release = None;
        let owned = std::mem::replace(&mut (*stream).private_data, std::ptr::null_mut());
        if !owned.is_null() {
            drop(Box::from_raw(owned.cast::<OfStream>()));
        }
    }
}

/// The columns of another library's stream, one for each chunk, and their field.
///
/// # Errors
///
/// What the producer says, or a type that tables don't have.
pub fn chunks(mut stream: CStream) -> Result<(Field, Vec<ArrayRef>), String> {
    let (Some(get_schema), Some(get_next)) = (stream.get_schema, stream.get_next) else {
        return Err("the Arrow stream was read before".to_string());
    };
    let mut schema = CSchema::empty();
    // SAFETY: the stream is valid: it has its callbacks.
    let failed = unsafe { get_schema(&mut stream, &mut schema) };
    if failed != 0 {
        return Err(last_error(&mut stream));
    }
    let field = import::field(&schema)?;
    let mut chunks = Vec::new();
    loop {
        let mut array = CArray::empty();
        // SAFETY: as above.
        if unsafe { get_next(&mut stream, &mut array) } != 0 {
            return Err(last_error(&mut stream));
        }
        if array.release.is_none() {
            return Ok((field, chunks));
        }
        chunks.push(import::array(array, field.data_type())?);
    }
}

/// All batches of another library's stream, and their columns.
///
/// # Errors
///
/// As [`chunks`], or if it is not a stream of rows.
pub fn imported(stream: CStream) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let (row, chunks) = chunks(stream)?;
    let DataType::Struct(fields) = row.data_type() else {
        return Err(format!(
            "an Arrow stream of {}, not of rows",
            row.data_type()
        ));
    };
    let batches = chunks.iter().map(|rows| batch_of(rows));
    let batches = batches.collect::<Result<Vec<RecordBatch>, String>>()?;
    Ok((Arc::new(Schema::new(fields.clone())), batches))
}

fn last_error(stream: &mut CStream) -> String {
    let text = stream.get_last_error.map(|get| {
        // SAFETY: the stream is valid, and its text lives until the next call.
        unsafe {
            let text = get(stream);
            match text.is_null() {
                true => String::new(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        }
    });
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "the Arrow stream has failed".to_string())
}
