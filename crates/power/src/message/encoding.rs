//! Messages as bytes: all of one size, with the same fields.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{Answer, Code, Report, Request, TEXT_MAX, Text};

/// The bytes of a message: kind, code, port, core, instance, two numbers, an IP address, a short string.
pub const SIZE: usize = 1 + 1 + 2 + 4 + 8 + 8 + 8 + 16 + TEXT_MAX;
/// Instead of a core or a number: none.
const NONE: u32 = u32::MAX;

/// The fields of every message; what they mean depends on the kind.
#[derive(Debug, Clone, Copy)]
struct Fields {
    kind: u8,
    code: u8,
    port: u16,
    cpu: u32,
    instance: u64,
    value: u64,
    more: u64,
    ip: [u8; 16],
    text: [u8; TEXT_MAX],
}

const BLANK: Fields = Fields {
    kind: 0,
    code: 0,
    port: 0,
    cpu: NONE,
    instance: 0,
    value: 0,
    more: 0,
    ip: [0; 16],
    text: [0; TEXT_MAX],
};

impl Fields {
    fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[0] = self.kind;
        bytes[1] = self.code;
        bytes[2..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.instance.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.more.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.ip);
        bytes[48..].copy_from_slice(&self.text);
        bytes
    }

    fn decode(bytes: &[u8; SIZE]) -> Self {
        let eight = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let (mut ip, mut text) = ([0; 16], [0; TEXT_MAX]);
        ip.copy_from_slice(&bytes[32..48]);
        text.copy_from_slice(&bytes[48..]);
        Self {
            kind: bytes[0],
            code: bytes[1],
            port: u16::from_le_bytes([bytes[2], bytes[3]]),
            cpu: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            instance: eight(8),
            value: eight(16),
            more: eight(24),
            ip,
            text,
        }
    }

    fn address(&self) -> SocketAddr {
        let ip = Ipv6Addr::from(self.ip).to_canonical();
        SocketAddr::new(ip, self.port)
    }

    fn at(self, address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self {
            ip: ip.octets(),
            port: address.port(),
            ..self
        }
    }
}

/// A message of one side.
pub trait Message: Sized {
    /// The message's bytes.
    fn encode(&self) -> [u8; SIZE];
    /// The message in these bytes, if they are one.
    fn decode(bytes: &[u8; SIZE]) -> Option<Self>;
}

impl Message for Request {
    fn encode(&self) -> [u8; SIZE] {
        let of = |kind, instance| Fields {
            kind,
            instance,
            ..BLANK
        };
        let fields = match *self {
            Self::Hello => of(1, 0),
            Self::Adopt {
                instance,
                pid,
                uptime_s,
                address,
            } => Fields {
                cpu: pid,
                value: uptime_s,
                ..of(2, instance).at(address)
            },
            Self::Forget { instance } => of(3, instance),
            Self::Cap { cpu, khz } => Fields {
                cpu,
                value: u64::from(khz.unwrap_or(NONE)),
                ..of(4, 0)
            },
            Self::Pin { instance, cpu } => Fields {
                cpu,
                ..of(5, instance)
            },
            Self::KeepAway { instance } => of(6, instance),
            Self::Unpin { instance } => of(7, instance),
            Self::Beat {
                instance,
                master,
                beat_ns,
            } => Fields {
                value: beat_ns.unwrap_or(0),
                ..of(8, instance).at(master)
            },
            Self::Look => of(9, 0),
            Self::Energy { package } => Fields {
                cpu: package,
                ..of(10, 0)
            },
            Self::Count { instance } => of(11, instance),
        };
        fields.encode()
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let fields = Fields::decode(bytes);
        let instance = fields.instance;
        let khz = || u32::try_from(fields.value).ok();
        Some(match fields.kind {
            1 => Self::Hello,
            2 => Self::Adopt {
                instance,
                pid: fields.cpu,
                uptime_s: fields.value,
                address: fields.address(),
            },
            3 => Self::Forget { instance },
            4 => Self::Cap {
                cpu: fields.cpu,
                khz: Some(khz()?).filter(|khz| *khz != NONE),
            },
            5 => Self::Pin {
                instance,
                cpu: fields.cpu,
            },
            6 => Self::KeepAway { instance },
            7 => Self::Unpin { instance },
            8 => Self::Beat {
                instance,
                master: fields.address(),
                beat_ns: Some(fields.value).filter(|beat| *beat > 0),
            },
            9 => Self::Look,
            10 => Self::Energy {
                package: fields.cpu,
            },
            11 => Self::Count { instance },
            _ => return None,
        })
    }
}

