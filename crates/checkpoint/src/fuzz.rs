//! The properties that hold for any bytes: the bodies of the fuzz targets `manifest` and `part`, here so that
//! an ordinary test runs their corpus too.

use arrow_buffer::Buffer;

use crate::manifest::record::Record;
use crate::part;

/// Reads `bytes` as a record: once as they are, once with the first line corrected. A record that is accepted
/// is the same after it is written and read again.
pub fn fuzz_manifest(bytes: &[u8]) {
    let mut inputs = vec![bytes.to_vec()];
    inputs.extend(corrected(bytes));
    for bytes in inputs {
        if let Ok(record) = Record::decode(&bytes) {
            let again = record.encode().expect("what was read can be written");
            assert_eq!(Record::decode(&again).as_ref(), Ok(&record));
        }
    }
}

/// The second line after a first line that matches it, so that a mutation gets past the checksum.
fn corrected(bytes: &[u8]) -> Option<Vec<u8>> {
    let at = bytes.iter().position(|&byte| byte == b'\n')?;
    let body = bytes[at + 1..].strip_suffix(b"\n")?;
    let kinds = ["checkpoint", "claim"];
    Some(crate::manifest::record::with_head(
        kinds[usize::from(bytes[0] == b'c')],
        body,
    ))
}

/// Reads `bytes` as a part, without comparing its checksum. A part that is accepted is the same after it is
/// written and read again.
pub fn fuzz_part(bytes: &[u8]) {
    let Ok(batches) = part::decode_checked(&Buffer::from(bytes.to_vec())) else {
        return;
    };
    if batches.is_empty() {
        return;
    }
    let again = part::encode(&batches).expect("what was read can be written");
    let again = part::decode_checked(&Buffer::from(again)).expect("what was written can be read");
    // NaN differs from itself; its text doesn't.
    assert_eq!(format!("{again:?}"), format!("{batches:?}"));
}

#[cfg(test)]
mod tests;
