//! The settings of a client: those of PostgreSQL that drivers set and ask for. Settings of queries belong to
//! the session, which gets every other name.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::Report;

/// The version that clients adapt to, and its number.
pub const VERSION: &str = "15.0";
pub const VERSION_NUMBER: &str = "150000";

/// A setting: its name as PostgreSQL shows it, its value at the beginning, and whether clients are told of
/// it.
struct Known {
    name: &'static str,
    value: &'static str,
    reported: bool,
}

const fn known(name: &'static str, value: &'static str, reported: bool) -> Known {
    Known {
        name,
        value,
        reported,
    }
}

const KNOWN: [Known; 34] = [
    known("application_name", "", true),
    known("bytea_output", "hex", false),
    known("client_encoding", "UTF8", true),
    known("client_min_messages", "notice", false),
    known("DateStyle", "ISO, MDY", true),
    known("default_transaction_isolation", "read committed", false),
    known("default_transaction_read_only", "off", true),
    known("extra_float_digits", "1", false),
    known("geqo", "on", false),
    known("idle_in_transaction_session_timeout", "0", false),
    known("in_hot_standby", "off", true),
    known("integer_datetimes", "on", true),
    known("IntervalStyle", "postgres", true),
    known("is_superuser", "off", true),
    known("jit", "off", false),
    known("lock_timeout", "0", false),
    known("max_identifier_length", "63", false),
    known("max_index_keys", "32", false),
    known("quote_all_identifiers", "off", false),
    known("row_security", "on", false),
    known("search_path", "\"$user\", public", false),
    known("server_encoding", "UTF8", true),
    known("server_version", VERSION, true),
    known("server_version_num", VERSION_NUMBER, false),
    known("session_authorization", "", true),
    known("standard_conforming_strings", "on", true),
    known("statement_timeout", "0", false),
    known("synchronize_seqscans", "on", false),
    known("synchronous_commit", "on", false),
    known("TimeZone", "UTC", true),
    known("transaction_isolation", "read committed", false),
    known("transaction_read_only", "off", false),
    known("wal_level", "replica", false),
    known("work_mem", "4MB", false),
];

/// Those that nobody can change.
const FIXED: [&str; 9] = [
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "max_identifier_length",
    "max_index_keys",
    "server_encoding",
    "server_version",
    "server_version_num",
    "session_authorization",
];

/// The longest value of a setting.
const VALUE_MAX: usize = 8_192;

/// The settings of a connection.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The values by the names in small letters.
    values: BTreeMap<String, String>,
    /// The values that the connection began with, which RESET returns to.
    initial: BTreeMap<String, String>,
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(name))
}

/// Whether a name is one of the settings of clients.
pub fn is_known(name: &str) -> bool {
    find(name).is_some()
}

impl Settings {
    /// The settings at the beginning, for this user.
    pub fn new(user: &str) -> Settings {
        let mut values: BTreeMap<String, String> = KNOWN
            .iter()
            .map(|known| (known.name.to_lowercase(), known.value.to_owned()))
            .collect();
        values.insert("session_authorization".to_owned(), user.to_owned());
        Settings {
            initial: values.clone(),
            values,
        }
    }

    /// The value of a setting, whatever letters its name has.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(&name.to_lowercase()).map(String::as_str)
    }

    /// The names and values that clients are told at the beginning.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let told = KNOWN.iter().filter(|known| known.reported);
        told.map(|known| (known.name, self.get(known.name).unwrap_or_default()))
    }

    /// All names and values.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        KNOWN
            .iter()
            .map(|known| (known.name, self.get(known.name).unwrap_or_default()))
    }

    /// Changes a setting; `None` resets it. Returns its name and value if the client has to be told.
    ///
    /// # Errors
    ///
    /// If there is no such setting, it cannot be changed, or the value is not valid.
    pub fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
    ) -> Result<Option<(&'static str, String)>, Report> {
        let Some(known) = find(name) else {
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(Report::error("42704", message));
        };
        let key = known.name.to_lowercase();
        if FIXED.contains(&key.as_str()) {
            let message = format!("parameter \"{}\" cannot be changed", known.name);
            return Err(Report::error("55P02", message));
        }
        let initial = || self.initial.get(&key).cloned().unwrap_or_default();
        let value = match value {
            Some(value) => checked(known.name, value)?,
            None => initial(),
        };
        self.values.insert(key, value.clone());
        Ok(known.reported.then_some((known.name, value)))
    }

    /// Takes today's values as those of the beginning.
    pub fn begin(&mut self) {
        self.initial = self.values.clone();
    }

    /// Returns every setting to the beginning, and says which of them the client has to be told.
    pub fn reset(&mut self) -> Vec<(&'static str, String)> {
        let before = std::mem::replace(&mut self.values, self.initial.clone());
        let told = KNOWN.iter().filter(|known| known.reported);
        told.filter(|known| {
            before.get(&known.name.to_lowercase()).map(String::as_str) != self.get(known.name)
        })
        .map(|known| {
            (
                known.name,
                self.get(known.name).unwrap_or_default().to_owned(),
            )
        })
        .collect()
    }

    /// How long a statement may take; `None` for as long as it takes.
    pub fn statement_time_max(&self) -> Option<Duration> {
        let limit = self.get("statement_timeout").and_then(milliseconds)?;
        (limit > 0).then(|| Duration::from_millis(limit))
    }
}

