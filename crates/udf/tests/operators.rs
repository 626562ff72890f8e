//! Functions that return a table: states, timers and steps that go to a worker and come back.

use std::fs;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, StringViewArray,
};
use arrow_schema::DataType;
use slackwater_udf::{
    Constant, Definition, Function, KeyedBatch, KeyedRan, Mode, Table, TableRows,
};

use super::{definition, python_with_arrow};

const SUMS: &str = "
import ctypes, datetime, os, signal
class f:
    def __init__(self, most, pause=None):
        self.most, self.pause = most, pause

    def on_new_key(self, state):
        state.n = 0

    def on_row(self, state, row, out):
        state.n += 1
        state.sum = (state.sum or 0.0) + (row.x or 0.0)
        if row.x == 13:
            raise ValueError('thirteen')
        if row.x == 14:
            state.sum = 'fourteen'
            return
        if row.x == 15:
            out.emit('fifteen', 0)
        if row.x == 16:
            os.kill(os.getpid(), signal.SIGKILL)
        if row.x == 17 and not os.path.exists(PATH):
            open(PATH, 'w').close()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.pause and row.x == 1:
            out.timer(out.time + self.pause)
        if row.x is not None and state.sum <= self.most:
            out.emit(row.x, state.sum)

    def on_time(self, state, at, out):
        if state.sum == 100:
            os._exit(3)
        if state.sum == 200:
            raise ValueError('two hundred')
        out.emit(None, state.sum)
        out.forget()
";

fn columns(columns: &[(&str, DataType)]) -> Vec<(String, DataType)> {
    let columns = columns.iter();
    columns
        .map(|(name, data_type)| ((*name).to_string(), data_type.clone()))
        .collect()
}

fn table() -> Table {
    Table {
        inputs: vec![columns(&[("x", DataType::Float64)])],
        parameters: vec!["most".to_string(), "pause".to_string()],
        constants: Some(vec![
            ("most".to_string(), Constant::Number(f64::INFINITY)),
            ("pause".to_string(), Constant::Interval(1_000)),
        ]),
        columns: columns(&[("x", DataType::Float64), ("sum", DataType::Float64)]),
        state: Some(columns(&[
            ("n", DataType::Int64),
            ("sum", DataType::Float64),
        ])),
        outputs: Vec::new(),
        is_ordered: true,
    }
}

fn of(text: &str, table: Table) -> Function {
    Function::new(Definition {
        table: Some(table),
        ..definition(text, &[], DataType::Null)
    })
}

fn sums() -> Function {
    of(&SUMS.replace("PATH", "'/nowhere/at/all'"), table())
}

/// Two keys, the second one with a state and a timer at 500; rows (key, x) at 1000, 1001, …; then timers
/// before 100,000.
fn batch(rows: &[(i32, Option<f64>)], sum: f64) -> KeyedBatch {
    let count = rows.len() as i32;
    let keys = rows.iter().map(|(key, _)| *key).chain([0, 1]);
    let inputs = (0..count).map(|_| 0).chain([-1, -1]);
    let times = (0..i64::from(count)).map(|row| 1000 + row);
    let times = times.chain([100_000, 100_000]);
    let timers = [Some(vec![]), Some(vec![Some(500)])];
    let values = rows.iter().map(|(_, x)| *x).collect::<Float64Array>();
    KeyedBatch {
        has_state: BooleanArray::from(vec![false, true]),
        timers: ListArray::from_iter_primitive::<Int64Type, _, _>(timers),
        states: vec![
            Arc::new(Int64Array::from(vec![None, Some(7)])),
            Arc::new(Float64Array::from(vec![None, Some(sum)])),
        ],
        keys: keys.collect::<Vec<i32>>().into(),
        inputs: inputs.collect::<Vec<i32>>().into(),
        rows: (0..count).chain([-1, -1]).collect::<Vec<i32>>().into(),
        times: times.collect::<Vec<i64>>().into(),
        retracts: BooleanArray::from(vec![false; rows.len() + 2]),
        columns: vec![vec![Arc::new(values)]],
    }
}

fn emitted(ran: &KeyedRan) -> Vec<(i32, i64, Option<f64>, f64)> {
    let [x, sum] = [0, 1].map(|column| match ran.columns.get(column) {
        Some(column) => column.as_primitive::<Float64Type>().clone(),
        None => Float64Array::from(Vec::<f64>::new()),
    });
    let rows = 0..ran.keys.len();
    rows.map(|row| {
        let x = x.is_valid(row).then(|| x.value(row));
        (ran.keys.value(row), ran.times.value(row), x, sum.value(row))
    })
    .collect()
}

fn failed(ran: &KeyedRan) -> Vec<(usize, Option<i64>)> {
    let failed = ran.failed.iter();
    failed
        .map(|failure| (failure.step, failure.timer))
        .collect()
}

