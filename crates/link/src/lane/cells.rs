//! The memory of a lane, as its two ends see it.
//!
//! Normally this is a part of a mapping (or, in tests, of the heap). Under loom, which can't see
//! into a mapping, it is a list of cells with the same methods, so that the models run the lane
//! that ships.

#[cfg(not(loom))]
pub(crate) use memory::Cells;
#[cfg(loom)]
pub(crate) use model::Cells;

/// Where the payload of a short piece begins in its header unit: after the commit word and the frame's
/// total length.
pub(crate) const INLINE_OFFSET: usize = 16;

#[cfg(not(loom))]
mod memory {
    use crate::lane::{UNIT, UNITS_MIN};
    use crate::memory::Memory;
    use crate::sync::{Arc, AtomicU32, AtomicU64};

    /// The words that both ends read. Each has its own pair of cache lines, so that one side's stores
    /// don't take the other's line away.
    #[repr(C)]
    pub(crate) struct Control {
        /// The number of units that the reader has returned.
        head: Padded<AtomicU64>,
        /// The head that a refused writer waits for; zero if it waits for none.
        wanted: Padded<AtomicU64>,
        /// Each end marks here that it is gone; a process that is killed can't.
        writer_gone: AtomicU32,
        reader_gone: AtomicU32,
    }

    #[repr(C, align(128))]
    struct Padded<T>(T);

    /// The bytes that a lane's control words take in a segment.
    pub(crate) const CONTROL_BYTES: usize = 512;
    const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);

    /// A lane's memory; clones are the same memory.
    #[derive(Clone)]
    pub(crate) struct Cells {
        control: *const Control,
        data: *mut u8,
        units: usize,
        /// Keeps the memory.
        _memory: Arc<Memory>,
    }

    // SAFETY: the pointers stay valid as long as `_memory`, which is shared between threads. All words
    // are atomics; payload bytes are written by the writer and read by the reader at different times,
    // which the lane's invariants ensure.
    unsafe impl Send for Cells {}
    // SAFETY: as above.
    unsafe impl Sync for Cells {}

    impl Cells {
        /// The lane whose control words begin at `control` and whose units begin at `data`, both in bytes
        /// from the start of the memory.
        ///
        /// # Panics
        ///
        /// When they are not within it, or not aligned: the caller has checked.
        pub(crate) fn new(memory: Arc<Memory>, control: usize, data: usize, units: usize) -> Cells {
            assert!(units.is_power_of_two() && units >= UNITS_MIN);
            assert!(control.is_multiple_of(128) && data.is_multiple_of(UNIT));
            assert!(control + CONTROL_BYTES <= memory.len());
            assert!(data + units * UNIT <= memory.len());
            let base = memory.base();
            // SAFETY: both offsets lie within the memory.
            let (control, data) = unsafe { (base.add(control).cast(), base.add(data)) };
            Cells {
                control,
                data,
                units,
                _memory: memory,
            }
        }

        fn control(&self) -> &Control {
            // SAFETY: within the memory and aligned (`new`), of atomics, for which any bytes are
            // valid.
            unsafe { &*self.control }
        }

        pub(crate) fn units(&self) -> usize {
            self.units
        }

        pub(crate) fn head(&self) -> &AtomicU64 {
            &self.control().head.0
        }

        pub(crate) fn wanted(&self) -> &AtomicU64 {
            &self.control().wanted.0
        }

        pub(crate) fn writer_gone(&self) -> &AtomicU32 {
            &self.control().writer_gone
        }

        pub(crate) fn reader_gone(&self) -> &AtomicU32 {
            &self.control().reader_gone
        }

        /// The first word of a unit, which in a header is the commit word.
        pub(crate) fn commit(&self, unit: usize) -> &AtomicU64 {
            assert!(unit < self.units);
            // SAFETY: within the memory; a unit is aligned to 64.
            unsafe { &*self.data.add(unit * UNIT).cast::<AtomicU64>() }
        }

        /// Writes the second word of a header, before it is committed.
        pub(crate) fn write_total(&self, unit: usize, total: u64) {
            self.write(unit * UNIT + 8, &total.to_ne_bytes());
        }

        /// Reads the second word of a committed header.
        pub(crate) fn read_total(&self, unit: usize) -> u64 {
            let mut total = [0; 8];
            total.copy_from_slice(self.bytes(unit * UNIT + 8, 8));
            u64::from_ne_bytes(total)
        }

        /// Copies bytes into units that belong to the writer, the caller.
        pub(crate) fn write(&self, start: usize, bytes: &[u8]) {
            assert!(start + bytes.len() <= self.units * UNIT);
            // SAFETY: within the memory. Nobody reads here meanwhile: the units are the writer's
            // until it commits them. (A reader of another process that breaks that rule sees
            // torn bytes.)
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data.add(start), bytes.len());
            }
        }

        /// The bytes of a piece that belongs to the reader, the caller. They are checked when they are
        /// decoded.
        pub(crate) fn bytes(&self, start: usize, length: usize) -> &[u8] {
            assert!(start + length <= self.units * UNIT);
            // SAFETY: within the memory, and not written until the piece is returned: the processes of
            // one deployment run the same program and keep the lane's rules, though what they write is
            // checked. A malicious process of the same user could write here; it could as well attach a
            // debugger.
            unsafe { std::slice::from_raw_parts(self.data.add(start), length) }
        }
    }
}

