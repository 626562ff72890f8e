//! Formats of the program's own: sentences of satellite receivers, NMEA 0183.
//! `docs/connectors/formats.md` explains the types.
//!
//! ```text
//! $GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47    format nmea: a fix, one row
//! $GPGSV,1,1,02,01,40,083,46,02,17,308,41*7D                format nmea_satellites: a row for each
//! ```

use std::str::FromStr;

use slackwater::functions::format::{Decoded, Format, FormatError, Table};
use slackwater::functions::operator::{Column, Row};
use slackwater::functions::{Functions, Time};

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .format("nmea", &["date", "talker"], Fixes::plan)
        .format("nmea_satellites", &[], satellites);
}

const DAY_US: i64 = 86_400_000_000;

/// Fixes, sentences GGA. They have the time of day; the option `date` says on which day. With `talker`, only
/// the sentences of this talker are read, or it is written.
#[derive(Clone)]
struct Fixes {
    talker: Option<String>,
    date: Date,
    at: Option<Column<Time>>,
    latitude: Column<f64>,
    longitude: Column<f64>,
    satellites: Option<Column<i32>>,
    altitude: Option<Column<f64>>,
}

impl Fixes {
    fn plan(table: &Table<'_>) -> Result<Format, FormatError> {
        let date = table.option::<Date>("date")?;
        let fixes = Fixes {
            talker: table.option("talker")?,
            date: date.unwrap_or_default(),
            at: table.optional("at")?,
            latitude: table.column("latitude")?,
            longitude: table.column("longitude")?,
            satellites: table.optional("satellites")?,
            altitude: table.optional("altitude")?,
        };
        if fixes.at.is_some() && date.is_none() && !table.is_written() {
            return Err(
                table.option_error("date", "is missing: sentences have the time of day only")
            );
        }
        if table.is_written() && date.is_some() {
            return Err(table.option_error("date", "is not written"));
        }
        let written = fixes.clone();
        Ok(Format::new()
            .decoder(move |record, out| fixes.decode(record, out))
            .encoder(move |row, record| written.encode(row, record)))
    }

    fn decode(&self, record: &[u8], out: &mut Decoded<'_>) -> Result<(), String> {
        let sentence = Sentence::read(record)?;
        let other = self.talker.as_ref();
        let is_other = other.is_some_and(|talker| talker != sentence.talker);
        // A quality of 0 is that of a receiver without a fix.
        if sentence.kind != "GGA" || is_other || sentence.number::<u8>(5, "quality")? == Some(0) {
            return Ok(());
        }
        let midnight = self.date.0 * DAY_US;
        let time = time_of_day(sentence.text(0))?;
        out.set(
            self.at,
            time.map(|us| Time {
                micros: midnight + us,
            }),
        );
        out.set(self.latitude, sentence.degrees(1, ("N", "S"))?);
        out.set(self.longitude, sentence.degrees(3, ("E", "W"))?);
        out.set(self.satellites, sentence.number::<i32>(6, "satellites")?);
        out.set(self.altitude, sentence.number::<f64>(8, "altitude")?);
        out.emit();
        Ok(())
    }

    fn encode(&self, row: &Row<'_>, record: &mut Vec<u8>) -> Result<(), String> {
        let (Some(latitude), Some(longitude)) = (row.get(self.latitude), row.get(self.longitude))
        else {
            return Err("the latitude or longitude is NULL".to_string());
        };
        let time = self.at.and_then(|at| row.get(at));
        let time = time.map_or(String::new(), |time| {
            let ms = time.micros.rem_euclid(DAY_US) / 1000;
            let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
            format!("{h:02}{m:02}{s:02}.{:03}", ms % 1000)
        });
        let satellites = self.satellites.and_then(|column| row.get(column));
        let satellites = satellites.map_or(String::new(), |number| format!("{number:02}"));
        let altitude = self.altitude.and_then(|column| row.get(column));
        let altitude = altitude.map_or(String::new(), |metres| format!("{metres:.1}"));
        let talker = self.talker.as_deref().unwrap_or("GP");
        let (latitude, north) = coordinate(latitude, 2, ("N", "S"));
        let (longitude, east) = coordinate(longitude, 3, ("E", "W"));
        let body = format!(
            "{talker}GGA,{time},{latitude},{north},{longitude},{east},1,{satellites},,{altitude},M,,M,,"
        );
        let checksum = body.bytes().fold(0, |sum, byte| sum ^ byte);
        record.extend_from_slice(format!("${body}*{checksum:02X}").as_bytes());
        Ok(())
    }
}

