//! What `slackwater sockets` hands over in the environment.

use std::sync::OnceLock;

use crate::report;

/// How a side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Spin,
    Sleep,
    Interrupt,
}

/// The options of this process.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) wait: Wait,
    /// How long to look again and again before any other wait.
    pub(crate) spin_ns: u64,
    /// The length of a timed sleep.
    pub(crate) sleep_ns: u64,
    /// The bytes of each direction, a power of two.
    pub(crate) lane_bytes: u64,
    pub(crate) verbose: bool,
    pub(crate) statistics: Option<String>,
}

/// With `--wait spin`: a wait that is longer than this ends in a sleep, so that an idle connection costs
/// nothing.
const SPIN_US: u64 = 10_000;
const SLEEP_US: u64 = 500;
const LANE_KIB: u64 = 512;
/// Limits of the same options of the command line.
const WAIT_US_MAX: u64 = 1_000_000;
const LANE_KIB_MAX: u64 = 64 * 1024;

impl Options {
    /// Reads the variables; a value that is not valid is reported, and its default is used.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str, least: u64, most: u64| {
            let text = variable(name)?;
            let number = text
                .parse::<u64>()
                .ok()
                .filter(|number| (least..=most).contains(number));
            if number.is_none() {
                report(&format!(
                    "{name}: '{text}' is not a number from {least} to {most}; its default is used\n  \
                     = start the program with: slackwater sockets"
                ));
            }
            number
        };
        let wait = match variable("SLACKWATER_SOCKETS_WAIT").as_deref() {
            Some("spin") => Wait::Spin,
            Some("sleep") => Wait::Sleep,
            Some("interrupt") | None => Wait::Interrupt,
            Some(other) => {
                report(&format!(
                    "SLACKWATER_SOCKETS_WAIT: '{other}' is not a way to wait; interrupt is used\n  \
                     = set it to spin, sleep or interrupt"
                ));
                Wait::Interrupt
            }
        };
        let spin_us = if wait == Wait::Spin { SPIN_US } else { 0 };
        let spin_us = number("SLACKWATER_SOCKETS_SPIN_US", 0, WAIT_US_MAX).unwrap_or(spin_us);
        let sleep_us = number("SLACKWATER_SOCKETS_SLEEP_US", 1, WAIT_US_MAX).unwrap_or(SLEEP_US);
        let lane_kib = number("SLACKWATER_SOCKETS_LANE_KIB", 4, LANE_KIB_MAX).unwrap_or(LANE_KIB);
        Self {
            wait,
            spin_ns: spin_us * 1000,
            sleep_ns: sleep_us * 1000,
            lane_bytes: (lane_kib * 1024).next_power_of_two(),
            verbose: variable("SLACKWATER_SOCKETS_VERBOSE").is_some(),
            statistics: variable("SLACKWATER_SOCKETS_STATISTICS"),
        }
    }
}

/// The options of this process, read once.
pub(crate) fn options() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(|| Options::read(|name| std::env::var(name).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Options {
        Options::read(|name| {
            let found = variables
                .iter()
                .find(|(variable, _)| name == format!("SLACKWATER_SOCKETS_{variable}"));
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn values_that_are_not_valid_leave_their_defaults() {
        let options = of(&[
            ("WAIT", "fast"),
            ("SPIN_US", "-1"),
            ("SLEEP_US", "0"),
            ("LANE_KIB", "1"),
        ]);
        assert_eq!((options.wait, options.spin_ns), (Wait::Interrupt, 0));
        assert_eq!(
            (options.sleep_ns, options.lane_bytes),
            (500_000, 512 * 1024)
        );
    }

    #[test]
    fn lanes_have_a_power_of_two_of_bytes() {
        let options = of(&[("WAIT", "spin"), ("LANE_KIB", "100")]);
        assert_eq!(
            (options.spin_ns, options.lane_bytes),
            (10_000_000, 128 * 1024)
        );
    }
}