#[test]
fn rows_and_timers_are_processed_in_order_and_states_come_back() {
    let function = sums();
    let batch = batch(
        &[(0, Some(1.0)), (1, Some(2.0)), (0, None), (0, Some(4.0))],
        5.0,
    );
    let ran = function.keyed(&batch).unwrap();
    assert_eq!(ran.steps, 6);
    assert!(ran.failed.is_empty(), "{:?}", ran.failed);
    // The timer at 500 forgets the second key before its row; the first key's fires at the end.
    let wanted = [
        (0, 1000, Some(1.0), 1.0),
        (1, 500, None, 5.0),
        (1, 1001, Some(2.0), 2.0),
        (0, 1003, Some(4.0), 5.0),
        (0, 2000, None, 5.0),
    ];
    assert_eq!(emitted(&ran), wanted);
    assert_eq!(ran.has_state, BooleanArray::from(vec![false, true]));
    assert_eq!(ran.fired.values().to_vec(), [1, 1]);
    let n = ran.states[0].as_primitive::<Int64Type>();
    assert_eq!(n.iter().collect::<Vec<_>>(), [None, Some(1)]);
}

/// The state had counted the row before it raised.
#[test]
fn a_row_that_raises_or_makes_a_wrong_value_changes_nothing() {
    let function = sums();
    let rows = [1.0, 13.0, 14.0, 15.0, 2.0].map(|x| (1, Some(x)));
    let ran = function.keyed(&batch(&rows, 5.0)).unwrap();
    assert_eq!(failed(&ran), [(1, None), (2, None), (3, None)]);
    let reasons = ran.failed.iter().map(|failure| failure.reason.as_str());
    let reasons = reasons.collect::<Vec<&str>>();
    assert!(
        reasons[0].contains("line 14, in on_row") && reasons[0].ends_with("ValueError: thirteen"),
        "{reasons:?}"
    );
    let wanted = "TypeError: state.sum: the result 'fourteen' is not a value of DOUBLE";
    assert_eq!(reasons[1], wanted);
    let wanted = "TypeError: column 'x': the result 'fifteen' is not a value of DOUBLE";
    assert_eq!(reasons[2], wanted);
    let rows = [
        (1, 500, None, 5.0),
        (1, 1000, Some(1.0), 1.0),
        (1, 1004, Some(2.0), 3.0),
        (1, 2000, None, 3.0),
    ];
    assert_eq!(emitted(&ran), rows);
}

#[test]
fn a_name_that_is_not_there_is_said_with_those_that_are() {
    let text = "class f:
  def on_row(self, state, row, out): (state, row, out)[int(row.x)].count_
  def on_time(self, state, at, out): state.count_ = 1";
    let table = Table {
        constants: Some(Vec::new()),
        ..table()
    };
    let rows = [0.0, 1.0, 2.0].map(|x| (0, Some(x)));
    let (_, reasons) = finish(&of(text, table), &rows, 5.0);
    let wanted = ["has n, sum", "has x", "has change, clear", "has n, sum"];
    for (reason, wanted) in reasons.iter().zip(wanted) {
        assert!(reason.contains(wanted), "{reasons:?}");
    }
    assert_eq!(reasons.len(), 4, "{reasons:?}");
}

/// Calls the function until all steps of a batch are done, as the engine does, and returns what has failed.
fn finish(function: &Function, rows: &[(i32, Option<f64>)], sum: f64) -> (Vec<f64>, Vec<String>) {
    let whole = batch(rows, sum);
    let steps = whole.keys.len();
    let (mut from, mut left) = (0, whole);
    let (mut sums, mut reasons) = (Vec::new(), Vec::new());
    loop {
        let ran = function.keyed(&left).unwrap();
        let fired = ran.fired.values().iter().sum::<i64>();
        assert!(ran.steps > 0 || fired > 0, "nothing was done");
        sums.extend(emitted(&ran).iter().map(|row| row.3));
        reasons.extend(ran.failed.iter().map(|failure| failure.reason.clone()));
        from += ran.steps;
        if from == steps {
            return (sums, reasons);
        }
        let rest = |column: &Int32Array| column.slice(ran.steps, column.len() - ran.steps);
        left = KeyedBatch {
            has_state: ran.has_state,
            timers: ran.timers,
            states: ran.states,
            keys: rest(&left.keys),
            inputs: rest(&left.inputs),
            rows: rest(&left.rows),
            times: left.times.slice(ran.steps, left.times.len() - ran.steps),
            retracts: (left.retracts).slice(ran.steps, left.retracts.len() - ran.steps),
            columns: left.columns,
        };
    }
}

