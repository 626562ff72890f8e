//! Packets of MQTT, as far as a client needs them (OASIS standards "MQTT Version 5.0" and "MQTT Version
//! 3.1.1", chapters 2, 3).
//!
//! Packets of version 3.1.1 have the same order without properties and reason codes. A broker that says
//! nothing of its limits is read as one that has none.
//!
//! Converts bytes to values and back; nothing here waits or has state. Bytes from a broker never cause a
//! panic: what can't be read is a [`Malformed`] with the reason.

/// A version of the protocol, as the option names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V3_1_1,
    V5,
}

impl Version {
    /// The versions by the names that the option has for them.
    pub(crate) const NAMES: [(&str, Version); 2] = [("5", Version::V5), ("3.1.1", Version::V3_1_1)];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Version::V3_1_1 => "3.1.1",
            Version::V5 => "5",
        }
    }

    /// The other one.
    pub(crate) fn other(self) -> Version {
        match self {
            Version::V3_1_1 => Version::V5,
            Version::V5 => Version::V3_1_1,
        }
    }
}

/// How often a message is delivered: at most, at least or exactly once, in the standard's terms.
#[allow(clippy::enum_variant_names)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Qos {
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
}

impl Qos {
    pub(crate) fn of(number: u8) -> Option<Qos> {
        match number {
            0 => Some(Qos::AtMostOnce),
            1 => Some(Qos::AtLeastOnce),
            2 => Some(Qos::ExactlyOnce),
            _ => None,
        }
    }
}

mod write;

pub(crate) use write::*;

/// The length of a string has two bytes.
pub(crate) const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// The kinds of packets: the upper half of the first byte.
mod kind {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const CONNACK: u8 = 2;
    pub(super) const PUBLISH: u8 = 3;
    pub(super) const PUBACK: u8 = 4;
    pub(super) const PUBREC: u8 = 5;
    pub(super) const PUBREL: u8 = 6;
    pub(super) const PUBCOMP: u8 = 7;
    pub(super) const SUBSCRIBE: u8 = 8;
    pub(super) const SUBACK: u8 = 9;
    pub(super) const PINGREQ: u8 = 12;
    pub(super) const PINGRESP: u8 = 13;
    pub(super) const DISCONNECT: u8 = 14;
}

/// From here on a reason code is a rejection.
pub(crate) const REFUSED: u8 = 0x80;

/// A packet that can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A broker's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    ConnAck(ConnAck),
    Publish(Publish<'a>),
    /// The broker has received a message of ours (at least once).
    PubAck {
        id: u16,
        code: u8,
    },
    /// The broker has received a message of ours, which must not be sent again (exactly once).
    PubRec {
        id: u16,
        code: u8,
    },
    /// The broker has released its message with this identifier.
    PubRel {
        id: u16,
    },
    /// The broker has released our message.
    PubComp {
        id: u16,
    },
    SubAck {
        id: u16,
        code: u8,
    },
    PingResp,
    Disconnect {
        code: u8,
    },
}

/// Whether the broker accepts the connection, and what it supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnAck {
    pub(crate) session_present: bool,
    pub(crate) code: u8,
    /// How many messages of ours may be in flight.
    pub(crate) receive_maximum: u16,
    pub(crate) packet_bytes_max: u32,
    pub(crate) qos_max: Qos,
    pub(crate) retains: bool,
    /// The longest time in seconds between two packets of ours, if the broker requires one.
    pub(crate) keep_alive_s: Option<u16>,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Publish<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) duplicate: bool,
    /// The packet identifier; 0 for messages that are delivered at most once.
    pub(crate) id: u16,
    /// Which of our subscriptions the message belongs to.
    pub(crate) subscription: Option<u32>,
}

/// How a session starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    /// Whether the broker forgets an earlier session of the client.
    pub(crate) is_clean: bool,
    /// For how many seconds the broker keeps the session of a broken connection. With version 3.1.1 it ends
    /// clean sessions with their connection, and decides how long it keeps others.
    pub(crate) expiry_s: u32,
}

/// A client's request to connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connect<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) session: Start,
    pub(crate) username: Option<&'a str>,
    pub(crate) password: Option<&'a str>,
}

/// Whether these bytes can begin a broker's answer to a request to connect.
pub(crate) fn is_answer(first: u8) -> bool {
    first == kind::CONNACK << 4
}

/// Reads the packet at the beginning of `bytes`, and its length; `None` if it is incomplete.
pub(crate) fn read(
    version: Version,
    bytes: &[u8],
) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some(&first) = bytes.first() else {
        return Ok(None);
    };
    let Some((length, digits)) = variable(&bytes[1..])? else {
        return Ok(None);
    };
    let start = 1 + digits;
    let Some(body) = bytes.get(start..start + length as usize) else {
        return Ok(None);
    };
    let packet = parse(version, first, &mut Rest(body))?;
    Ok(Some((packet, start + body.len())))
}

