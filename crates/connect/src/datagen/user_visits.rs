//! The user visits of HiBench's streaming benchmarks: who saw which page when, about 200 bytes a
//! row as CSV.
//!
//! Every string is one of a table made at the start, so a row's strings are views into it and a
//! row costs some tens of nanoseconds. User agents have no commas, as HiBench's consumers split
//! records at them.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::types::{Date32Type, Float64Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, PrimitiveArray, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Schema, TimeUnit};

use super::{Times, mix, unknown_column, wrong_type};
use crate::options::OptionError;
use crate::time;

const NAMES: &[&str] = &[
    "ts_ms",
    "page_id",
    "ip",
    "url",
    "visit_date",
    "ad_revenue",
    "user_agent",
    "country",
    "language",
    "search_word",
    "duration",
];

/// The number of pages; a visit's `page_id` is the number of its `url`.
const PAGES: u64 = 4_096;

/// First and number of days of `visit_date`: 2000-01-01 and twenty years.
const FIRST_DAY: i64 = 10_957;
const DAYS: u64 = 7_305;

const AGENTS: &[&str] = &[
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Firefox/115.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:127.0) Firefox/127.0",
    "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.1; Trident/6.0)",
    "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.0; Trident/4.0)",
    "Opera/9.80 (X11; Linux i686; Ubuntu/14.10) Presto/2.12.388 Version/12.16",
    "Opera/9.80 (Macintosh; Intel Mac OS X 10.14.1) Presto/2.12.388 Version/12.16",
    "Mozilla/5.0 (compatible; archive crawler; +http://crawler.example.org/about)",
    "Lynx/2.8.9rel.1 libwww-FM/2.14 SSL-MM/1.4.1 GNUTLS/3.6.12",
    "curl/8.5.0 (x86_64-pc-linux-gnu) libcurl/8.5.0 OpenSSL/3.0.13",
    "Links (2.29; Linux 6.8.0 x86_64; GNU C 13.2; text)",
    "Wget/1.21.4 (linux-gnu)",
];

const COUNTRIES: &[(&str, &str)] = &[
    ("USA", "en-US"),
    ("GBR", "en-GB"),
    ("DEU", "de-DE"),
    ("FRA", "fr-FR"),
    ("ESP", "es-ES"),
    ("ITA", "it-IT"),
    ("NLD", "nl-NL"),
    ("SWE", "sv-SE"),
    ("POL", "pl-PL"),
    ("BRA", "pt-BR"),
    ("JPN", "ja-JP"),
    ("KOR", "ko-KR"),
    ("IND", "hi-IN"),
    ("CHE", "de-CH"),
    ("CAN", "fr-CA"),
    ("GRC", "el-GR"),
];

const WORDS: &[&str] = &[
    "tide",
    "harbour",
    "slack",
    "ebb",
    "flood",
    "current",
    "estuary",
    "lighthouse",
    "anchor",
    "mooring",
    "shoal",
    "sandbank",
    "breakwater",
    "pilot",
    "sounding",
    "chart",
    "buoy",
    "fathom",
    "neap",
    "spring",
    "lagoon",
    "strait",
    "channel",
    "jetty",
    "quay",
    "dredger",
    "ferry",
    "wharf",
];

/// Rejects columns that the generator doesn't have.
pub(super) fn check(schema: &Schema) -> Result<(), OptionError> {
    for field in schema.fields() {
        let name = field.name().to_ascii_lowercase();
        let data_type = field.data_type();
        let is_millis = data_type == &DataType::Timestamp(TimeUnit::Millisecond, None);
        let (fits, wanted) = match name.as_str() {
            "ts_ms" => (
                data_type == &DataType::Int64 || is_millis,
                "BIGINT or TIMESTAMP(3)",
            ),
            "page_id" => (data_type == &DataType::Int64, "BIGINT"),
            "visit_date" => (
                matches!(data_type, DataType::Utf8View | DataType::Date32),
                "STRING or DATE",
            ),
            "ad_revenue" => (data_type == &DataType::Float64, "DOUBLE"),
            "duration" => (data_type == &DataType::Int32, "INT"),
            known if NAMES.contains(&known) => (data_type == &DataType::Utf8View, "STRING"),
            _ => return Err(unknown_column("uservisits", field.name(), NAMES)),
        };
        if !fits {
            return Err(wrong_type("uservisits", field, wanted));
        }
    }
    Ok(())
}

/// A table of strings and the views of each.
#[derive(Debug)]
struct Strings {
    views: Vec<u128>,
    text: Buffer,
}

impl Strings {
    fn new(strings: impl Iterator<Item = String>) -> Strings {
        let mut text = Vec::new();
        let mut views = vec![];
        for string in strings {
            views.push(make_view(string.as_bytes(), 0, text.len() as u32));
            text.extend_from_slice(string.as_bytes());
        }
        Strings {
            views,
            text: Buffer::from(text),
        }
    }

    fn array(&self, picks: impl Iterator<Item = u64>) -> ArrayRef {
        let views = picks
            .map(|pick| self.views[pick as usize])
            .collect::<Vec<_>>();
        let array = StringViewArray::try_new(views.into(), vec![self.text.clone()], None)
            .expect("views were made for the text, which is UTF-8");
        Arc::new(array)
    }
}

/// How a column is generated.
#[derive(Debug)]
enum Column {
    TimeMillis,
    Timestamp,
    PageId,
    Url(Strings),
    /// Distinct addresses.
    Ip(Strings),
    Date,
    DateText(Strings),
    Revenue,
    Picked {
        strings: Strings,
        /// Columns with the same salt pick the same line of their tables.
        salt: u64,
    },
    Duration,
}

