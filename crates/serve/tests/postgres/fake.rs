//! A backend with a few rows in memory, which understands as many statements as the tests need.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder};
use arrow_array::types::{Decimal128Type, IntervalMonthDayNanoType};
use arrow_array::{
    Array as _, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
    PrimitiveArray, RecordBatch, StringArray, StringViewArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_serve::backend::{
    Answer, Backend, Cancelled, Column, Description, JobState, Kind, Object, ObjectKind, Parameter,
    Pushed, Refusal, Rows, Session, Statement,
};

/// The rows of a batch of `numbers`.
const BATCH: usize = 1_000;

/// A backend with the view `types`, the table `numbers`, and what is created.
pub struct Fake {
    objects: Arc<Mutex<Vec<Object>>>,
}

struct Talk {
    objects: Arc<Mutex<Vec<Object>>>,
}

fn object(name: &str, kind: ObjectKind, schema: &Schema, definition: &str, key: &str) -> Object {
    let column = |field: &Arc<Field>| Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.name() != key,
        is_key: field.name() == key,
    };
    Object {
        name: name.to_owned(),
        kind,
        columns: schema.fields().iter().map(column).collect(),
        definition: definition.to_owned(),
    }
}

impl Fake {
    pub fn new() -> Fake {
        let numbers = numbers_schema();
        let types = types().schema();
        let objects = vec![
            object(
                "Odd name",
                ObjectKind::View,
                &numbers,
                "SELECT * FROM numbers",
                "",
            ),
            object(
                "a_sink",
                ObjectKind::Sink,
                &Schema::empty(),
                "INSERT INTO numbers SELECT 1",
                "",
            ),
            object(
                "numbers",
                ObjectKind::Table,
                &numbers,
                "CREATE TABLE numbers (n BIGINT)",
                "",
            ),
            object(
                "types",
                ObjectKind::MaterializedView,
                &types,
                "SELECT * FROM numbers",
                "a_bigint",
            ),
        ];
        Fake {
            objects: Arc::new(Mutex::new(objects)),
        }
    }
}

impl Backend for Fake {
    fn session(&self) -> Box<dyn Session> {
        Box::new(Talk {
            objects: Arc::clone(&self.objects),
        })
    }

    fn objects(&self) -> Vec<Object> {
        self.objects.lock().unwrap().clone()
    }

    fn jobs(&self) -> Vec<JobState> {
        vec![]
    }

    fn why(&self, job: &str) -> Result<String, Refusal> {
        Ok(format!("nothing holds '{job}' back"))
    }

    fn retarget(&self, job: &str, _: Option<&str>, target: &str) -> Result<(), Refusal> {
        match target.ends_with("ms") {
            true => Ok(()),
            false => {
                let message = format!("{job}: '{target}' is not a duration");
                Err(Refusal::new(Kind::Value, message))
            }
        }
    }

    fn report(&self, job: &str) -> Result<String, Refusal> {
        Err(Refusal::new(
            Kind::NoSuchJob,
            format!("there is no job {job}"),
        ))
    }

    fn push(&self, table: &str, _rows: &[u8], _: Option<(String, u64)>) -> Result<Pushed, Refusal> {
        Err(Refusal::new(
            Kind::Undefined,
            format!("there is no table {table}"),
        ))
    }
}

fn numbers_schema() -> Schema {
    Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ])
}

/// The rows `from` to `to`, the last one excluded.
fn numbers(from: i64, to: i64) -> RecordBatch {
    let name = |n: i64| (n % 3 != 0).then(|| format!("number {n}"));
    let columns: [ArrayRef; 2] = [
        Arc::new(Int64Array::from_iter_values(from..to)),
        Arc::new((from..to).map(name).collect::<StringArray>()),
    ];
    RecordBatch::try_new(Arc::new(numbers_schema()), columns.to_vec()).unwrap()
}

