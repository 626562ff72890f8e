//! The values of settings: choices, numbers, durations and sizes. `None` stands for a value that is not
//! valid.

use slackwater_engine::time::parse_duration_ns;

/// The choice with a name.
pub fn chosen<T: Copy>(value: &str, choices: &[(&str, T)]) -> Option<T> {
    let choice = choices.iter().find(|(name, _)| *name == value.trim());
    choice.map(|(_, chosen)| *chosen)
}

/// A number from 1 to `max`.
pub fn number(value: &str, max: usize) -> Option<usize> {
    let number = value.trim().parse().ok();
    number.filter(|number| (1..=max).contains(number))
}

/// `'none'`, or a value.
pub fn unless_none<T>(value: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    match value.trim() {
        "none" => Some(None),
        value => read(value).map(Some),
    }
}

/// A duration above zero.
pub fn positive_ns(value: &str) -> Option<u64> {
    parse_duration_ns(value).filter(|ns| *ns > 0)
}

/// A latency target, or `'none'`.
pub fn latency_target(value: &str) -> Option<Option<u64>> {
    unless_none(value, positive_ns)
}

/// A duration of at least a millisecond, the resolution of event time in most tables.
pub fn state_ttl_us(text: &str) -> Option<i64> {
    let us = parse_duration_ns(text)? / 1_000;
    i64::try_from(us).ok().filter(|&us| us >= 1_000)
}

/// A size such as `512 MiB`, `2GB` or `65536`, in bytes; above zero.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * unit;
    // Far below the numbers at which a double can't count single bytes.
    (1.0..1e15).contains(&bytes).then_some(bytes as u64)
}
