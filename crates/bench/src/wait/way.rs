//! What is compared: how messages are sent, and how their reader waits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use slackwater_engine::runtime::WaitMode;

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Not at all: the sender does everything except sending.
    Nothing,
    /// The link through shared memory.
    Shm,
    /// The link through TCP, over the loopback interface.
    Tcp,
    /// A TCP connection over the loopback interface, read and written by blocking calls.
    Plain,
}

impl Transport {
    /// The transports that send messages.
    pub const ALL: [Transport; 3] = [Transport::Shm, Transport::Tcp, Transport::Plain];

    /// The transport's name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Nothing => "nothing",
            Transport::Shm => "shm",
            Transport::Tcp => "tcp",
            Transport::Plain => "plain",
        }
    }

    /// The transport's name in headings.
    pub fn title(self) -> &'static str {
        match self {
            Transport::Nothing => "no messages",
            Transport::Shm => "shared memory",
            Transport::Tcp => "TCP link",
            Transport::Plain => "plain TCP",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport, String> {
        let named = Transport::ALL.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| "expected shm, tcp or plain".to_string())
    }
}

/// A wait mode; `auto` is written with its delay: `auto:200us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(pub WaitMode);

impl Mode {
    /// Whether the mode is chosen at run time.
    pub fn is_auto(self) -> bool {
        matches!(self.0, WaitMode::Auto { .. })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitMode::Auto { delay } = self.0 else {
            return self.0.fmt(formatter);
        };
        let sleep = WaitMode::Sleep(delay).to_string();
        let time = sleep.split_once(':').map_or("", |(_, time)| time);
        write!(formatter, "auto:{time}")
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let Some(time) = text.trim().strip_prefix("auto:") else {
            let mode = text.parse::<WaitMode>();
            return mode.map(Mode).map_err(|error| error.to_string());
        };
        match format!("sleep:{time}").parse::<WaitMode>() {
            Ok(WaitMode::Sleep(delay)) => Ok(Mode(WaitMode::Auto { delay })),
            _ => Err("'auto:' needs a time, such as 'auto:200us'".to_string()),
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Mode, String> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> String {
        mode.to_string()
    }
}

/// One of the variants that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// How messages are sent.
    pub transport: Transport,
    /// How the reader waits.
    pub mode: Mode,
}

impl Way {
    /// The sender alone.
    pub const BASELINE: Way = Way {
        transport: Transport::Nothing,
        mode: Mode(WaitMode::Interrupt),
    };

    /// P1's baseline: blocking reads and writes.
    pub const PLAIN: Way = Way {
        transport: Transport::Plain,
        mode: Mode(WaitMode::Interrupt),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_parsed_as_they_are_written() {
        for text in ["poll", "sleep:200us", "auto:200us", "auto:10ms", "backoff"] {
            assert_eq!(text.parse::<Mode>().unwrap().to_string(), text);
        }
        assert_eq!("auto".parse::<Mode>().unwrap().to_string(), "auto:1ms");
        for text in ["auto:", "auto:soon", "sleeping"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }

    #[test]
    fn modes_travel_as_text() {
        let mode = "auto:200us".parse::<Mode>().unwrap();
        let json = serde_json::to_string(&mode).unwrap();
        assert_eq!(json, "\"auto:200us\"");
        assert_eq!(serde_json::from_str::<Mode>(&json).unwrap(), mode);
    }
}
