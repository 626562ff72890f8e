//! Nexmark's auction site: persons, auctions and bids in one stream (Tucker, Tufte, Papadimos and
//! Maier, "NEXMark"), laid out as Flink's Nexmark does: `event_type` 0, 1 or 2 and one ROW each.
//!
//! Events come from the `nexmark` crate; event times are ours, because the crate computes them in
//! 32-bit floats, which lose milliseconds after some million events.

use std::sync::Arc;

use ::nexmark::EventGenerator;
use ::nexmark::config::NexmarkConfig;
use ::nexmark::event::Event;
use arrow_array::builder::StringViewBuilder;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{ArrayRef, PrimitiveArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

use super::{Times, unknown_column, wrong_type};
use crate::options::OptionError;

/// The value of a field of an event.
enum Value<'e> {
    Number(i64),
    Text(&'e str),
    TimeMillis(i64),
}

/// Reads a field of an event; `None` for events of the other kinds.
type Get = for<'e> fn(&'e Event) -> Option<Value<'e>>;

/// The kinds of fields, for checking types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Number,
    Text,
    Time,
}

struct KnownField {
    name: &'static str,
    shape: Shape,
    get: Get,
}

macro_rules! known {
    ($kind:ident: $($name:literal $shape:ident $field:ident),* $(,)?) => {
        &[$(KnownField {
            name: $name,
            shape: Shape::$shape,
            get: |event| match event {
                Event::$kind(it) => Some(known!(@ $shape it.$field)),
                _ => None,
            },
        }),*]
    };
    (@ Number $value:expr) => { Value::Number($value as i64) };
    (@ Text $value:expr) => { Value::Text(&$value) };
    (@ Time $value:expr) => { Value::TimeMillis($value as i64) };
}

const PERSON: &[KnownField] = known!(Person:
    "id" Number id, "name" Text name, "emailAddress" Text email_address,
    "creditCard" Text credit_card, "city" Text city, "state" Text state,
    "dateTime" Time date_time, "extra" Text extra);

const AUCTION: &[KnownField] = known!(Auction:
    "id" Number id, "itemName" Text item_name, "description" Text description,
    "initialBid" Number initial_bid, "reserve" Number reserve, "dateTime" Time date_time,
    "expires" Time expires, "seller" Number seller, "category" Number category,
    "extra" Text extra);

const BID: &[KnownField] = known!(Bid:
    "auction" Number auction, "bidder" Number bidder, "price" Number price,
    "channel" Text channel, "url" Text url, "dateTime" Time date_time, "extra" Text extra);

const ROWS: &[(&str, &[KnownField])] = &[("person", PERSON), ("auction", AUCTION), ("bid", BID)];
const COLUMNS: &[&str] = &["event_type", "person", "auction", "bid"];

/// Case and underscores of names don't matter: `emailAddress`, `email_address`.
fn is_name(name: &str, known: &str) -> bool {
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    plain(name) == plain(known)
}

fn known_row(name: &str) -> Option<&'static [KnownField]> {
    ROWS.iter()
        .find(|(known, _)| is_name(name, known))
        .map(|(_, fields)| *fields)
}

/// Rejects columns that the generator doesn't have.
pub(super) fn check(schema: &Schema) -> Result<(), OptionError> {
    for field in schema.fields() {
        if is_name(field.name(), "event_type") {
            if !matches!(field.data_type(), DataType::Int32 | DataType::Int64) {
                return Err(wrong_type("nexmark", field, "INT"));
            }
            continue;
        }
        let Some(known) = known_row(field.name()) else {
            return Err(unknown_column("nexmark", field.name(), COLUMNS));
        };
        let DataType::Struct(parts) = field.data_type() else {
            return Err(wrong_type("nexmark", field, "ROW<…>"));
        };
        for part in parts {
            check_part(part, known)?;
        }
    }
    Ok(())
}

fn check_part(part: &Field, known: &[KnownField]) -> Result<(), OptionError> {
    let Some(field) = known.iter().find(|field| is_name(part.name(), field.name)) else {
        let names = known.iter().map(|field| field.name).collect::<Vec<_>>();
        return Err(unknown_column("nexmark", part.name(), &names));
    };
    let (fits, wanted) = match (field.shape, part.data_type()) {
        (Shape::Number, DataType::Int64) => (true, ""),
        (Shape::Number, _) => (false, "BIGINT"),
        (Shape::Text, DataType::Utf8View) => (true, ""),
        (Shape::Text, _) => (false, "STRING"),
        (Shape::Time, DataType::Int64 | DataType::Timestamp(_, None)) => (true, ""),
        (Shape::Time, _) => (false, "TIMESTAMP(3)"),
    };
    if fits {
        Ok(())
    } else {
        Err(wrong_type("nexmark", part, wanted))
    }
}

enum Column {
    /// As BIGINT rather than INT.
    EventType { wide: bool },
    Row {
        kind: i32,
        fields: Fields,
        parts: Vec<(Get, DataType)>,
    },
}

