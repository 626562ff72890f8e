//! Options of mqtt tables.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

use super::packet::{Qos, Start, TEXT_BYTES_MAX, Version};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// The default time for which a broker keeps the session of a broken connection, in seconds: longer than a
/// restart of the broker takes.
pub(crate) const SESSION_EXPIRY_S: u32 = 300;

/// The most filters of a table: each is a partition.
pub(crate) const FILTERS_MAX: usize = 64;

const PORT: &str = "1883";

/// A broker, and how to log in. `Debug` omits the password.
#[derive(Clone)]
pub(crate) struct Broker {
    pub(crate) table: String,
    /// `host:port`
    pub(crate) address: String,
    pub(crate) version: Version,
    pub(crate) client_id: String,
    username: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broker({} as {})", self.address, self.client_id)
    }
}

impl Broker {
    pub(crate) fn read(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> Result<Broker, OptionError> {
        let text = options.required("address", "localhost:1883")?;
        let text = text.strip_prefix("mqtt://").unwrap_or(text);
        let address = match text.rsplit_once(':') {
            // An IPv6 address contains colons itself.
            None => format!("{text}:{PORT}"),
            Some(_) if text.ends_with(']') => format!("{text}:{PORT}"),
            Some(_) => text.to_string(),
        };
        let port = address
            .rsplit_once(':')
            .map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(_))) if !host.is_empty() && !host.contains('/')) {
            return Err(OptionError::new(
                "address",
                format!("'{text}' is not a host and port"),
                "write 'host:port', as in 'localhost:1883' (MQTT over TCP, without TLS)",
            ));
        }
        let version = options.choice("protocol_version", &Version::NAMES, Version::V5)?;
        let random = RandomState::new().hash_one(std::process::id());
        let random = match version {
            // Brokers need not accept other or more characters than these 23.
            Version::V3_1_1 => format!("slackwater{:013x}", random >> 12),
            Version::V5 => format!("slackwater-{random:016x}"),
        };
        let client_id = options.text("client_id").map(str::to_string);
        let broker = Broker {
            table: table.name.clone(),
            address,
            version,
            client_id: client_id.unwrap_or(random),
            username: options.text("username").map(str::to_string),
            password: options.text("password").map(str::to_string),
        };
        if broker.password.is_some() && broker.username.is_none() {
            let hint = "add 'username'";
            return Err(OptionError::new(
                "password",
                "there is no 'username' for it",
                hint,
            ));
        }
        for name in ["client_id", "username", "password", "topic"] {
            check_text(name, options.text(name).unwrap_or("x"))?;
        }
        Ok(broker)
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }
}

/// The value is not shown: it may be a password.
fn check_text(name: &str, text: &str) -> Result<(), OptionError> {
    let reason = match text {
        "" => "is empty",
        text if text.len() > TEXT_BYTES_MAX => "has more than 65,535 bytes",
        text if text.contains('\0') => "has a NUL character, which MQTT does not allow",
        _ => return Ok(()),
    };
    Err(OptionError::new(name, reason, "write another one"))
}

/// How a sink's messages are delivered.
pub(crate) fn qos_of_sink(options: &Options<'_>, version: Version) -> Result<Qos, OptionError> {
    let qos = qos(options)?;
    // A sink's session would have to last longer than a connection and end with the query, and the broker
    // would have to say how many messages it takes at a time: Mosquitto acknowledges more, and drops them.
    if qos == Qos::ExactlyOnce && version == Version::V3_1_1 {
        let reason = "a sink can't keep that promise with MQTT 3.1.1, where a broker does not say how many \
                      messages it takes, and a session never ends";
        let hint = "write 'qos' = '1' (at least once), or 'protocol_version' = '5'";
        return Err(OptionError::new("qos", reason, hint));
    }
    Ok(qos)
}

fn qos(options: &Options<'_>) -> Result<Qos, OptionError> {
    let choices = [
        ("0", Qos::AtMostOnce),
        ("1", Qos::AtLeastOnce),
        ("2", Qos::ExactlyOnce),
    ];
    options.choice("qos", &choices, Qos::AtLeastOnce)
}

/// What a source subscribes to.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub(crate) filters: Vec<String>,
    pub(crate) qos: Qos,
    /// Whether the broker keeps messages that arrive while the source is not connected.
    pub(crate) is_persistent: bool,
    session_expiry_s: u32,
}