/// The number with seven bits a byte at the beginning, and how many bytes it has.
fn variable(bytes: &[u8]) -> Result<Option<(u32, usize)>, Malformed> {
    let mut value = 0;
    for (nth, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Ok(Some((value, nth + 1)));
        }
    }
    match bytes.len() < 4 {
        true => Ok(None),
        false => Err(Malformed("a length of more than four bytes")),
    }
}

fn parse<'a>(version: Version, first: u8, rest: &mut Rest<'a>) -> Result<Packet<'a>, Malformed> {
    Ok(match first >> 4 {
        kind::CONNACK => Packet::ConnAck(conn_ack(version, rest)?),
        kind::PUBLISH => Packet::Publish(publish(version, first, rest)?),
        kind::PUBACK => Packet::PubAck {
            id: rest.u16()?,
            code: rest.code(),
        },
        kind::PUBREC => Packet::PubRec {
            id: rest.u16()?,
            code: rest.code(),
        },
        kind::PUBREL => Packet::PubRel { id: rest.u16()? },
        kind::PUBCOMP => Packet::PubComp { id: rest.u16()? },
        kind::SUBACK => {
            let id = rest.u16()?;
            if version == Version::V5 {
                rest.properties()?;
            }
            Packet::SubAck {
                id,
                code: rest.u8()?,
            }
        }
        kind::PINGRESP => Packet::PingResp,
        kind::DISCONNECT if version == Version::V5 => Packet::Disconnect { code: rest.code() },
        _ => return Err(Malformed("a packet that only a client sends")),
    })
}

fn conn_ack(version: Version, rest: &mut Rest<'_>) -> Result<ConnAck, Malformed> {
    let flags = rest.u8()?;
    let mut ack = ConnAck {
        session_present: flags & 1 != 0,
        code: rest.u8()?,
        receive_maximum: u16::MAX,
        packet_bytes_max: u32::MAX,
        qos_max: Qos::ExactlyOnce,
        retains: true,
        keep_alive_s: None,
    };
    // A broker that speaks only another version says so in its own.
    if rest.0.is_empty() || version != Version::V5 {
        return Ok(ack);
    }
    let mut properties = rest.properties()?;
    while let Some(property) = properties.property()? {
        match property {
            (33, Value::Number(number)) => ack.receive_maximum = number.clamp(1, 0xffff) as u16,
            (39, Value::Number(number)) => ack.packet_bytes_max = number.max(1),
            (36, Value::Number(0)) => ack.qos_max = Qos::AtMostOnce,
            (36, Value::Number(_)) => ack.qos_max = Qos::AtLeastOnce,
            (37, Value::Number(number)) => ack.retains = number != 0,
            (19, Value::Number(number)) => ack.keep_alive_s = Some(number as u16),
            _ => {}
        }
    }
    Ok(ack)
}

fn publish<'a>(version: Version, first: u8, rest: &mut Rest<'a>) -> Result<Publish<'a>, Malformed> {
    let qos = Qos::of(first >> 1 & 3).ok_or(Malformed("a message of QoS 3"))?;
    let topic = rest.text()?;
    let id = match qos {
        Qos::AtMostOnce => 0,
        _ => rest.u16()?,
    };
    if id == 0 && qos != Qos::AtMostOnce {
        return Err(Malformed("a message without a number"));
    }
    let mut properties = match version {
        Version::V3_1_1 => Rest(&[]),
        Version::V5 => rest.properties()?,
    };
    let mut subscription = None;
    while let Some(property) = properties.property()? {
        if let (11, Value::Number(number)) = property {
            subscription.get_or_insert(number);
        }
    }
    Ok(Publish {
        topic,
        payload: rest.0,
        qos,
        retain: first & 1 != 0,
        duplicate: first & 8 != 0,
        id,
        subscription,
    })
}

/// The rest of a packet.
struct Rest<'a>(&'a [u8]);

/// A property's value, of the kinds that are used.
enum Value {
    Number(u32),
    Other,
}