const CODES: [Code; 12] = [
    Code::Done,
    Code::System,
    Code::NotAllowed,
    Code::Conflict,
    Code::NotAdopted,
    Code::NoProcess,
    Code::AnotherNamespace,
    Code::AnotherStart,
    Code::AnotherSocket,
    Code::NoConnection,
    Code::TooMany,
    Code::NoPackage,
];

impl Message for Report {
    fn encode(&self) -> [u8; SIZE] {
        let fields = match *self {
            Self::Answer(answer) => Fields {
                kind: 128,
                code: answer.code as u8,
                cpu: answer.errno as u32,
                value: answer.value,
                more: answer.more,
                ..BLANK
            },
            Self::File { cpu, found } => Fields {
                kind: 129,
                cpu,
                text: found.0,
                ..BLANK
            },
            Self::Socket { instance, found } => Fields {
                kind: 130,
                cpu: found as u32,
                instance,
                ..BLANK
            },
            Self::Closed { instance } => Fields {
                kind: 131,
                instance,
                ..BLANK
            },
            Self::Gone { instance } => Fields {
                kind: 132,
                instance,
                ..BLANK
            },
            Self::Ended => Fields { kind: 134, ..BLANK },
            Self::Cores => Fields { kind: 135, ..BLANK },
            Self::Conflict { cpu, khz } => Fields {
                kind: 133,
                cpu,
                value: u64::from(khz),
                ..BLANK
            },
        };
        fields.encode()
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let fields = Fields::decode(bytes);
        let instance = fields.instance;
        Some(match fields.kind {
            128 => Self::Answer(Answer {
                code: *CODES.get(usize::from(fields.code))?,
                errno: fields.cpu as i32,
                value: fields.value,
                more: fields.more,
            }),
            129 => Self::File {
                cpu: fields.cpu,
                found: Text(fields.text),
            },
            130 => Self::Socket {
                instance,
                found: fields.cpu as i32,
            },
            131 => Self::Closed { instance },
            132 => Self::Gone { instance },
            133 => Self::Conflict {
                cpu: fields.cpu,
                khz: u32::try_from(fields.value).ok()?,
            },
            134 => Self::Ended,
            135 => Self::Cores,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn messages_come_back_as_they_were() {
        let address: SocketAddr = "127.0.0.1:6379".parse().unwrap();
        let six: SocketAddr = "[2001:db8::1]:6379".parse().unwrap();
        let requests = [
            Request::Hello,
            Request::Adopt {
                instance: 7,
                pid: 4711,
                uptime_s: 12,
                address,
            },
            Request::Forget { instance: 7 },
            Request::Cap {
                cpu: 3,
                khz: Some(1_000_000),
            },
            Request::Cap { cpu: 3, khz: None },
            Request::Pin {
                instance: 7,
                cpu: 3,
            },
            Request::KeepAway { instance: 7 },
            Request::Unpin { instance: 7 },
            Request::Beat {
                instance: 7,
                master: six,
                beat_ns: Some(20_000_000),
            },
            Request::Beat {
                instance: 7,
                master: address,
                beat_ns: None,
            },
            Request::Look,
            Request::Energy { package: 1 },
            Request::Count { instance: 7 },
        ];
        for request in requests {
            assert_eq!(Request::decode(&request.encode()), Some(request));
            assert_eq!(Report::decode(&request.encode()), None);
        }
        let reports = [
            Report::Answer(Answer::refused(&io::Error::from_raw_os_error(libc::EBUSY))),
            Report::Answer(Answer::value(5)),
            Report::File {
                cpu: 2,
                found: Text::new("2200000").unwrap(),
            },
            Report::Socket {
                instance: 7,
                found: 1,
            },
            Report::Closed { instance: 7 },
            Report::Gone { instance: 7 },
            Report::Ended,
            Report::Cores,
            Report::Conflict {
                cpu: 1,
                khz: 800_000,
            },
        ];
        for report in reports {
            assert_eq!(Report::decode(&report.encode()), Some(report));
            assert_eq!(Request::decode(&report.encode()), None);
        }
        for (at, code) in CODES.into_iter().enumerate() {
            assert_eq!(code as usize, at);
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = [0; SIZE];
            random.fill(&mut bytes);
            bytes[0] %= 16;
            let _ = Request::decode(&bytes);
            bytes[0] |= 128;
            let _ = Report::decode(&bytes);
        }
    }
}