impl Subscription {
    pub(crate) fn read(
        options: &Options<'_>,
        version: Version,
    ) -> Result<Subscription, OptionError> {
        let text = options.required("topic", "sensors/+/temperature")?;
        let filters = text.split(';').map(|filter| filter.trim().to_string());
        let filters = filters.collect::<Vec<String>>();
        if filters.len() > FILTERS_MAX {
            let reason = format!("has more than {FILTERS_MAX} filters");
            return Err(OptionError::new(
                "topic",
                reason,
                "use '+' and '#', or more tables",
            ));
        }
        for (nth, filter) in filters.iter().enumerate() {
            check_filter(filter, version)?;
            if filters[..nth].contains(filter) {
                let reason = format!("'{filter}' is listed twice");
                return Err(OptionError::new("topic", reason, "leave one out"));
            }
        }
        let sessions = [("persistent", true), ("clean", false)];
        let is_named = options.text("client_id").is_some();
        let is_persistent = options.choice("session", &sessions, is_named)?;
        if is_persistent && !is_named {
            let reason = "the broker finds a persistent session by the client's name";
            let hint = "add 'client_id' = 'a name that no other client has'";
            return Err(OptionError::new("session", reason, hint));
        }
        if options.text("session_expiry").is_some() && version == Version::V3_1_1 {
            let reason =
                "MQTT 3.1.1 has no such time: the broker decides how long it keeps a session";
            let hint = "leave it out and set the broker's own (Mosquitto: persistent_client_expiration), or \
                        write 'protocol_version' = '5'";
            return Err(OptionError::new("session_expiry", reason, hint));
        }
        const DAY_NS: u64 = 86_400_000_000_000;
        let expiry_ns = options.duration_ns("session_expiry")?;
        if expiry_ns.is_some() && !is_persistent {
            let hint = "leave it out, or add 'session' = 'persistent' and 'client_id'";
            let reason = "a clean session ends with its connection";
            return Err(OptionError::new("session_expiry", reason, hint));
        }
        let expiry_s = expiry_ns.unwrap_or(DAY_NS).div_ceil(1_000_000_000);
        Ok(Subscription {
            filters,
            qos: qos(options)?,
            is_persistent,
            // A clean session is kept for a short time too, so that a broken connection loses nothing.
            session_expiry_s: match is_persistent {
                true => u32::try_from(expiry_s).unwrap_or(u32::MAX),
                false => SESSION_EXPIRY_S,
            },
        })
    }
}

impl Subscription {
    /// How a session starts, of a source that has had one before or not.
    pub(crate) fn start(&self, version: Version, was_there: bool) -> Start {
        Start {
            is_clean: match version {
                // A session that is not clean would stay at the broker for good, under a random name.
                Version::V3_1_1 => !self.is_persistent,
                Version::V5 => !self.is_persistent && !was_there,
            },
            expiry_s: self.session_expiry_s,
        }
    }
}

/// Rejects filters that are not valid (section 4.7).
fn check_filter(filter: &str, version: Version) -> Result<(), OptionError> {
    let wrong = |reason: &str| {
        let reason = format!("'{filter}' is not a valid topic filter: {reason}");
        let hint = "write levels with '/' between them; '+' stands for one level, '#' at the end for all \
            below";
        Err(OptionError::new("topic", reason, hint))
    };
    if filter.starts_with("$share/") && version == Version::V3_1_1 {
        // Some brokers share it all the same; others wait for messages to a topic of that name.
        let reason = format!("'{filter}': MQTT 3.1.1 has no shared subscriptions");
        let hint = "leave $share/…/ out, or write 'protocol_version' = '5'";
        return Err(OptionError::new("topic", reason, hint));
    }
    if filter.is_empty() {
        return wrong("it is empty");
    }
    let levels = filter.split('/').collect::<Vec<&str>>();
    for (nth, level) in levels.iter().enumerate() {
        if level.contains('#') && (*level != "#" || nth + 1 < levels.len()) {
            return wrong("'#' stands alone, and at the end");
        }
        if level.contains('+') && *level != "+" {
            return wrong("'+' stands for a whole level");
        }
    }
    Ok(())
}

/// Checks whether messages can be sent to that topic.
pub(crate) fn check_topic(topic: &str) -> Result<(), &'static str> {
    match topic {
        "" => Err("it is empty"),
        topic if topic.len() > TEXT_BYTES_MAX => Err("it has more than 65,535 bytes"),
        topic if topic.contains(['+', '#']) => Err("'+' and '#' are for subscriptions"),
        topic if topic.contains('\0') => Err("it has a NUL character"),
        _ => Ok(()),
    }
}