#[test]
fn a_row_that_kills_its_worker_twice_is_rejected_alone() {
    let rows = [1.0, 2.0, 16.0, 3.0].map(|x| (0, Some(x)));
    let (sums, reasons) = finish(&sums(), &rows, 5.0);
    // The other key's timer fires at the end.
    assert_eq!(sums, [1.0, 3.0, 6.0, 6.0, 5.0]);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("killed by signal 9"), "{reasons:?}");
}

#[test]
fn a_worker_that_dies_once_costs_no_row() {
    let path = std::env::temp_dir().join(format!("slackwater-operator-{}", std::process::id()));
    let function = of(&SUMS.replace("PATH", &format!("{path:?}")), table());
    let rows = [1.0, 17.0, 3.0].map(|x| (0, Some(x)));
    let (sums, reasons) = finish(&function, &rows, 5.0);
    fs::remove_file(path).unwrap();
    assert_eq!(sums, [1.0, 18.0, 21.0, 21.0, 5.0]);
    assert!(reasons.is_empty(), "{reasons:?}");
}

#[test]
fn a_timer_that_kills_or_raises_is_rejected_and_does_not_fire_again() {
    for (sum, reason) in [(100.0, "ended with code 3"), (200.0, "two hundred")] {
        let rows = [(0, Some(1.0)), (1, Some(2.0))];
        let (sums, reasons) = finish(&sums(), &rows, sum);
        assert_eq!(sums, [1.0, sum + 2.0, 1.0]);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains(reason), "{reasons:?}");
    }
}

#[test]
fn timers_without_end_are_processed_in_parts() {
    let text = "
import datetime
class f:
    def on_row(self, state, row, out):
        state.sum = row.x
        out.timer(out.time)
    def on_time(self, state, at, out):
        out.emit(row_of(at), state.sum)
        out.timer(at + datetime.timedelta(microseconds=1))
def row_of(at): return 0.0
";
    let table = Table {
        constants: Some(Vec::new()),
        ..table()
    };
    let mut many = batch(&[(0, Some(1.0))], 5.0);
    many.times = Int64Array::from(vec![1000, 500_000, 100]);
    let function = of(text, table);
    let ran = function.keyed(&many).unwrap();
    // As many rows and timers as a call has at most; the timer after them is still there.
    assert_eq!((ran.steps, ran.keys.len()), (1, 99_999));
    assert_eq!(ran.timers.value(0).len(), 1);
}

#[test]
fn what_is_wrong_with_a_class_is_said_before_a_call() {
    let cases = [
        ("def f(): pass", "'f' is not a class, and has STATE"),
        (
            "class f: pass",
            "class 'f' has no on_row: it needs on_row(self, state, row, out)",
        ),
        (
            "class f:\n  def on_row(self, row): pass",
            "on_row(self, row) can't be called with 4 arguments",
        ),
        (
            "class f:\n  def __init__(self, least): pass\n  def on_row(self, state, row, out): pass",
            "f(least) can't be called with 0 arguments and most, pause",
        ),
        (
            "class f:\n  async def on_row(self, state, row, out): pass",
            "on_row is async, and SQL does not wait for it",
        ),
        (
            "class f:\n  def on_row(self, state, row, out): yield 1",
            "on_row yields, and rows are emitted by out.emit()",
        ),
        (
            "class g: pass",
            "the text does not define 'f': add class f: …",
        ),
    ];
    for (text, wanted) in cases {
        let problem = of(text, table()).start(false).unwrap_err();
        assert!(problem.message.contains(wanted), "{problem:?}");
    }
    // The call gives no value for a parameter without a default.
    let lacking = Table {
        constants: Some(Vec::new()),
        ..table()
    };
    let text = "class f:\n  def __init__(self, most, pause=1): pass\n  \
                def on_row(self, state, row, out): pass";
    let problem = of(text, lacking).start(false).unwrap_err();
    let wanted = "has no default for 'most', and the call in SQL leaves it out";
    assert!(problem.message.contains(wanted), "{problem:?}");
    // Without a call nothing is made of the class.
    let unplanned = Table {
        constants: None,
        ..table()
    };
    let text =
        "class f:\n  def __init__(self, x): 1 / 0\n  def on_row(self, state, row, out): pass";
    of(text, unplanned).start(false).unwrap();
}

fn stateless(text: &str, own: &[(&str, DataType)], mode: Mode) -> Definition {
    let table = Table {
        inputs: vec![columns(&[
            ("x", DataType::Int64),
            ("s", DataType::Utf8View),
        ])],
        parameters: vec!["least".to_string()],
        constants: Some(vec![("least".to_string(), Constant::Integer(2))]),
        columns: columns(own),
        state: None,
        outputs: Vec::new(),
        is_ordered: false,
    };
    Definition {
        table: Some(table),
        mode,
        ..definition(text, &[], DataType::Null)
    }
}