const SHORT: Malformed = Malformed("a packet that is shorter than it says");

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn variable(&mut self) -> Result<u32, Malformed> {
        let (number, bytes) = variable(self.0)?.ok_or(SHORT)?;
        self.take(bytes)?;
        Ok(number)
    }

    fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.binary()?).map_err(|_| Malformed("text that is not UTF-8"))
    }

    /// A reason code, which is omitted on success.
    fn code(&mut self) -> u8 {
        self.u8().unwrap_or(0)
    }

    fn properties(&mut self) -> Result<Rest<'a>, Malformed> {
        let length = self.variable()?;
        Ok(Rest(self.take(length as usize)?))
    }

    /// The next property: its number and value (section 2.2.2.2).
    fn property(&mut self) -> Result<Option<(u8, Value)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let number = self.u8()?;
        let value = match number {
            1 | 23 | 25 | 36 | 37 | 40 | 41 | 42 => Value::Number(self.u8()?.into()),
            19 | 33 | 34 | 35 => Value::Number(self.u16()?.into()),
            2 | 17 | 24 | 39 => Value::Number(self.u32()?),
            11 => Value::Number(self.variable()?),
            3 | 8 | 9 | 18 | 21 | 22 | 26 | 28 | 31 => {
                self.binary()?;
                Value::Other
            }
            38 => {
                self.binary()?;
                self.binary()?;
                Value::Other
            }
            _ => return Err(Malformed("a property that MQTT 5 doesn't have")),
        };
        Ok(Some((number, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_back(
            topic in "[a-z/é]{0,20}",
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            qos in 0u8..3,
            (retain, duplicate) in any::<(bool, bool)>(),
            id in 1u16..,
            behind in proptest::collection::vec(any::<u8>(), 0..5),
            is_new: bool,
        ) {
            let version = if is_new { Version::V5 } else { Version::V3_1_1 };
            let qos = Qos::of(qos).unwrap();
            let id = if qos == Qos::AtMostOnce { 0 } else { id };
            let message = Publish {
                topic: &topic, payload: &payload, qos, retain, duplicate, id, subscription: None,
            };
            let mut bytes = vec![];
            write_publish(version, &mut bytes, &message);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(read(version, &bytes[..cut]), Ok(None));
            }
            bytes.extend(behind);
            prop_assert_eq!(read(version, &bytes), Ok(Some((Packet::Publish(message), length))));
        }

        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), kind in 0u8..16) {
            let mut framed = vec![kind << 4, bytes.len() as u8];
            framed.extend(&bytes);
            for (_, version) in Version::NAMES {
                let _ = read(version, &bytes);
                let _ = read(version, &framed);
            }
        }
    }

    #[test]
    fn what_a_broker_says() {
        fn says(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
            read(Version::V5, bytes).map(|packet| packet.unwrap().0)
        }
        let plain = [0x20, 3, 1, 0, 0];
        let Ok(Packet::ConnAck(ack)) = says(&plain) else {
            panic!("no CONNACK");
        };
        assert!(ack.session_present && ack.code == 0 && ack.receive_maximum == u16::MAX);
        // Receive maximum 20, QoS 1 at most, keep alive 30 s, a reason.
        let rich = [
            0x20, 16, 0, 0x86, 13, 33, 0, 20, 36, 1, 19, 0, 30, 31, 0, 2, b'n', b'o',
        ];
        let Ok(Packet::ConnAck(ack)) = says(&rich) else {
            panic!("no CONNACK");
        };
        assert_eq!(
            (ack.code, ack.receive_maximum, ack.keep_alive_s),
            (0x86, 20, Some(30))
        );
        assert_eq!(ack.qos_max, Qos::AtLeastOnce);
        assert_eq!(
            says(&[0x40, 2, 1, 2]),
            Ok(Packet::PubAck { id: 258, code: 0 })
        );
        assert_eq!(
            says(&[0x50, 3, 0, 7, 0x97]),
            Ok(Packet::PubRec { id: 7, code: 0x97 })
        );
        assert_eq!(
            says(&[0x90, 4, 0, 1, 0, 0x8f]),
            Ok(Packet::SubAck { id: 1, code: 0x8f })
        );
        assert_eq!(says(&[0xe0, 0]), Ok(Packet::Disconnect { code: 0 }));
        assert_eq!(says(&[0x40, 1, 1]), Err(SHORT));
        assert!(says(&[0x36, 0]).is_err() && says(&[0x10, 0]).is_err());
        assert!(read(Version::V5, &[0x30, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    #[test]
    fn a_long_packet_has_a_long_length() {
        let payload = vec![b'x'; 300_000];
        let message = Publish {
            topic: "t",
            payload: &payload,
            qos: Qos::AtLeastOnce,
            retain: false,
            duplicate: false,
            id: 3,
            subscription: None,
        };
        let mut bytes = vec![];
        write_publish(Version::V5, &mut bytes, &message);
        assert_eq!(bytes.len(), 1 + 3 + 3 + 2 + 1 + 300_000);
        let read = read(Version::V5, &bytes).unwrap().unwrap();
        assert_eq!(read.1, bytes.len());
    }
}