/// A value of a setting as it is kept.
fn checked(name: &'static str, value: &str) -> Result<String, Report> {
    let invalid = |hint: &str| Report {
        hint: Some(hint.to_owned()),
        ..Report::error(
            "22023",
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
    };
    if value.len() > VALUE_MAX {
        return Err(Report::error(
            "22023",
            format!("the value of \"{name}\" is too long"),
        ));
    }
    match name {
        "client_encoding" => {
            let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
            match plain.to_lowercase().as_str() {
                "utf8" | "unicode" => Ok("UTF8".to_owned()),
                _ => Err(invalid("strings are UTF8: use client_encoding = 'UTF8'")),
            }
        }
        "DateStyle" => {
            let mut parts = value.split(',').map(|part| part.trim().to_uppercase());
            match parts
                .all(|part| ["ISO", "MDY", "DMY", "YMD", "US", "EURO"].contains(&part.as_str()))
            {
                // Of the orders only the one that is shown matters, and ISO has none.
                true => Ok("ISO, MDY".to_owned()),
                false => Err(invalid(
                    "dates are shown as ISO: use DateStyle = 'ISO, MDY'",
                )),
            }
        }
        "IntervalStyle" if !value.eq_ignore_ascii_case("postgres") => {
            Err(invalid("intervals are shown in the style 'postgres'"))
        }
        "bytea_output" if !value.eq_ignore_ascii_case("hex") => Err(invalid("use 'hex'")),
        "standard_conforming_strings"
            if !["on", "true", "1", "yes"].contains(&value.to_lowercase().as_str()) =>
        {
            Err(invalid("a backslash has no meaning in strings: use 'on'"))
        }
        "statement_timeout" => match milliseconds(value) {
            Some(limit) => Ok(limit.to_string()),
            None => Err(invalid(
                "use milliseconds, or a number with ms, s, min or h",
            )),
        },
        _ => Ok(value.to_owned()),
    }
}

/// `2500`, `2500ms`, `2.5 s`, `1 min`, `1h` in milliseconds.
fn milliseconds(value: &str) -> Option<u64> {
    let value = value.trim();
    let end = value.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, unit) = value.split_at(end.unwrap_or(value.len()));
    let factor = match unit.trim() {
        "" | "ms" => 1.0,
        "s" => 1e3,
        "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        _ => return None,
    };
    let limit = number.parse::<f64>().ok()? * factor;
    // 24 days, as in PostgreSQL.
    (limit <= f64::from(i32::MAX)).then_some(limit as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let mut settings = Settings::new("ada");
        assert_eq!(settings.get("TIMEZONE"), Some("UTC"));
        assert_eq!(settings.get("session_authorization"), Some("ada"));
        let told = settings.set("client_encoding", Some("utf-8")).unwrap();
        assert_eq!(told, Some(("client_encoding", "UTF8".to_owned())));
        assert_eq!(
            settings
                .set("client_encoding", Some("LATIN1"))
                .unwrap_err()
                .code,
            "22023"
        );
        assert_eq!(
            settings.set("datestyle", Some("German")).unwrap_err().code,
            "22023"
        );
        assert_eq!(
            settings.set("server_version", Some("9")).unwrap_err().code,
            "55P02"
        );
        assert_eq!(
            settings.set("nothing", Some("9")).unwrap_err().code,
            "42704"
        );
    }

    #[test]
    fn a_timeout_has_units() {
        let mut settings = Settings::new("ada");
        assert_eq!(settings.statement_time_max(), None);
        settings.set("statement_timeout", Some("1.5 s")).unwrap();
        assert_eq!(
            settings.statement_time_max(),
            Some(Duration::from_millis(1_500))
        );
        assert!(
            settings
                .set("statement_timeout", Some("99999999d"))
                .is_err()
        );
        settings.begin();
        settings.set("statement_timeout", Some("1")).unwrap();
        settings.set("application_name", Some("x")).unwrap();
        assert_eq!(settings.reset(), [("application_name", String::new())]);
        assert_eq!(
            settings.statement_time_max(),
            Some(Duration::from_millis(1_500))
        );
    }
}
