//! Why a connection has ended, and what a broker's reason codes mean.

use slackwater_engine::error::Error;

use super::settings::Broker;

/// Why a connection has ended.
pub(super) enum End {
    Stopped,
    /// The connection may come back.
    Away(String),
    Failed(Error),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        End::Away(error.to_string())
    }
}

/// How errors name the broker.
pub(crate) fn place(broker: &Broker) -> String {
    format!("table '{}': mqtt broker {}", broker.table, broker.address)
}

pub(super) fn failed(broker: &Broker, reason: &str) -> Error {
    Error::new(place(broker), reason)
}

/// What answers does not speak the protocol.
pub(super) fn not_mqtt(broker: &Broker, reason: &str) -> End {
    let version = broker.version.name();
    let error = failed(broker, &format!("does not speak MQTT {version}: {reason}"));
    End::Failed(error.hint("name a broker's port in 'address' (without TLS: 1883)"))
}

/// What a broker's rejection of a connection means. Some are temporary.
pub(super) fn refused(broker: &Broker, code: u8) -> End {
    let user = match broker.username() {
        Some(_) => "check 'username' and 'password'",
        None => "add 'username' and 'password'",
    };
    let does_not_speak = format!("does not speak MQTT {}", broker.version.name());
    let other = format!(
        "write 'protocol_version' = '{}'",
        broker.version.other().name()
    );
    let (reason, hint) = match code {
        // Versions 3.1.1 and 5 have different codes.
        0x01 | 0x84 => (does_not_speak.as_str(), other.as_str()),
        0x02 | 0x85 => ("rejects the client's name", "write another 'client_id'"),
        0x04 | 0x86 => ("rejects the user or the password", user),
        0x05 | 0x87 => ("does not let the client in", user),
        0x8a => ("has banned the client", "ask who runs it"),
        0x03 | 0x88 | 0x89 | 0x97 | 0x9f => {
            return End::Away(format!("it is busy (code {code:#04x})"));
        }
        _ => ("rejects the connection", "look into its log"),
    };
    let error = failed(broker, &format!("{reason} (code {code:#04x})"));
    End::Failed(error.hint(hint).final_one())
}

/// The broker closes a connection and gives a reason.
pub(super) fn dismissed(broker: &Broker, code: u8) -> End {
    let id = &broker.client_id;
    let (reason, hint) = match code {
        0x8e => (
            format!("has let another client in with the name '{id}'"),
            "give each table and query a 'client_id' of its own",
        ),
        0x87 => (
            "does not let the client go on".into(),
            "check 'username' and 'password'",
        ),
        0x95 => (
            "has got a message that is too large".into(),
            "write smaller rows, or raise its limit",
        ),
        0x82 | 0x81 => ("finds what was sent wrong".into(), "look into its log"),
        _ => return End::Away(format!("it ends the connection (code {code:#04x})")),
    };
    let error = failed(broker, &format!("{reason} (code {code:#04x})"));
    End::Failed(error.hint(hint))
}
