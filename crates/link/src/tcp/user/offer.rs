//! What each end tells the other in the greeting: where to send frames to.

use super::{Place, Port};
use crate::tcp::hello::random_number;

/// The length of an offer.
pub(in crate::tcp) const OFFER_BYTES: usize = 40;

const MAGIC: [u8; 8] = *b"slackETH";

/// The version of packets and offers.
const VERSION: u16 = 1;

/// Where one end of a connection receives its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Offer {
    pub(in crate::tcp) place: Place,
    /// A random number that each packet to this end carries: a packet for an earlier connection of the same
    /// slot, or of a stranger, does not have it.
    pub(in crate::tcp) key: u64,
}

impl Offer {
    /// The offer of an end with this port.
    pub(in crate::tcp) fn of(port: &dyn Port) -> Offer {
        Offer {
            place: port.place(),
            key: random_number(),
        }
    }

    pub(in crate::tcp) fn encode(&self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.place.packet_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.place.slot.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.place.address);
        bytes[24..32].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// The offer in these bytes, or what is wrong with them, as the end of a sentence about the peer.
    pub(in crate::tcp) fn decode(bytes: &[u8]) -> Result<Offer, String> {
        let part = |from: usize, to: usize| bytes.get(from..to);
        let (Some(magic), Some(version), Some(longest), Some(slot), Some(address), Some(key)) = (
            part(0, 8),
            part(8, 10).and_then(|bytes| bytes.try_into().ok()),
            part(10, 12).and_then(|bytes| bytes.try_into().ok()),
            part(12, 16).and_then(|bytes| bytes.try_into().ok()),
            part(16, 24).and_then(|bytes| bytes.try_into().ok()),
            part(24, 32).and_then(|bytes| bytes.try_into().ok()),
        ) else {
            return Err("did not say where it receives frames".to_owned());
        };
        if magic != MAGIC {
            return Err(
                "did not say where it receives frames: give both the same 'link'".to_owned(),
            );
        }
        let version = u16::from_le_bytes(version);
        if version != VERSION {
            return Err(format!(
                "uses version {version} of frames, not {VERSION}: run the same version of slackwater on \
                 every host"
            ));
        }
        let packet_bytes = u16::from_le_bytes(longest);
        if packet_bytes < Place::PACKET_BYTES_MIN {
            let least = Place::PACKET_BYTES_MIN;
            return Err(format!(
                "receives packets of at most {packet_bytes} bytes: raise its MTU to {least} or more"
            ));
        }
        Ok(Offer {
            place: Place {
                address,
                slot: u32::from_le_bytes(slot),
                packet_bytes,
            },
            key: u64::from_le_bytes(key),
        })
    }
}

impl Place {
    /// The least packet size that is of any use: IPv4's least MTU.
    pub(in crate::tcp) const PACKET_BYTES_MIN: u16 = 576;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let offer = Offer {
            place: Place {
                address: *b"\x02abcde\0\0",
                slot: 7,
                packet_bytes: 1500,
            },
            key: u64::MAX - 3,
        };
        let mut bytes = offer.encode();
        assert_eq!(Offer::decode(&bytes), Ok(offer));
        assert!(Offer::decode(&bytes[..31]).is_err());
        bytes[8] = 9;
        assert!(Offer::decode(&bytes).is_err_and(|error| error.contains("version 9")));
        bytes[0] = 0;
        assert!(Offer::decode(&bytes).is_err_and(|error| error.contains("'link'")));
        let mut short = offer;
        short.place.packet_bytes = 100;
        assert!(Offer::decode(&short.encode()).is_err_and(|error| error.contains("MTU")));
    }
}