#[cfg(not(loom))]
pub(crate) use memory::CONTROL_BYTES;

#[cfg(loom)]
mod model {
    use crate::lane::UNIT;
    use crate::sync::{Arc, AtomicU64, UnsafeCell};

    /// A lane's memory for loom: a commit word and one cell for each unit. Each write is represented by
    /// its first byte, which is enough to tell pieces apart; loom checks that no unit is written while it
    /// is read.
    #[derive(Clone)]
    pub(crate) struct Cells {
        control: Arc<Control>,
        lane: Arc<Lane>,
    }

    struct Control {
        head: AtomicU64,
        wanted: AtomicU64,
    }

    struct Lane {
        commits: Vec<AtomicU64>,
        units: Vec<UnsafeCell<u8>>,
    }

    impl Cells {
        pub(crate) fn new(units: usize) -> Cells {
            Cells {
                control: Cells::control(),
                lane: Arc::new(Lane {
                    commits: (0..units).map(|_| AtomicU64::new(0)).collect(),
                    units: (0..units).map(|_| UnsafeCell::new(0)).collect(),
                }),
            }
        }

        /// The same units for another reader.
        pub(crate) fn for_another(&self) -> Cells {
            Cells {
                control: Cells::control(),
                lane: Arc::clone(&self.lane),
            }
        }

        fn control() -> Arc<Control> {
            Arc::new(Control {
                head: AtomicU64::new(0),
                wanted: AtomicU64::new(0),
            })
        }

        pub(crate) fn units(&self) -> usize {
            self.lane.units.len()
        }

        pub(crate) fn head(&self) -> &AtomicU64 {
            &self.control.head
        }

        pub(crate) fn wanted(&self) -> &AtomicU64 {
            &self.control.wanted
        }

        pub(crate) fn commit(&self, unit: usize) -> &AtomicU64 {
            &self.lane.commits[unit]
        }

        pub(crate) fn write_total(&self, _unit: usize, _total: u64) {}

        pub(crate) fn read_total(&self, _unit: usize) -> u64 {
            0
        }

        pub(crate) fn write(&self, start: usize, bytes: &[u8]) {
            for unit in start / UNIT..(start + bytes.len()).div_ceil(UNIT) {
                // SAFETY: loom reports a second access.
                self.lane.units[unit].with_mut(|cell| unsafe { *cell = bytes[0] });
            }
        }

        pub(crate) fn first_byte(&self, start: usize, length: usize) -> u8 {
            let mut first = None;
            for unit in start / UNIT..(start + length).div_ceil(UNIT) {
                // SAFETY: loom reports a write beside it.
                let byte = self.lane.units[unit].with(|cell| unsafe { *cell });
                first.get_or_insert(byte);
            }
            first.expect("a piece of at least one byte")
        }
    }
}