fn input() -> Vec<ArrayRef> {
    vec![
        Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(3)])),
        Arc::new(StringViewArray::from(vec!["a b", "c", "d", "e f g"])),
    ]
}

const WORDS: [(&str, DataType); 2] = [("word", DataType::Utf8View), ("place", DataType::Int64)];

#[test]
fn a_function_without_a_state_filters_or_makes_rows() {
    // None for None: not kept, as NULL in WHERE.
    let filter = "def f(x, s, least): return x and x >= least";
    let filter = Function::new(stateless(filter, &[], Mode::Rows));
    let TableRows::Kept(kept) = filter.table(&input(), 4).unwrap() else {
        panic!("a filter")
    };
    assert_eq!(kept, BooleanArray::from(vec![false, true, false, true]));

    let words = "
def f(x, s, least):
    if x != 2:
        yield from ((word, place) for place, word in enumerate(s.split()))";
    let words = Function::new(stateless(words, &WORDS, Mode::Rows));
    let TableRows::Made(of, made) = words.table(&input(), 4).unwrap() else {
        panic!("rows")
    };
    assert_eq!(of.unwrap().values().to_vec(), [0, 0, 2, 3, 3, 3]);
    let found = made[0].as_string_view().iter().flatten();
    assert_eq!(found.collect::<Vec<_>>(), ["a", "b", "d", "e", "f", "g"]);
    assert_eq!(made[1].as_primitive::<Int64Type>().values()[5], 2);
    let TableRows::Made(of, made) = words
        .table(&[input()[0].slice(1, 1), input()[1].slice(1, 1)], 1)
        .unwrap()
    else {
        panic!("rows")
    };
    assert_eq!((of.unwrap().len(), made[0].len()), (0, 0));
}

#[test]
fn a_wrong_result_names_its_row_and_what_is_wanted() {
    let cases = [
        (
            "return 7 if x == 2 else []",
            "it returns rows, by yield or in a list, and has returned int",
        ),
        (
            "return [(s,)] if x == 2 else []",
            "a row has 2 values (word, place), not 1",
        ),
        (
            "yield s, 'x' if x == 2 else 1",
            "column 'place': the result 'x' is not a value of BIGINT",
        ),
        ("yield s, 10 // (2 - (x or 0))", "ZeroDivisionError"),
        ("return 'ab' if x == 2 else None", "has returned str"),
    ];
    for (text, wanted) in cases {
        let text = format!("def f(x, s, least): {text}");
        let function = Function::new(stateless(&text, &WORDS, Mode::Rows));
        let failure = function.table(&input(), 4).unwrap_err();
        assert!(failure.reason.contains(wanted), "{failure:?}");
        assert_eq!(failure.row, Some(1), "{failure:?}");
    }
    let text = "def f(x, s, least): return x";
    let filter = Function::new(stateless(text, &[], Mode::Rows));
    let failure = filter.table(&input(), 4).unwrap_err();
    assert!(
        failure
            .reason
            .contains("a filter returns True, False or None, not 1"),
        "{failure:?}"
    );
}

#[test]
fn columns_go_to_a_function_without_a_state_as_arrays() {
    let Some(python) = python_with_arrow() else {
        return;
    };
    let call = |text: &str, own: &[(&str, DataType)]| {
        let text = format!("import pyarrow, pyarrow.compute\ndef f(x, s, least): {text}");
        let definition = Definition {
            python: Some(python.clone()),
            ..stateless(&text, own, Mode::Columns)
        };
        Function::new(definition).table(&input(), 4)
    };
    let TableRows::Kept(kept) =
        call("return pyarrow.compute.greater_equal(x, least)", &[]).unwrap()
    else {
        panic!("a filter")
    };
    assert_eq!(
        kept.iter().collect::<Vec<_>>()[..3],
        [Some(false), Some(true), None]
    );
    let TableRows::Made(None, made) = call("return s, x", &WORDS).unwrap() else {
        panic!("the same rows")
    };
    assert_eq!(made[0].len(), 4);
    let TableRows::Made(Some(of), made) =
        call("return [3, 0], ['z', 'y'], [1, 2]", &WORDS).unwrap()
    else {
        panic!("other rows")
    };
    assert_eq!((of.values().to_vec(), made[1].len()), (vec![3, 0], 2));
    let cases = [
        (
            "return s",
            "it returns a tuple of 2 columns (word, place), not of 1",
        ),
        (
            "return [4], ['z'], [1]",
            "its numbers of rows are not all from 0 to 3",
        ),
        (
            "return [1], ['z'], [1, 2]",
            "column 'place' has 2 values for 1 rows",
        ),
        ("return s, s", "instead of int64"),
    ];
    for (text, wanted) in cases {
        let failure = call(text, &WORDS).unwrap_err();
        assert!(failure.reason.contains(wanted), "{failure:?}");
    }
}
