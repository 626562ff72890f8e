//! Values of parameters, from the formats of the protocol to the text that a session takes.

use std::fmt::Write as _;

use crate::backend::Parameter;

use super::civil::{self, Interval};
use super::message::Report;
use super::numeric;
use super::types::{element_of, oid};

const DAYS_TO_2000: i64 = 10_957;
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// The value of a parameter with this type, in text (0) or binary (1).
///
/// # Errors
///
/// If it is not a value of the type.
pub fn read(value: Option<&[u8]>, format: i16, kind: u32) -> Result<Parameter, Report> {
    let Some(bytes) = value else {
        return Ok(None);
    };
    let text = match format {
        0 => std::str::from_utf8(bytes)
            .ok()
            .map(|text| from_text(text, kind)),
        1 => from_binary(bytes, kind),
        _ => {
            return Err(Report::error(
                "08P01",
                format!("there is no format {format}"),
            ));
        }
    };
    let invalid = || {
        let name = super::types::sql_name(kind, -1);
        Report::error("22P03", format!("a parameter is not a valid {name}"))
    };
    text.map(Some).ok_or_else(invalid)
}

/// PostgreSQL's short forms as the words of SQL.
fn from_text(text: &str, kind: u32) -> String {
    match kind {
        oid::BOOL => match text.to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "y" | "yes" => "true".to_owned(),
            "f" | "false" | "0" | "off" | "n" | "no" => "false".to_owned(),
            _ => text.to_owned(),
        },
        oid::TIMESTAMPTZ => in_utc(text).unwrap_or_else(|| text.to_owned()),
        _ => text.to_owned(),
    }
}

/// A time with an offset as the same time in UTC, without one; `None` if it has none.
fn in_utc(text: &str) -> Option<String> {
    if let Some(text) = text.strip_suffix(['Z', 'z']) {
        return Some(text.replace('T', " "));
    }
    // Beyond the date, which has signs of its own.
    let sign = text.rfind(['+', '-']).filter(|at| *at > 10)?;
    let (time, offset) = text.split_at(sign);
    let mut parts = offset[1..].split(':').map(|part| part.parse::<u16>().ok());
    let mut part = || parts.next().unwrap_or(Some(0)).map(i64::from);
    let seconds = part()? * 3_600 + part()? * 60 + part()?;
    let seconds = if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    if seconds == 0 {
        return Some(time.trim_end().replace('T', " "));
    }
    let (date, clock) = time.split_at_checked(10)?;
    let days = civil::days(date)?;
    let mut clock = clock
        .trim_start_matches(['T', ' '])
        .trim_end()
        .splitn(3, ':');
    let mut number = || {
        clock
            .next()
            .map_or(Some(0.0), |part| part.parse::<f64>().ok())
            .filter(|part| (0.0..=60.0).contains(part))
    };
    let of_day = number()? * 3_600.0 + number()? * 60.0 + number()?;
    let micros = (of_day * 1e6).round() as i64 - seconds * 1_000_000;
    let mut out = String::new();
    civil::write_timestamp(days * MICROS_OF_DAY + micros, false, &mut out);
    Some(out)
}

fn from_binary(bytes: &[u8], kind: u32) -> Option<String> {
    let mut out = String::new();
    match kind {
        oid::BOOL => out.push_str(if *bytes.first()? == 0 {
            "false"
        } else {
            "true"
        }),
        oid::INT2 | oid::INT4 | oid::INT8 => write!(out, "{}", integer(bytes)?).ok()?,
        oid::OID => write!(out, "{}", u32::from_be_bytes(bytes.try_into().ok()?)).ok()?,
        oid::FLOAT4 => write!(out, "{:?}", f32::from_be_bytes(bytes.try_into().ok()?)).ok()?,
        oid::FLOAT8 => write!(out, "{:?}", f64::from_be_bytes(bytes.try_into().ok()?)).ok()?,
        oid::NUMERIC => out = numeric::from_binary(bytes)?,
        oid::DATE => {
            let days = i32::from_be_bytes(bytes.try_into().ok()?);
            civil::write_date(i64::from(days) + DAYS_TO_2000, &mut out);
        }
        oid::TIME => civil::write_time(integer(bytes)?, &mut out),
        oid::TIMESTAMP | oid::TIMESTAMPTZ => {
            let micros = integer(bytes)?.checked_add(DAYS_TO_2000 * MICROS_OF_DAY)?;
            civil::write_timestamp(micros, false, &mut out);
        }
        oid::INTERVAL => {
            let (micros, rest) = bytes.split_at_checked(8)?;
            let (days, months) = rest.split_at_checked(4)?;
            let small = |bytes: &[u8]| Some(i32::from_be_bytes(bytes.try_into().ok()?));
            Interval::new(small(months)?, small(days)?, integer(micros)?).write(&mut out);
        }
        oid::BYTEA => {
            out.push_str("\\x");
            for byte in bytes {
                write!(out, "{byte:02x}").ok()?;
            }
        }
        oid::UUID => {
            for (at, byte) in <[u8; 16]>::try_from(bytes).ok()?.iter().enumerate() {
                out.push_str(if matches!(at, 4 | 6 | 8 | 10) {
                    "-"
                } else {
                    ""
                });
                write!(out, "{byte:02x}").ok()?;
            }
        }
        oid::JSONB => out.push_str(std::str::from_utf8(bytes.strip_prefix(&[1])?).ok()?),
        _ => match element_of(kind) {
            Some(element) => array(bytes, element.oid, &mut out)?,
            None => out.push_str(std::str::from_utf8(bytes).ok()?),
        },
    }
    Some(out)
}

