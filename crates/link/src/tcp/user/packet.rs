//! The header of a packet.
//!
//! | byte | field |
//! |---|---|
//! | 0 | slot of the receiving end (4 bytes) |
//! | 4 | length of the payload (2) |
//! | 6 | flags: 1 acknowledge now, 2 a frame is missing: go back (2) |
//! | 8 | key of the receiving end (8) |
//! | 16 | number of the frame; without payload, of the next one that was never sent (8) |
//! | 24 | frames that the sending end has received in order (8) |
//! | 32 | CRC-32 of everything before it, and of the payload (4) |

use super::Offer;

/// The length of a header.
pub(super) const HEADER_BYTES: usize = 36;

const ASKS: u16 = 1;
const REPEAT: u16 = 2;

/// A packet without its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) number: u64,
    pub(super) received: u64,
    /// Whether the other end is to acknowledge at once.
    pub(super) asks: bool,
    /// Whether a frame is missing: everything from `received` on is to be sent again.
    pub(super) repeat: bool,
}

impl Packet {
    /// The header of this packet to an end.
    pub(super) fn encode(&self, to: &Offer, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let flags = (u16::from(self.asks) * ASKS) | (u16::from(self.repeat) * REPEAT);
        bytes[..4].copy_from_slice(&to.place.slot.to_le_bytes());
        // A payload is shorter than a packet, whose length has 16 bits.
        bytes[4..6].copy_from_slice(&(payload.len() as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&to.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.received.to_le_bytes());
        let check = check(&bytes[..32], payload);
        bytes[32..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The packet in these bytes, and its payload, if it is one for the end `own`. A network may add bytes
    /// after it (Ethernet fills frames up to 60).
    pub(super) fn decode<'a>(bytes: &'a [u8], own: &Offer) -> Option<(Packet, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let small = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let payload = rest.get(..usize::from(small(4)))?;
        if number(header, 8) != own.key
            || check(&header[..32], payload).to_le_bytes() != header[32..]
        {
            return None;
        }
        let flags = small(6);
        let packet = Packet {
            number: number(header, 16),
            received: number(header, 24),
            asks: flags & ASKS != 0,
            repeat: flags & REPEAT != 0,
        };
        Some((packet, payload))
    }
}

fn number(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn check(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::user::Place;

    #[test]
    fn a_damaged_packet_is_not_one() {
        let own = Offer {
            place: Place {
                address: [0; 8],
                slot: 3,
                packet_bytes: 1500,
            },
            key: 11,
        };
        let packet = Packet {
            number: 5,
            received: 9,
            asks: true,
            repeat: false,
        };
        let mut bytes = packet.encode(&own, b"payload").to_vec();
        bytes.extend(b"payload");
        // What Ethernet adds.
        bytes.resize(60, 0);
        assert_eq!(
            Packet::decode(&bytes, &own),
            Some((packet, &b"payload"[..]))
        );
        for place in 0..HEADER_BYTES + 7 {
            for bit in 0..8 {
                bytes[place] ^= 1 << bit;
                assert_eq!(
                    Packet::decode(&bytes, &own),
                    None,
                    "bit {bit} of byte {place}"
                );
                bytes[place] ^= 1 << bit;
            }
        }
        for length in 0..HEADER_BYTES + 7 {
            assert_eq!(Packet::decode(&bytes[..length], &own), None);
        }
        let other = Offer { key: 12, ..own };
        assert_eq!(Packet::decode(&bytes, &other), None);
    }
}