/// Generates the columns that are read.
pub(crate) struct UserVisitColumns {
    times: Times,
    addresses: u64,
    columns: Vec<Column>,
    /// A random number for each row of the chunk.
    random: Vec<u64>,
}

const SALT_PAGE: u64 = 1;
const SALT_IP: u64 = 2;
const SALT_DATE: u64 = 3;
const SALT_REVENUE: u64 = 4;
const SALT_AGENT: u64 = 5;
const SALT_COUNTRY: u64 = 6;
const SALT_WORD: u64 = 7;
const SALT_DURATION: u64 = 8;

fn page_url(page: u64) -> String {
    let word = |salt: u64| WORDS[(mix(page * 8 + salt) % WORDS.len() as u64) as usize];
    let (site, folder, topic) = (word(0), word(1), word(2));
    format!("http://www.{site}.example.com/{folder}/{topic}/page-{page:04}.html")
}

fn address(number: u64) -> String {
    // An odd factor permutes the 24 low bits, so the addresses are distinct.
    let low = number.wrapping_mul(0x9E_37B1) & 0xFF_FFFF;
    let first = 11 + mix(number) % 200;
    format!("{first}.{}.{}.{}", low >> 16, (low >> 8) & 0xFF, low & 0xFF)
}

fn date_text(day: u64) -> String {
    let mut text = vec![];
    time::write_date(&mut text, FIRST_DAY + day as i64);
    String::from_utf8_lossy(&text).into_owned()
}

fn picked<'s>(strings: impl Iterator<Item = &'s str>, salt: u64) -> Column {
    Column::Picked {
        strings: Strings::new(strings.map(str::to_string)),
        salt,
    }
}

impl UserVisitColumns {
    pub(super) fn new(times: Times, addresses: u64, read: &Schema) -> UserVisitColumns {
        let columns = read.fields().iter().map(|field| {
            let is_text = field.data_type() == &DataType::Utf8View;
            match field.name().to_ascii_lowercase().as_str() {
                "ts_ms" if field.data_type() == &DataType::Int64 => Column::TimeMillis,
                "ts_ms" => Column::Timestamp,
                "page_id" => Column::PageId,
                "ip" => Column::Ip(Strings::new((0..addresses).map(address))),
                "url" => Column::Url(Strings::new((0..PAGES).map(page_url))),
                "visit_date" if is_text => Column::DateText(Strings::new((0..DAYS).map(date_text))),
                "visit_date" => Column::Date,
                "ad_revenue" => Column::Revenue,
                "user_agent" => picked(AGENTS.iter().copied(), SALT_AGENT),
                "country" => picked(COUNTRIES.iter().map(|pair| pair.0), SALT_COUNTRY),
                "language" => picked(COUNTRIES.iter().map(|pair| pair.1), SALT_COUNTRY),
                "search_word" => picked(WORDS.iter().copied(), SALT_WORD),
                "duration" => Column::Duration,
                other => unreachable!("column {other} is refused when the table is made"),
            }
        });
        UserVisitColumns {
            times,
            addresses,
            columns: columns.collect(),
            random: vec![],
        }
    }

    pub(super) fn make(&mut self, numbers: &[u64]) -> Vec<ArrayRef> {
        self.random.clear();
        self.random
            .extend(numbers.iter().map(|&number| self.times.random(number)));
        self.columns
            .iter()
            .map(|column| self.column(column, numbers))
            .collect()
    }

    /// One random number below `below` for each row.
    fn picks(&self, salt: u64, below: u64) -> impl Iterator<Item = u64> + '_ {
        // The high half of a product is even over the range without a division.
        self.random.iter().map(move |&random| {
            let random = u128::from(mix(random ^ (salt << 56)));
            ((random * u128::from(below)) >> 64) as u64
        })
    }

    fn column(&self, column: &Column, numbers: &[u64]) -> ArrayRef {
        let times = numbers.iter().map(|&number| self.times.time_ms(number));
        match column {
            Column::TimeMillis => Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(times)),
            Column::Timestamp => {
                Arc::new(PrimitiveArray::<TimestampMillisecondType>::from_iter_values(times))
            }
            Column::PageId => Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(
                self.picks(SALT_PAGE, PAGES).map(|page| page as i64),
            )),
            Column::Url(strings) => strings.array(self.picks(SALT_PAGE, PAGES)),
            Column::Ip(strings) => strings.array(self.picks(SALT_IP, self.addresses)),
            Column::Date => Arc::new(PrimitiveArray::<Date32Type>::from_iter_values(
                self.picks(SALT_DATE, DAYS)
                    .map(|day| FIRST_DAY as i32 + day as i32),
            )),
            Column::DateText(strings) => strings.array(self.picks(SALT_DATE, DAYS)),
            Column::Revenue => Arc::new(PrimitiveArray::<Float64Type>::from_iter_values(
                self.picks(SALT_REVENUE, 10_000_000)
                    .map(|revenue| revenue as f64 / 10_000.0),
            )),
            Column::Picked { strings, salt } => {
                strings.array(self.picks(*salt, strings.views.len() as u64))
            }
            Column::Duration => Arc::new(PrimitiveArray::<Int32Type>::from_iter_values(
                self.picks(SALT_DURATION, 1_000)
                    .map(|duration| 1 + duration as i32),
            )),
        }
    }
}