fn integer(bytes: &[u8]) -> Option<i64> {
    Some(match bytes.len() {
        2 => i64::from(i16::from_be_bytes(bytes.try_into().ok()?)),
        4 => i64::from(i32::from_be_bytes(bytes.try_into().ok()?)),
        8 => i64::from_be_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// An array of one dimension, as `{1,NULL,"a"}`.
fn array(bytes: &[u8], element: u32, out: &mut String) -> Option<()> {
    let mut rest = bytes;
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(taken)
    };
    let dimensions = integer(take(4)?)?;
    take(8)?;
    out.push('{');
    if dimensions > 1 {
        return None;
    }
    let count = if dimensions == 1 {
        integer(take(4)?)?
    } else {
        0
    };
    if dimensions == 1 {
        take(4)?;
    }
    for at in 0..count {
        out.push_str(if at > 0 { "," } else { "" });
        match integer(take(4)?)? {
            -1 => out.push_str("NULL"),
            length => {
                let text = from_binary(take(usize::try_from(length).ok()?)?, element)?;
                let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
                write!(out, "\"{escaped}\"").ok()?;
            }
        }
    }
    out.push('}');
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str, kind: u32) -> String {
        read(Some(value.as_bytes()), 0, kind).unwrap().unwrap()
    }

    fn binary(value: &[u8], kind: u32) -> String {
        read(Some(value), 1, kind).unwrap().unwrap()
    }

    #[test]
    fn strings_become_those_of_sql() {
        assert_eq!(text("t", oid::BOOL), "true");
        assert_eq!(text("t", oid::TEXT), "t");
        let time = |value| text(value, oid::TIMESTAMPTZ);
        assert_eq!(time("2024-02-29 12:00:00.5+02:00"), "2024-02-29 10:00:00.5");
        assert_eq!(time("2024-01-01T00:30:00-05"), "2024-01-01 05:30:00");
        assert_eq!(time("2024-01-01T00:30:00Z"), "2024-01-01 00:30:00");
        assert_eq!(time("2024-01-01"), "2024-01-01");
    }

    #[test]
    fn binary_values_become_text() {
        assert_eq!(binary(&7_i16.to_be_bytes(), oid::INT2), "7");
        assert_eq!(binary(&1.5_f64.to_be_bytes(), oid::FLOAT8), "1.5");
        assert_eq!(binary(&0_i32.to_be_bytes(), oid::DATE), "2000-01-01");
        assert_eq!(
            binary(&(-1_i64).to_be_bytes(), oid::TIMESTAMP),
            "1999-12-31 23:59:59.999999"
        );
        let list = [1, 0, 23, 2, 1, 4, 7, -1].map(i32::to_be_bytes).concat();
        assert_eq!(binary(&list, 1007), "{\"7\",NULL}");
        assert_eq!(
            read(Some(&[1, 2, 3]), 1, oid::INT4).unwrap_err().code,
            "22P03"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..48),
                                         at in 0..super::super::types::TYPES.len()) {
            let kind = &super::super::types::TYPES[at];
            let _ = read(Some(&bytes), 1, kind.oid);
            let _ = read(Some(&bytes), 1, kind.array);
            let _ = read(Some(&bytes), 0, kind.oid);
        }

        #[test]
        fn any_time_is_read_or_left(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.e+-]{0,12}[+-][0-9:]{1,9}") {
            let _ = read(Some(text.as_bytes()), 0, oid::TIMESTAMPTZ);
        }
    }
}
