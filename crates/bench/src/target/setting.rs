//! What is compared: the latency target as the only setting, fixed settings for waiting and collecting,
//! and a hand-written program.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How long the source collects in the setting that represents other engines, whose output buffers have a
/// time-out of 100 ms.
const LINGER_MS: u64 = 100;

/// One of the variants that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Setting {
    /// The engine, with the target as its only setting.
    Auto {
        /// The target.
        target_us: u64,
    },
    /// The engine polls.
    Poll,
    /// The engine is woken by each arrival, and does not collect.
    Interrupt,
    /// The engine polls for 50 µs, then waits to be woken; it does not collect.
    Spin,
    /// The engine sleeps at every hop, and does not collect.
    Sleep {
        /// The length of the sleep.
        delay_us: u64,
    },
    /// The engine is woken, and collects for 100 ms at the source.
    Linger,
    /// No engine: a hand-written program with blocking reads, a parser and a filter.
    Hand,
}

/// Settings as `--settings` names them; some of them stand for one setting per target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Setting::Auto`] of each target.
    Auto,
    /// [`Setting::Sleep`] of half of each target.
    Sleep,
    /// One setting, whatever the target.
    One(Setting),
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::Auto,
        Kind::One(Setting::Poll),
        Kind::One(Setting::Interrupt),
        Kind::One(Setting::Spin),
        Kind::Sleep,
        Kind::One(Setting::Linger),
        Kind::One(Setting::Hand),
    ];

    fn name(self) -> String {
        match self {
            Kind::Auto => "auto".to_string(),
            Kind::Sleep => "sleep".to_string(),
            Kind::One(setting) => setting.to_string(),
        }
    }

    /// The settings that this kind stands for.
    pub fn settings(self, targets_us: &[u64]) -> Vec<Setting> {
        let targets = targets_us.iter();
        match self {
            Kind::One(setting) => vec![setting],
            Kind::Auto => targets
                .map(|&target_us| Setting::Auto { target_us })
                .collect(),
            Kind::Sleep => targets.map(|&target| Setting::sleep_for(target)).collect(),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let named = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name);
            format!("the settings are {}", names.join(", "))
        })
    }
}

impl Setting {
    /// The sleep for a target: half of it, which leaves the other half for a second hop or for work.
    pub fn sleep_for(target_us: u64) -> Setting {
        Setting::Sleep {
            delay_us: (target_us / 2).max(1),
        }
    }

    /// Whether the user chose how to wait; the latency target is compared with these.
    pub fn is_fixed(self) -> bool {
        !matches!(self, Setting::Auto { .. } | Setting::Hand)
    }

    /// Whether it can meet a target other than by luck: a window closes once a second, and a sleep that
    /// is longer than the target may happen to end in time for a few of them.
    pub fn can_meet(self, target_us: u64) -> bool {
        match self {
            Setting::Sleep { delay_us } => delay_us <= target_us,
            Setting::Linger => LINGER_MS * 1_000 <= target_us,
            _ => true,
        }
    }

    /// The arguments of `slackwater run --set`.
    pub fn settings(self) -> Vec<String> {
        let fixed = |wait: &str, linger: &str| vec![format!("wait={wait}"), linger.to_string()];
        let no_linger = "linger=0 ms";
        match self {
            Setting::Auto { target_us } => vec![format!("latency_target={target_us} us")],
            Setting::Poll => fixed("poll", no_linger),
            Setting::Interrupt => fixed("interrupt", no_linger),
            Setting::Spin => fixed("spin:50us", no_linger),
            Setting::Sleep { delay_us } => fixed(&format!("sleep:{delay_us}us"), no_linger),
            Setting::Linger => fixed("interrupt", &format!("linger={LINGER_MS} ms")),
            Setting::Hand => Vec::new(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Auto { target_us } => write!(formatter, "auto:{}", duration(*target_us)),
            Setting::Poll => formatter.write_str("poll"),
            Setting::Interrupt => formatter.write_str("interrupt"),
            Setting::Spin => formatter.write_str("spin"),
            Setting::Sleep { delay_us } => write!(formatter, "sleep:{}", duration(*delay_us)),
            Setting::Linger => formatter.write_str("linger"),
            Setting::Hand => formatter.write_str("hand"),
        }
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (name, time) = text.split_once(':').unwrap_or((text, ""));
        match (name, parse_duration(time)) {
            ("auto", Some(target_us)) => Ok(Setting::Auto { target_us }),
            ("sleep", Some(delay_us)) => Ok(Setting::Sleep { delay_us }),
            _ => match text.parse()? {
                Kind::One(setting) => Ok(setting),
                _ => Err(format!("'{text}' needs a time, such as '{text}:10ms'")),
            },
        }
    }
}

impl TryFrom<String> for Setting {
    type Error = String;

    fn try_from(text: String) -> Result<Setting, String> {
        text.parse()
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> String {
        setting.to_string()
    }
}

/// Formats whole milliseconds as such, other times in microseconds.
pub fn duration(us: u64) -> String {
    match us.is_multiple_of(1_000) {
        true => format!("{}ms", us / 1_000),
        false => format!("{us}us"),
    }
}

fn parse_duration(text: &str) -> Option<u64> {
    let ns = slackwater_engine::time::parse_duration_ns(text)?;
    (ns >= 1_000).then_some(ns / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_as_they_are_written() {
        let settings = ["auto:20ms", "sleep:2500us", "poll", "linger", "hand"];
        for text in settings {
            assert_eq!(text.parse::<Setting>().unwrap().to_string(), text);
        }
        for text in ["auto", "sleep:", "nap", "poll:1ms", ""] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
        let json = serde_json::to_string(&Setting::Spin).unwrap();
        assert_eq!(json, "\"spin\"");
        assert_eq!(
            serde_json::from_str::<Setting>(&json).unwrap(),
            Setting::Spin
        );
    }

    #[test]
    fn auto_and_sleep_stand_for_one_setting_per_target() {
        let kinds = Kind::ALL
            .iter()
            .flat_map(|kind| kind.settings(&[1_000, 20_000]));
        let settings = kinds.map(|setting| setting.to_string()).collect::<Vec<_>>();
        let expected = [
            "auto:1ms",
            "auto:20ms",
            "poll",
            "interrupt",
            "spin",
            "sleep:500us",
            "sleep:10ms",
            "linger",
            "hand",
        ];
        assert_eq!(settings, expected);
        assert!("slep".parse::<Kind>().unwrap_err().contains("interrupt"));
    }

    #[test]
    fn a_sleep_longer_than_the_target_can_not_meet_it() {
        let can =
            |setting: &str, target_us| setting.parse::<Setting>().unwrap().can_meet(target_us);
        assert!(can("sleep:10ms", 20_000) && can("sleep:500us", 100_000));
        assert!(!can("sleep:10ms", 5_000) && !can("linger", 20_000));
        assert!(can("linger", 100_000) && can("poll", 1));
    }

    #[test]
    fn the_engine_accepts_the_settings() {
        use slackwater_sql::settings::Settings;
        for kind in Kind::ALL {
            for setting in kind.settings(&[1_000, 5_000]) {
                let mut settings = Settings::default();
                for told in setting.settings() {
                    let (key, value) = told.split_once('=').unwrap();
                    settings.set(key, value, &[]).unwrap();
                }
                assert!(settings.check().is_ok());
            }
        }
    }
}