/// The satellites in view, sentences GSV: up to four in each.
fn satellites(table: &Table<'_>) -> Result<Format, FormatError> {
    let satellite = table.column::<i32>("satellite")?;
    let elevation = table.optional::<i32>("elevation")?;
    let azimuth = table.optional::<i32>("azimuth")?;
    let signal = table.optional::<i32>("signal")?;
    Ok(Format::new().decoder(move |record, out| {
        let sentence = Sentence::read(record)?;
        if sentence.kind != "GSV" {
            return Ok(());
        }
        for first in (3..sentence.fields.len().saturating_sub(3)).step_by(4) {
            out.set(satellite, sentence.number::<i32>(first, "satellite")?);
            out.set(elevation, sentence.number::<i32>(first + 1, "elevation")?);
            out.set(azimuth, sentence.number::<i32>(first + 2, "azimuth")?);
            out.set(signal, sentence.number::<i32>(first + 3, "signal")?);
            out.emit();
        }
        Ok(())
    }))
}

/// A sentence whose checksum is right.
struct Sentence<'r> {
    talker: &'r str,
    kind: &'r str,
    fields: Vec<&'r str>,
}

impl<'r> Sentence<'r> {
    fn read(record: &'r [u8]) -> Result<Sentence<'r>, String> {
        let text = std::str::from_utf8(record).map_err(|error| error.to_string())?;
        let body = text.strip_prefix('$').ok_or("a sentence begins with $")?;
        let (body, given) = body.rsplit_once('*').ok_or("the checksum is missing")?;
        let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
        if u8::from_str_radix(given.trim_end(), 16) != Ok(sum) {
            return Err(format!("the checksum is {given}, and should be {sum:02X}"));
        }
        let mut fields = body.split(',');
        let head = fields.next().unwrap_or_default();
        let (talker, kind) = head.split_at_checked(2).ok_or("there is no talker")?;
        Ok(Sentence {
            talker,
            kind,
            fields: fields.collect(),
        })
    }

    fn text(&self, field: usize) -> &'r str {
        self.fields.get(field).copied().unwrap_or_default()
    }

    /// A number; `None` if the field is empty.
    fn number<T: FromStr>(&self, field: usize, name: &str) -> Result<Option<T>, String> {
        match self.text(field) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("the {name} '{text}' is not a number")),
            },
        }
    }

    /// Degrees and minutes, `4807.038`, and the direction in the next field, as degrees.
    fn degrees(&self, field: usize, (plus, minus): (&str, &str)) -> Result<Option<f64>, String> {
        let Some(number) = self.number::<f64>(field, "coordinate")? else {
            return Ok(None);
        };
        let degrees = (number / 100.0).trunc();
        let degrees = degrees + (number - degrees * 100.0) / 60.0;
        match self.text(field + 1) {
            direction if direction == plus => Ok(Some(degrees)),
            direction if direction == minus => Ok(Some(-degrees)),
            direction => Err(format!(
                "the direction '{direction}' is not {plus} or {minus}"
            )),
        }
    }
}

/// Degrees as degrees and minutes, with the direction.
fn coordinate<'d>(
    degrees: f64,
    digits: usize,
    directions: (&'d str, &'d str),
) -> (String, &'d str) {
    let direction = if degrees < 0.0 {
        directions.1
    } else {
        directions.0
    };
    let minutes = (degrees.abs() * 60.0 * 10_000.0).round() as u64;
    let (whole, minutes) = (minutes / 600_000, minutes % 600_000);
    let (minutes, rest) = (minutes / 10_000, minutes % 10_000);
    (format!("{whole:0digits$}{minutes:02}.{rest:04}"), direction)
}

/// The microseconds of `hhmmss` or `hhmmss.sss` since midnight; `None` if it is empty.
fn time_of_day(text: &str) -> Result<Option<i64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let part = |from: usize| text.get(from..from + 2)?.parse::<i64>().ok();
    let seconds = text
        .get(4..)
        .and_then(|seconds| seconds.parse::<f64>().ok());
    match (part(0), part(2), seconds) {
        (Some(h @ 0..24), Some(m @ 0..60), Some(s)) if (0.0..61.0).contains(&s) => {
            Ok(Some((h * 60 + m) * 60_000_000 + (s * 1e6).round() as i64))
        }
        _ => Err(format!("the time '{text}' is not hhmmss")),
    }
}

/// A day, as days since 1970-01-01.
#[derive(Clone, Copy, Default)]
struct Date(i64);

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Date, String> {
        let numbers = text.split('-').map(str::parse::<i64>);
        match numbers.collect::<Result<Vec<i64>, _>>().as_deref() {
            Ok(&[year @ 1970..=9999, month @ 1..=12, day @ 1..=31]) => {
                // Years begin in March, so that the leap day is the last one.
                let (y, m) = if month > 2 {
                    (year, month - 3)
                } else {
                    (year - 1, month + 9)
                };
                let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
                Ok(Date(days - 719_468))
            }
            _ => Err("is not a date such as 2026-11-29".to_string()),
        }
    }
}