/// One row with a value of each type, and one with NULLs.
pub fn types() -> RecordBatch {
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None, Some(3)]);
    list.append_null();
    let mut strings = ListBuilder::new(StringBuilder::new());
    strings.append_value([Some("a b"), Some("\"c\""), Some("NULL"), None]);
    strings.append_null();
    let decimal = Decimal128Array::from(vec![
        Some(-12_345_678_901_234_567_890_123_456_789_012_345_678),
        None,
    ]);
    let small: PrimitiveArray<Decimal128Type> = vec![Some(1_250), None].into();
    let fields = vec![
        Arc::new(Field::new("x", DataType::Int32, true)),
        Arc::new(Field::new("y \"z\"", DataType::Utf8, true)),
    ];
    let parts: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(7), None])),
        Arc::new(StringArray::from(vec![Some("q\n"), None])),
    ];
    let nulls = Some(vec![true, false].into());
    let row = StructArray::new(fields.into(), parts, nulls);
    let interval = IntervalMonthDayNanoType::make_value(14, 3, 14_706_500_000_000);
    let time = 1_709_210_096_789_000;
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "a_boolean",
            Arc::new(BooleanArray::from(vec![Some(true), None])),
        ),
        ("a_tinyint", Arc::new(Int8Array::from(vec![Some(-8), None]))),
        (
            "a_smallint",
            Arc::new(Int16Array::from(vec![Some(-16), None])),
        ),
        ("an_int", Arc::new(Int32Array::from(vec![Some(32), None]))),
        (
            "a_bigint",
            Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(0)])),
        ),
        (
            "a_float",
            Arc::new(Float32Array::from(vec![Some(1.5), None])),
        ),
        (
            "a_double",
            Arc::new(Float64Array::from(vec![Some(1e300), None])),
        ),
        (
            "a_decimal",
            Arc::new(decimal.with_precision_and_scale(38, 10).unwrap()),
        ),
        (
            "a_price",
            Arc::new(small.with_precision_and_scale(8, 2).unwrap()),
        ),
        (
            "a_string",
            Arc::new(StringViewArray::from(vec![Some("größe, \"x\""), None])),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None])),
        ),
        (
            "a_date",
            Arc::new(Date32Array::from(vec![Some(19_782), None])),
        ),
        (
            "a_time",
            Arc::new(Time64MicrosecondArray::from(vec![
                Some(45_296_789_000),
                None,
            ])),
        ),
        (
            "a_timestamp",
            Arc::new(TimestampMillisecondArray::from(vec![
                Some(time / 1_000),
                None,
            ])),
        ),
        (
            "a_zoned",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(time), None]).with_timezone("UTC")),
        ),
        (
            "an_interval",
            Arc::new(IntervalMonthDayNanoArray::from(vec![Some(interval), None])),
        ),
        ("an_array", Arc::new(list.finish())),
        ("strings", Arc::new(strings.finish())),
        ("a_row", Arc::new(row)),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// The columns that a query names: all of them for `*`, or if it names something else.
fn named(text: &str, schema: &Schema) -> Vec<usize> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = text.split_once(' ').map_or("", |(_, rest)| rest);
    let list = list.split_once(" FROM ").map_or(list, |(list, _)| list);
    let place = |item: &str| {
        let name = item.split_whitespace().next()?.rsplit('.').next()?;
        schema.index_of(name).ok()
    };
    let places: Option<Vec<usize>> = list.split(',').map(place).collect();
    places.unwrap_or_else(|| (0..schema.fields().len()).collect())
}

fn schema_of(text: &str) -> Option<SchemaRef> {
    let lower = text.to_lowercase();
    let all = if lower.starts_with("select") && lower.contains("from types") {
        types().schema()
    } else if lower.starts_with("select") || lower.starts_with("subscribe") {
        Arc::new(numbers_schema())
    } else {
        return None;
    };
    Some(Arc::new(all.project(&named(text, &all)).unwrap()))
}

/// The number after a word, with quotes perhaps.
fn number_after(text: &str, word: &str) -> Option<i64> {
    let at = text.to_lowercase().find(word)?;
    let number = text[at + word.len()..].split_whitespace().next()?;
    number.trim_matches('\'').parse().ok()
}

impl Session for Talk {
    fn parse(&self, text: &str) -> Result<Vec<Statement>, Refusal> {
        if let Some(at) = text.find("SELEC ") {
            let mut refusal = Refusal::new(Kind::Syntax, "expected a statement, found SELEC")
                .hint("did you mean SELECT?");
            refusal.position = Some(text[..at].chars().count());
            return Err(refusal);
        }
        Ok(vec![Statement {
            text: text.into(),
            begin: 0,
        }])
    }

