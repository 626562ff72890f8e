//! The program at the interface: frames of our type go to the socket of their slot.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{ETHERNET_BYTES, ETHERNET_TYPE};

// The kernel's numbers, of its include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HELPER_REDIRECT_MAP: i32 = 51;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// The attached program, and the map from slots to sockets. It leaves the interface when its descriptors are
/// closed.
pub(super) struct Program {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    _gap: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    program_type: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination in the lower four bits, source in the upper.
    registers: u8,
    offset: i16,
    number: i32,
}

impl Program {
    /// Loads the program for this many slots, and attaches it: to the driver if that can, else after it.
    pub(super) fn attach(interface: u32, slots: usize) -> io::Result<Program> {
        let map = call(
            MAP_CREATE,
            &MapCreate {
                map_type: MAP_TYPE_XSKMAP,
                key_size: 4,
                value_size: 4,
                // At most 128.
                max_entries: slots as u32,
                map_flags: 0,
            },
        )?;
        let instructions = instructions(&map);
        let license = c"Apache-2.0";
        let program = call(
            PROG_LOAD,
            &Load {
                program_type: PROG_TYPE_XDP,
                instructions: instructions.len() as u32,
                first: instructions.as_ptr() as u64,
                license: license.as_ptr() as u64,
                ..Load::default()
            },
        )?;
        let link = call(
            LINK_CREATE,
            &LinkCreate {
                program: program.as_raw_fd() as u32,
                interface,
                attach_type: ATTACH_XDP,
                flags: 0,
            },
        )?;
        Ok(Program {
            map,
            _program: program,
            _link: link,
        })
    }

    /// From now on, frames of this slot go to this socket.
    pub(super) fn set(&self, slot: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        self.change(MAP_UPDATE_ELEM, slot, &raw const value as u64)
    }

    /// From now on, frames of this slot are dropped.
    pub(super) fn clear(&self, slot: u32) {
        // Fails only if there is none.
        let _ = self.change(MAP_DELETE_ELEM, slot, 0);
    }

    fn change(&self, command: libc::c_int, slot: u32, value: u64) -> io::Result<()> {
        let element = MapElement {
            map: self.map.as_raw_fd() as u32,
            key: &raw const slot as u64,
            value,
            ..MapElement::default()
        };
        // SAFETY: as in `call`; the key and the value live until it returns.
        match unsafe { system_call(command, &element) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Executes a command that makes a descriptor.
fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes of this command, whose addresses are of values that live until it returns. A
    // descriptor that it returns is new.
    unsafe {
        match system_call(command, attributes) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor as libc::c_int)),
        }
    }
}

/// # Safety
///
/// `T` is what the kernel expects for the command, and its addresses are valid.
unsafe fn system_call<T>(command: libc::c_int, attributes: &T) -> libc::c_long {
    let address = std::ptr::from_ref(attributes);
    // SAFETY: says the caller.
    unsafe { libc::syscall(libc::SYS_bpf, command, address, size_of::<T>()) }
}

/// The program:
///
/// ```text
/// if the frame is shorter than a header and a slot, or not of our type: pass
/// redirect to the socket of (slot), or drop if it has none
/// ```
fn instructions(map: &OwnedFd) -> [Instruction; 15] {
    let make = |code, to: u8, from: u8, offset, number| Instruction {
        code,
        registers: to | from << 4,
        offset,
        number,
    };
    let slot_at = ETHERNET_BYTES as i16;
    let least = i32::from(slot_at) + 4;
    // The type as the processor reads it.
    let kind = i32::from(u16::from_ne_bytes(ETHERNET_TYPE.to_be_bytes()));
    [
        make(0x61, 2, 1, 0, 0),               // r2 = start of the frame
        make(0x61, 3, 1, 4, 0),               // r3 = its end
        make(0xBF, 4, 2, 0, 0),               // r4 = r2
        make(0x07, 4, 0, 0, least),           // r4 += least
        make(0x2D, 4, 3, 8, 0),               // if r4 > r3: pass
        make(0x69, 5, 2, slot_at - 2, 0),     // r5 = type
        make(0x55, 5, 0, 6, kind),            // if r5 != kind: pass
        make(0x61, 2, 2, slot_at, 0),         // r2 = slot
        make(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = map (two instructions)
        make(0, 0, 0, 0, 0),
        make(0xB7, 3, 0, 0, XDP_DROP), // r3 = what to do without a socket
        make(0x85, 0, 0, 0, HELPER_REDIRECT_MAP), // r0 = bpf_redirect_map(r1, r2, r3)
        make(0x95, 0, 0, 0, 0),        // return r0
        make(0xB7, 0, 0, 0, XDP_PASS), // pass: r0 = XDP_PASS
        make(0x95, 0, 0, 0, 0),        // return r0
    ]
}
