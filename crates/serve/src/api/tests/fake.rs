//! A backend whose statements mean what the tests need.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::backend::*;

/// The backend. Clones of its parts tell the tests what has happened.
pub struct Fake {
    pub jobs: Mutex<Vec<JobState>>,
    /// The statements that were run, with their parameters.
    pub run: Log,
    /// How many batches were taken from an endless statement.
    pub taken: Arc<Mutex<usize>>,
    /// How many statements were cancelled while they waited.
    pub cancelled: Arc<Mutex<usize>>,
    /// Where changes of the view come from: each subscriber's.
    pub subscribers: Subscribers,
    pub pushed: Mutex<Vec<u8>>,
}

pub type Log = Arc<Mutex<Vec<(String, Vec<Parameter>)>>>;
pub type Subscribers = Arc<Mutex<Vec<Sender<Option<RecordBatch>>>>>;

impl Default for Fake {
    fn default() -> Fake {
        let job = |name: &str, status| JobState {
            name: name.to_string(),
            status,
            process: Some(7),
            starts: 3,
        };
        let reason = "disk full".to_string();
        Fake {
            jobs: Mutex::new(vec![
                job("s", Status::Failed { reason }),
                job("v", Status::Starting),
            ]),
            run: Arc::default(),
            taken: Arc::default(),
            cancelled: Arc::default(),
            subscribers: Arc::default(),
            pushed: Mutex::default(),
        }
    }
}

pub fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, false),
        Field::new("n", DataType::Int64, true),
        Field::new("x", DataType::Float64, true),
        Field::new("at", time, false),
    ]))
}

/// Three rows, with all that may be difficult.
pub fn rows() -> RecordBatch {
    let keys = StringArray::from(vec!["a", "b\"\n,|", "ü"]);
    let numbers = Int64Array::from(vec![Some(1), None, Some(i64::MAX)]);
    let floats = Float64Array::from(vec![0.5, f64::NAN, -1e300]);
    let times = TimestampMillisecondArray::from(vec![0, 1_500, -1]);
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(keys),
        Arc::new(numbers),
        Arc::new(floats),
        Arc::new(times),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// So many rows.
pub fn many(count: usize) -> RecordBatch {
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["some key"; count])),
        Arc::new(Int64Array::from(vec![1_234_567; count])),
        Arc::new(Float64Array::from(vec![0.25; count])),
        Arc::new(TimestampMillisecondArray::from(vec![0; count])),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

impl Backend for Fake {
    fn session(&self) -> Box<dyn Session> {
        Box::new(Conversation {
            run: Arc::clone(&self.run),
            taken: Arc::clone(&self.taken),
            cancelled: Arc::clone(&self.cancelled),
            subscribers: Arc::clone(&self.subscribers),
        })
    }

    fn objects(&self) -> Vec<Object> {
        let columns = schema();
        let columns = columns.fields().iter().map(|field| Column {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            nullable: field.is_nullable(),
            is_key: field.name() == "k",
        });
        let columns = columns.collect::<Vec<Column>>();
        let object = |name: &str, kind| Object {
            name: name.to_string(),
            kind,
            columns: columns.clone(),
            definition: format!("CREATE {name}"),
        };
        vec![
            object("s", ObjectKind::Sink),
            object("t", ObjectKind::Table),
            object("v", ObjectKind::MaterializedView),
            object("w `1`", ObjectKind::View),
        ]
    }

