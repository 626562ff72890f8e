//! View arrays without the bytes that no view refers to.
//!
//! A filtered or sliced view array keeps all the buffers that it was made from. One pass finds what its
//! views refer to; then the buffers are sent as they are, trimmed at both ends, or, if much between is
//! unused too, as one compact copy.

use std::ops::Range;

use arrow_array::types::ByteViewType;
use arrow_array::{Array, GenericByteViewArray};
use arrow_buffer::Buffer;
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};

use super::{VIEWED_BYTES_MAX, too_large};
use crate::error::Result;

/// Views that leave more than this part of the buffers unused are copied: a quarter.
const UNUSED_SHARE_MAX: usize = 4;

/// Views into more buffers than this are copied: each buffer would be padded, and gathered separately.
const BUFFERS_MAX: usize = 16;

/// Views, and the buffers that they refer to.
type Viewed = (Buffer, Vec<Buffer>);

/// The views and buffers of `array` that a receiver needs.
pub fn viewed<T: ByteViewType>(array: &GenericByteViewArray<T>) -> Result<Viewed> {
    let views = array.views();
    let buffers = array.data_buffers();
    let survey = Survey::of(array);
    if survey.bytes > VIEWED_BYTES_MAX {
        return Err(too_large(format!(
            "has views of {} bytes in one column, more than {VIEWED_BYTES_MAX}",
            survey.bytes
        )));
    }
    let span: usize = survey.ranges.iter().map(Range::len).sum();
    let used = survey.ranges.iter().filter(|range| !range.is_empty());
    let used = used.count();
    // At most VIEWED_BYTES_MAX, and no more than the span where it matters.
    let bytes = survey.bytes as usize;
    if bytes < span && (span - bytes > span / UNUSED_SHARE_MAX || used > BUFFERS_MAX) {
        return Ok(compact(array, bytes));
    }
    let data = buffers.iter().zip(&survey.ranges);
    let data = data
        .filter(|(_, range)| !range.is_empty())
        .map(|(buffer, range)| buffer.slice_with_length(range.start, range.len()))
        .collect();
    // Views keep their meaning if no buffer loses its front, or its place to one before it.
    let in_place = survey.ranges[..used]
        .iter()
        .all(|range| range.start == 0 && range.end > 0);
    if in_place && !survey.stale_nulls {
        return Ok((views.inner().clone(), data));
    }
    let mut places = Vec::with_capacity(buffers.len());
    let mut place = 0;
    for range in &survey.ranges {
        places.push(place);
        place += u32::from(!range.is_empty());
    }
    let moved = |row: usize| {
        let view = ByteView::from(views[row]);
        if array.is_null(row) {
            0
        } else if view.length <= MAX_INLINE_VIEW_LEN {
            views[row]
        } else {
            let buffer = view.buffer_index as usize;
            view.with_buffer_index(places[buffer])
                .with_offset(view.offset - survey.ranges[buffer].start as u32)
                .as_u128()
        }
    };
    let views = (0..array.len()).map(moved).collect::<Vec<u128>>();
    Ok((views.into(), data))
}

/// What an array's views refer to.
struct Survey {
    /// For each buffer, the range from the first to the last byte that is referred to.
    ranges: Vec<Range<usize>>,
    /// Bytes referred to, counted once per view.
    bytes: u64,
    /// Whether a NULL has a view that isn't zero. It may refer to anything, so it can't be sent.
    stale_nulls: bool,
}

impl Survey {
    fn of<T: ByteViewType>(array: &GenericByteViewArray<T>) -> Survey {
        let mut survey = Survey {
            ranges: vec![0..0; array.data_buffers().len()],
            bytes: 0,
            stale_nulls: false,
        };
        match array.nulls() {
            None => array.views().iter().for_each(|view| survey.add(*view)),
            Some(nulls) => {
                for (view, valid) in array.views().iter().zip(nulls) {
                    if valid {
                        survey.add(*view);
                    } else {
                        survey.stale_nulls |= *view != 0;
                    }
                }
            }
        }
        survey
    }

    fn add(&mut self, view: u128) {
        let view = ByteView::from(view);
        if view.length <= MAX_INLINE_VIEW_LEN {
            return;
        }
        let start = view.offset as usize;
        let end = start + view.length as usize;
        let range = &mut self.ranges[view.buffer_index as usize];
        *range = if range.end == 0 {
            start..end
        } else {
            range.start.min(start)..range.end.max(end)
        };
        self.bytes += u64::from(view.length);
    }
}

/// Copies the array's long strings one after the other into one buffer of `bytes` bytes.
fn compact<T: ByteViewType>(array: &GenericByteViewArray<T>, bytes: usize) -> Viewed {
    let buffers = array.data_buffers();
    let mut data = Vec::with_capacity(bytes);
    let copied = |row: usize| {
        let view = ByteView::from(array.views()[row]);
        if array.is_null(row) {
            0
        } else if view.length <= MAX_INLINE_VIEW_LEN {
            array.views()[row]
        } else {
            let start = view.offset as usize;
            let text = &buffers[view.buffer_index as usize][start..start + view.length as usize];
            let offset = data.len() as u32;
            data.extend_from_slice(text);
            view.with_buffer_index(0).with_offset(offset).as_u128()
        }
    };
    let views = (0..array.len()).map(copied).collect::<Vec<u128>>();
    (views.into(), vec![data.into()])
}
