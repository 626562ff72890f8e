//! Quantities as people write them: `20 ms`, `1.0 GHz`, `0-3,8`.

use std::collections::BTreeSet;

use slackwater_control::power::Cpu;
use slackwater_control::topology::parse_list;

/// The longest duration that is accepted: a day.
const DURATION_MAX_NS: f64 = 86_400e9;

/// A duration in nanoseconds: a number and `ns`, `us`, `ms`, `s` or `min`.
pub fn duration_ns(text: &str) -> Result<u64, String> {
    let units = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
    ];
    let value = quantity(text, &units)
        .ok_or_else(|| format!("'{text}' is not a valid duration: write such as 20 ms or 2 s"))?;
    if value > DURATION_MAX_NS {
        return Err(format!("'{text}' is more than a day"));
    }
    Ok(value.round() as u64)
}

/// A frequency in kHz: a number and `kHz`, `MHz` or `GHz`.
pub fn frequency_khz(text: &str) -> Result<u32, String> {
    let units = [("khz", 1.0), ("mhz", 1e3), ("ghz", 1e6)];
    let value = quantity(&text.to_lowercase(), &units)
        .filter(|khz| *khz >= 1.0 && *khz <= f64::from(u32::MAX))
        .ok_or_else(|| {
            format!("'{text}' is not a valid frequency: write such as 1.0 GHz or 800 MHz")
        })?;
    Ok(value.round() as u32)
}

/// A number, spaces, and one of the units; the value in the smallest unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse::<f64>().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    Some(number * factor)
}

/// Cores in the kernel's format.
pub fn cpus(text: &str) -> Result<BTreeSet<Cpu>, String> {
    let numbers = parse_list(text)?;
    numbers
        .into_iter()
        .map(|cpu| Cpu::try_from(cpu).map_err(|_| format!("{cpu} is not a core")))
        .collect()
}

/// Cores as the kernel would write them.
pub fn cpus_text<'a>(cpus: impl IntoIterator<Item = &'a Cpu>) -> String {
    let mut ranges: Vec<(Cpu, Cpu)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(Cpu, Cpu)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let parts = ranges.iter().map(text).collect::<Vec<String>>();
    parts.join(",")
}

/// A duration, in the largest unit in which it is at least 1.
pub fn duration_text(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    match units.iter().find(|(size, _)| ns >= *size) {
        Some((size, unit)) if ns.is_multiple_of(*size) => format!("{} {unit}", ns / size),
        Some((size, unit)) => format!("{:.1} {unit}", ns as f64 / *size as f64),
        None => format!("{ns} ns"),
    }
}

/// A frequency in GHz.
pub fn frequency_text(khz: u32) -> String {
    format!("{:.2} GHz", f64::from(khz) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(duration_ns("20 ms"), Ok(20_000_000));
        assert_eq!(duration_ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(frequency_khz("1.0 GHz"), Ok(1_000_000));
        assert_eq!(frequency_khz("800mhz"), Ok(800_000));
        for text in [
            "",
            "20",
            "ms",
            "20 m s",
            "-1 ms",
            "1e3 ms",
            "1..2 ms",
            "NaN ms",
            "99999999999999 s",
        ] {
            assert!(duration_ns(text).is_err(), "{text}");
            assert!(frequency_khz(text).is_err(), "{text}");
        }
        assert!(frequency_khz("0 GHz").is_err());
        assert!(frequency_khz("99999 GHz").is_err());
    }

    #[test]
    fn cores_are_written_as_they_are_read() {
        let read = cpus("0-3,8,10-11").unwrap();
        assert_eq!(cpus_text(&read), "0-3,8,10-11");
        assert!(cpus("a").is_err());
        assert!(cpus("3-1").is_err());
    }

    #[test]
    fn durations_are_short() {
        let written = [7, 1_500, 20_000_000, 2_500_000_000].map(duration_text);
        assert_eq!(written, ["7 ns", "1.5 µs", "20 ms", "2.5 s"]);
    }
}
