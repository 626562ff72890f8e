//! A client's packets, as bytes.

use super::{Connect, Publish, Qos, TEXT_BYTES_MAX, Version, kind};

/// Appends a packet whose body `write` makes.
fn packet(out: &mut Vec<u8>, first: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(first);
    // Most packets are short: reserves one byte for the length, and inserts more once the length is known.
    let at = out.len();
    out.push(0);
    write(out);
    let mut length = out.len() - at - 1;
    let mut digits = vec![];
    loop {
        let more = length >= 0x80;
        digits.push((length & 0x7f) as u8 | if more { 0x80 } else { 0 });
        length >>= 7;
        if !more {
            break;
        }
    }
    out.splice(at..=at, digits);
}

/// A string of at most 65,535 bytes; settings and topics are checked for that.
fn text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(crate) fn connect(version: Version, out: &mut Vec<u8>, connect: &Connect<'_>) {
    packet(out, kind::CONNECT << 4, |out| {
        text(out, "MQTT");
        out.push(match version {
            Version::V3_1_1 => 4,
            Version::V5 => 5,
        });
        let flags = u8::from(connect.session.is_clean) << 1
            | u8::from(connect.password.is_some()) << 6
            | u8::from(connect.username.is_some()) << 7;
        out.push(flags);
        // No keep-alive: the kernel notices when the other host is gone, without waking anybody.
        out.extend_from_slice(&[0, 0]);
        if version == Version::V5 {
            out.extend_from_slice(&[8, 17]);
            out.extend_from_slice(&connect.session.expiry_s.to_be_bytes());
            // As many as there are identifiers: without this, Mosquitto assumes 20.
            out.extend_from_slice(&[33, 0xff, 0xff]);
        }
        text(out, connect.client_id);
        for word in [connect.username, connect.password].into_iter().flatten() {
            text(out, word);
        }
    });
}

/// Subscribes to a filter; with version 5 its messages carry the number `subscription`.
pub(crate) fn subscribe(
    version: Version,
    out: &mut Vec<u8>,
    (filter, qos): (&str, Qos),
    subscription: u8,
) {
    // Retained messages are sent once, with a subscription that is new to the session.
    const RETAINED_ONCE: u8 = 1 << 4;
    packet(out, kind::SUBSCRIBE << 4 | 2, |out| {
        out.extend_from_slice(&u16::from(subscription).to_be_bytes());
        if version == Version::V5 {
            out.extend_from_slice(&[2, 11, subscription]);
        }
        text(out, filter);
        out.push(match version {
            Version::V3_1_1 => qos as u8,
            Version::V5 => RETAINED_ONCE | qos as u8,
        });
    });
}

pub(crate) fn write_publish(version: Version, out: &mut Vec<u8>, message: &Publish<'_>) {
    let flags = u8::from(message.duplicate) << 3 | (message.qos as u8) << 1;
    let first = kind::PUBLISH << 4 | flags | u8::from(message.retain);
    packet(out, first, |out| {
        text(out, message.topic);
        if message.qos != Qos::AtMostOnce {
            out.extend_from_slice(&message.id.to_be_bytes());
        }
        if version == Version::V5 {
            // No properties.
            out.push(0);
        }
        out.extend_from_slice(message.payload);
    });
}

pub(crate) fn pub_ack(out: &mut Vec<u8>, id: u16) {
    packet(out, kind::PUBACK << 4, |out| {
        out.extend_from_slice(&id.to_be_bytes())
    });
}

pub(crate) fn pub_rec(out: &mut Vec<u8>, id: u16) {
    packet(out, kind::PUBREC << 4, |out| {
        out.extend_from_slice(&id.to_be_bytes())
    });
}

pub(crate) fn pub_rel(out: &mut Vec<u8>, id: u16) {
    packet(out, kind::PUBREL << 4 | 2, |out| {
        out.extend_from_slice(&id.to_be_bytes())
    });
}

pub(crate) fn pub_comp(out: &mut Vec<u8>, id: u16) {
    packet(out, kind::PUBCOMP << 4, |out| {
        out.extend_from_slice(&id.to_be_bytes())
    });
}

pub(crate) fn ping(out: &mut Vec<u8>) {
    packet(out, kind::PINGREQ << 4, |_| ());
}

pub(crate) fn disconnect(out: &mut Vec<u8>) {
    packet(out, kind::DISCONNECT << 4, |_| ());
}