    fn describe(&self, statement: &Statement) -> Result<Description, Refusal> {
        let count = (1..9)
            .filter(|at| statement.text.contains(&format!("${at}")))
            .count();
        if statement.text.contains("from nothing") {
            return Err(Refusal::new(Kind::Undefined, "there is no table nothing"));
        }
        Ok(Description {
            parameters: vec![DataType::Int64; count],
            columns: schema_of(&statement.text),
        })
    }

    fn run(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal> {
        let text = statement.text.trim();
        self.describe(statement)?;
        let Some(schema) = schema_of(text) else {
            return self.change(text);
        };
        let lower = text.to_lowercase();
        assert!(
            !lower.contains("panic"),
            "a statement that fails in the server"
        );
        let batches: Box<dyn Iterator<Item = Result<RecordBatch, Refusal>> + Send> =
            if lower.contains("from types") {
                Box::new(std::iter::once(Ok(types())))
            } else if lower.starts_with("subscribe") {
                return Ok(Answer::Rows(Rows {
                    schema,
                    batches: changes(cancelled, Duration::from_millis(20)),
                    are_changes: true,
                }));
            } else if lower.contains("sleep") {
                wait(cancelled);
                return Err(Refusal::new(Kind::Cancelled, "cancelled while it slept"));
            } else if let Some(wanted) = wanted(text, parameters)? {
                Box::new(std::iter::once(Ok(numbers(wanted, wanted + 1))))
            } else {
                let count = number_after(text, "limit ").unwrap_or(10_000);
                let fails = lower.contains("fails");
                Box::new(
                    (0..count)
                        .step_by(BATCH)
                        .map(move |from| match fails && from > 0 {
                            true => Err(Refusal::new(Kind::NotRunning, "the job has failed")),
                            false => Ok(numbers(from, count.min(from + BATCH as i64))),
                        }),
                )
            };
        let text = text.to_owned();
        let project = move |batch: RecordBatch| {
            let named = named(&text, &batch.schema());
            batch.project(&named).unwrap()
        };
        Ok(Answer::Rows(Rows {
            schema,
            batches: Box::new(batches.map(move |batch| batch.map(&project))),
            are_changes: false,
        }))
    }
}

impl Talk {
    fn change(&self, text: &str) -> Result<Answer, Refusal> {
        let mut words = text.split_whitespace();
        let (verb, name) = (
            words.next().unwrap_or_default().to_uppercase(),
            words.last().unwrap_or_default(),
        );
        let mut objects = self.objects.lock().unwrap();
        match verb.as_str() {
            "CREATE" if objects.iter().any(|object| object.name == name) => {
                return Err(Refusal::new(
                    Kind::Duplicate,
                    format!("{name} exists already"),
                ));
            }
            "CREATE" => objects.push(object(name, ObjectKind::Table, &numbers_schema(), text, "")),
            "DROP" => objects.retain(|object| object.name != name),
            _ => {
                return Err(Refusal::new(
                    Kind::Syntax,
                    format!("{verb} is not supported"),
                ));
            }
        }
        Ok(Answer::Done {
            tag: format!("{verb} TABLE"),
            notices: vec![format!("{name} is done")],
        })
    }
}

/// The number after WHERE, or that of the parameter.
fn wanted(text: &str, parameters: &[Parameter]) -> Result<Option<i64>, Refusal> {
    match parameters.first() {
        Some(Some(wanted)) => {
            let invalid = || format!("'{wanted}' is not a valid BIGINT");
            let wanted = wanted
                .parse()
                .map_err(|_| Refusal::new(Kind::Value, invalid()))?;
            Ok(Some(wanted))
        }
        _ => Ok(number_after(text, ".n = ")),
    }
}

fn wait(cancelled: &Cancelled) {
    let (wake, woken) = channel();
    cancelled.when_cancelled(move || {
        let _ = wake.send(());
    });
    woken.recv().unwrap();
}

/// A change now and then, until they are cancelled.
fn changes(
    cancelled: &Cancelled,
    every: Duration,
) -> Box<dyn Iterator<Item = Result<RecordBatch, Refusal>> + Send> {
    let (wake, woken) = channel();
    let cancelled = cancelled.clone();
    cancelled.when_cancelled(move || {
        let _ = wake.send(());
    });
    let mut n = 0;
    Box::new(std::iter::from_fn(move || {
        match woken.recv_timeout(every) {
            Err(RecvTimeoutError::Timeout) => {
                n += 1;
                Some(Ok(numbers(n, n + 1)))
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
        }
    }))
}