/// Generates the columns that are read.
pub(crate) struct NexmarkColumns {
    times: Times,
    columns: Vec<Column>,
    /// The generator; `None` only while it is moved to another event.
    generator: Option<EventGenerator>,
    events: Vec<Event>,
}

impl NexmarkColumns {
    pub(super) fn new(times: Times, read: &Schema) -> NexmarkColumns {
        let columns = read.fields().iter().map(|field| {
            let DataType::Struct(fields) = field.data_type() else {
                return Column::EventType {
                    wide: field.data_type() == &DataType::Int64,
                };
            };
            let kind = ROWS
                .iter()
                .position(|(name, _)| is_name(field.name(), name));
            let kind = kind.expect("the column was checked when the table was made");
            let part = |part: &Field| {
                let known = ROWS[kind]
                    .1
                    .iter()
                    .find(|known| is_name(part.name(), known.name));
                let known = known.expect("the field was checked when the table was made");
                (known.get, part.data_type().clone())
            };
            let parts = fields.iter().map(|field| part(field)).collect();
            Column::Row {
                kind: kind as i32,
                fields: fields.clone(),
                parts,
            }
        });
        let config = NexmarkConfig {
            // The number of an event seeds its contents; whole epochs of 50 events keep the kinds
            // in place. Seeds are a thousand million events apart.
            first_event_id: (times.seed.wrapping_sub(1) % (1 << 20)) as usize * 1_000_000_000,
            base_time: 0,
            first_rate: times.events_per_second as usize,
            next_rate: times.events_per_second as usize,
            ..NexmarkConfig::default()
        };
        NexmarkColumns {
            times,
            columns: columns.collect(),
            generator: Some(EventGenerator::new(config)),
            events: vec![],
        }
    }

    /// The event with that number.
    fn event(&mut self, number: u64) -> Event {
        let mut generator = self.generator.take().expect("it is always put back");
        if generator.offset() != number {
            generator = generator.with_offset(number);
        }
        let event = generator.next().expect("the generator never ends");
        self.generator = Some(generator);
        let time_ms = self.times.time_ms(number) as u64;
        match event {
            Event::Person(mut person) => {
                person.date_time = time_ms;
                Event::Person(person)
            }
            Event::Auction(mut auction) => {
                auction.expires = auction.expires - auction.date_time + time_ms;
                auction.date_time = time_ms;
                Event::Auction(auction)
            }
            Event::Bid(mut bid) => {
                bid.date_time = time_ms;
                Event::Bid(bid)
            }
        }
    }

    pub(super) fn make(&mut self, numbers: &[u64]) -> Vec<ArrayRef> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        events.extend(numbers.iter().map(|&number| self.event(number)));
        let columns = self
            .columns
            .iter()
            .map(|column| make_column(column, &events))
            .collect();
        self.events = events;
        columns
    }
}

fn kind_of(event: &Event) -> i32 {
    match event {
        Event::Person(_) => 0,
        Event::Auction(_) => 1,
        Event::Bid(_) => 2,
    }
}

fn make_column(column: &Column, events: &[Event]) -> ArrayRef {
    let kinds = events.iter().map(kind_of);
    match column {
        Column::EventType { wide: false } => {
            Arc::new(PrimitiveArray::<Int32Type>::from_iter_values(kinds))
        }
        Column::EventType { wide: true } => Arc::new(
            PrimitiveArray::<Int64Type>::from_iter_values(kinds.map(i64::from)),
        ),
        Column::Row {
            kind,
            fields,
            parts,
        } => {
            let present = kinds.map(|found| found == *kind).collect::<Vec<_>>();
            let arrays = parts
                .iter()
                .map(|(get, data_type)| part(*get, data_type, events))
                .collect();
            let nulls = Some(NullBuffer::from(present));
            let rows = events.len();
            let array = StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)
                .expect("every part has a value or NULL for each event");
            Arc::new(array)
        }
    }
}

fn part(get: Get, data_type: &DataType, events: &[Event]) -> ArrayRef {
    if data_type == &DataType::Utf8View {
        let mut builder = StringViewBuilder::with_capacity(events.len());
        for event in events {
            match get(event) {
                Some(Value::Text(text)) => builder.append_value(text),
                _ => builder.append_null(),
            }
        }
        return Arc::new(builder.finish());
    }
    let numbers = |per_ms: (i64, i64)| {
        events.iter().map(move |event| match get(event) {
            Some(Value::Number(number)) => Some(number),
            Some(Value::TimeMillis(time_ms)) => Some(time_ms * per_ms.0 / per_ms.1),
            _ => None,
        })
    };
    match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => {
            Arc::new(numbers((1, 1_000)).collect::<PrimitiveArray<TimestampSecondType>>())
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            Arc::new(numbers((1, 1)).collect::<PrimitiveArray<TimestampMillisecondType>>())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Arc::new(numbers((1_000, 1)).collect::<PrimitiveArray<TimestampMicrosecondType>>())
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Arc::new(numbers((1_000_000, 1)).collect::<PrimitiveArray<TimestampNanosecondType>>())
        }
        _ => Arc::new(numbers((1, 1)).collect::<PrimitiveArray<Int64Type>>()),
    }
}