    fn jobs(&self) -> Vec<JobState> {
        self.jobs.lock().unwrap().clone()
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
        match job {
            "v" => Ok(r#"{"rows_in": 12}"#.to_string()),
            _ => Err(Refusal::new(Kind::NotRunning, "it failed")),
        }
    }

    fn push(
        &self,
        _: &str,
        rows: &[u8],
        producer: Option<(String, u64)>,
    ) -> Result<Pushed, Refusal> {
        let refused = |kind| Err(Refusal::new(kind, "not now"));
        match rows {
            b"starting" => return refused(Kind::Starting),
            b"busy" => return refused(Kind::Busy),
            b"unconfirmed" => return refused(Kind::Unconfirmed),
            b"stopped" => return refused(Kind::NotRunning),
            _ => {}
        }
        if rows.starts_with(b"bad") {
            let refusal =
                Refusal::new(Kind::Value, "line 1: column n: 'bad' is not a valid BIGINT");
            let line = Some(1);
            return Err(Refusal { line, ..refusal }.hint("send CSV"));
        }
        self.pushed.lock().unwrap().extend_from_slice(rows);
        let lines = rows.iter().filter(|byte| **byte == b'\n').count() as u64;
        let rejected = u64::from(rows.starts_with(b"one bad"));
        Ok(Pushed {
            rows: lines - rejected,
            rejected,
            repeated: producer.is_some_and(|(_, sequence)| sequence == 1),
        })
    }
}

struct Conversation {
    run: Log,
    taken: Arc<Mutex<usize>>,
    cancelled: Arc<Mutex<usize>>,
    subscribers: Subscribers,
}

impl Conversation {
    /// Waits for changes, or until nobody wants them any longer.
    fn changes(&self, cancelled: &Cancelled) -> Rows {
        let (sender, changes): (_, Receiver<Option<RecordBatch>>) = channel();
        self.subscribers.lock().unwrap().push(sender.clone());
        let count = Arc::clone(&self.cancelled);
        cancelled.when_cancelled(move || {
            *count.lock().unwrap() += 1;
            let _ = sender.send(None);
        });
        let batches = std::iter::from_fn(move || changes.recv().ok().flatten().map(Ok));
        Rows {
            schema: schema(),
            batches: Box::new(batches),
            are_changes: true,
        }
    }
}

impl Session for Conversation {
    fn parse(&self, text: &str) -> Result<Vec<Statement>, Refusal> {
        let mut statements = Vec::new();
        let mut begin = 0;
        for part in text.split(';') {
            let lead = part
                .chars()
                .take_while(|letter| letter.is_whitespace())
                .count();
            let statement = Statement {
                text: part.trim().into(),
                begin: begin + lead,
            };
            if part.contains("WHAT") {
                let mut refusal = Refusal::new(Kind::Syntax, "what is WHAT?").hint("use SELECT");
                refusal.position = Some(statement.begin);
                return Err(refusal);
            }
            begin += part.chars().count() + 1;
            statements.push(statement);
        }
        statements.retain(|statement| !statement.text.is_empty());
        Ok(statements)
    }

    fn describe(&self, _: &Statement) -> Result<Description, Refusal> {
        unreachable!("HTTP describes nothing")
    }

    fn run(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
        cancelled: &Cancelled,
    ) -> Result<Answer, Refusal> {
        let text = statement.text.to_string();
        let logged = (text.clone(), parameters.to_vec());
        self.run.lock().unwrap().push(logged);
        let rows = |batches: Box<dyn Iterator<Item = Result<RecordBatch, Refusal>> + Send>| {
            Ok(Answer::Rows(Rows {
                schema: schema(),
                batches,
                are_changes: false,
            }))
        };
        let late = || Err(Refusal::new(Kind::System, "the job has ended"));
        match text.split(' ').next().unwrap_or_default() {
            "CREATE" | "STOP" | "START" | "ALTER" => Ok(Answer::Done {
                tag: text.split(' ').take(2).collect::<Vec<_>>().join(" "),
                notices: vec!["it takes a while".to_string()],
            }),
            "DROP" if !text.ends_with("CASCADE") => {
                let refusal = Refusal::new(Kind::Dependent, "s depends on v");
                Err(refusal.hint("use CASCADE"))
            }
            "DROP" => Ok(Answer::Done {
                tag: "DROP JOB".to_string(),
                notices: vec![],
            }),
            "SELECT" if text.contains("oops") => {
                let mut refusal = Refusal::new(Kind::Undefined, "there is no column oops");
                let at = text.find("oops").unwrap();
                refusal.position = Some(text[..at].chars().count());
                Err(refusal)
            }
            "SELECT" => rows(Box::new([Ok(self::rows())].into_iter())),
            "NONE" => rows(Box::new(std::iter::empty())),
            "BIG" => rows(Box::new((0..20).map(|_| Ok(many(2_500))))),
            "LATE" => rows(Box::new((0..20).map(move |number| match number {
                19 => late(),
                _ => Ok(many(2_500)),
            }))),
            "SOON" => rows(Box::new([Ok(self::rows()), late()].into_iter())),
            "PANIC" => panic!("a bug of the backend"),
            "ENDLESS" => {
                let taken = Arc::clone(&self.taken);
                rows(Box::new(std::iter::repeat_with(move || {
                    *taken.lock().unwrap() += 1;
                    Ok(many(2_500))
                })))
            }
            "WAIT" => {
                let mut changes = self.changes(cancelled);
                changes.batches.next();
                Err(Refusal::new(Kind::Cancelled, "nobody waits any longer"))
            }
            "SUBSCRIBE" => Ok(Answer::Rows(self.changes(cancelled))),
            _ => Err(Refusal::new(
                Kind::Internal,
                format!("no such test: {text}"),
            )),
        }
    }
}
