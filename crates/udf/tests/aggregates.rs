//! Aggregate functions: states that go to a worker and come back.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Float64Array, Int32Array, Int64Array};
use arrow_schema::DataType;
use slackwater_udf::{Definition, Function, Mode};

use super::{definition, python_with_arrow};

const MEAN: &str = "
class f:
    def __init__(self):
        self.n, self.total = 0, 0

    def accumulate(self, x):
        self.n += 1
        if x == 13:
            raise ValueError('thirteen')
        self.total += x

    def retract(self, x):
        if x == 13:
            raise ValueError('thirteen')
        self.n, self.total = self.n - 1, self.total - x

    def merge(self, other):
        self.n, self.total = self.n + other.n, self.total + other.total

    def finish(self):
        return self.total / self.n if self.n else None
";

fn of(text: &str) -> Definition {
    Definition {
        is_aggregate: true,
        ..definition(text, &[DataType::Int64], DataType::Float64)
    }
}

fn numbers<const N: usize>(values: [Option<i64>; N]) -> Vec<ArrayRef> {
    vec![Arc::new(Int64Array::from(values.to_vec()))]
}

fn no_states(groups: usize) -> BinaryArray {
    BinaryArray::from_iter(std::iter::repeat_n(None::<&[u8]>, groups))
}

fn values(function: &Function, states: &BinaryArray) -> Vec<Option<f64>> {
    let (values, failed) = function.finish(states).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    values.as_primitive::<Float64Type>().iter().collect()
}

fn rows(failed: &[(usize, String)]) -> Vec<usize> {
    failed.iter().map(|(row, _)| *row).collect()
}

#[test]
fn rows_are_added_retracted_and_merged() {
    let function = Function::new(of(MEAN));
    assert!(function.can_retract().unwrap());
    let groups = Int32Array::from(vec![0, 1, 0, 0]);
    let columns = numbers([Some(1), Some(10), Some(2), None]);
    let added = function
        .accumulate(&no_states(3), &groups, &columns)
        .unwrap();
    assert!(added.failed.is_empty(), "{:?}", added.failed);
    assert!(added.states.is_null(2));
    assert_eq!(
        values(&function, &added.states),
        [Some(1.5), Some(10.0), None]
    );

    let one = Int32Array::from(vec![0]);
    let left = function
        .retract(&added.states, &one, &numbers([Some(1)]))
        .unwrap();
    assert_eq!(values(&function, &left), [Some(2.0), Some(10.0), None]);
    let failure = function
        .retract(&left, &one, &numbers([Some(13)]))
        .unwrap_err();
    assert!(
        failure.is_final && failure.reason.contains("thirteen"),
        "{failure:?}"
    );

    let others = BinaryArray::from_iter_values([added.states.value(0), added.states.value(1)]);
    let twice = Int32Array::from(vec![1, 1]);
    let merged = function.merge(&added.states, &twice, &others).unwrap();
    assert_eq!(values(&function, &merged), [Some(1.5), Some(5.75), None]);
}

/// The object had counted a row before it raised.
#[test]
fn a_row_that_raises_changes_nothing() {
    let function = Function::new(of(MEAN));
    let groups = Int32Array::from(vec![0, 1, 0, 0, 1, 0, 1]);
    let columns = numbers([
        Some(1),
        Some(2),
        Some(13),
        Some(4),
        Some(13),
        Some(13),
        Some(9),
    ]);
    let added = function
        .accumulate(&no_states(2), &groups, &columns)
        .unwrap();
    assert_eq!(rows(&added.failed), [2, 4, 5]);
    let reason = &added.failed[0].1;
    assert!(
        reason.contains("line 9, in accumulate") && reason.ends_with("ValueError: thirteen"),
        "{reason}"
    );
    assert_eq!(values(&function, &added.states), [Some(2.5), Some(5.5)]);
}

#[test]
fn what_merge_raises_is_final() {
    let text = MEAN.replace("self.n + other.n", "other.missing");
    let function = Function::new(of(&text));
    let one = Int32Array::from(vec![0]);
    let added = function.accumulate(&no_states(1), &one, &numbers([Some(1)]));
    let states = added.unwrap().states;
    let failure = function.merge(&states, &one, &states).unwrap_err();
    assert!(failure.is_final, "{failure:?}");
    let end = "AttributeError: 'f' object has no attribute 'missing'";
    assert!(failure.reason.ends_with(end), "{failure:?}");
}

#[test]
fn a_scan_has_the_value_after_each_row() {
    let function = Function::new(of(MEAN));
    let groups = Int32Array::from(vec![0, 1, 0, 0, 1, 0]);
    let columns = numbers([Some(1), Some(2), Some(13), Some(4), None, Some(7)]);
    let (added, scanned) = function.scan(&no_states(2), &groups, &columns).unwrap();
    assert_eq!(rows(&added.failed), [2]);
    let wanted = Float64Array::from(vec![
        Some(1.0),
        Some(2.0),
        Some(1.0),
        Some(2.5),
        Some(2.0),
        Some(4.0),
    ]);
    assert_eq!(scanned.as_primitive::<Float64Type>(), &wanted);
    assert_eq!(values(&function, &added.states), [Some(4.0), Some(2.0)]);
}

#[test]
fn a_row_that_kills_its_worker_is_left_out_and_no_other_one() {
    let text = MEAN.replace("raise ValueError('thirteen')", "import os; os._exit(7)");
    let function = Function::new(of(&text));
    let groups = Int32Array::from(vec![0, 0, 1, 1, 0]);
    let columns = numbers([Some(1), Some(3), Some(13), Some(5), Some(8)]);
    let added = function
        .accumulate(&no_states(2), &groups, &columns)
        .unwrap();
    let wanted = [(2, "its worker has ended with code 7".to_string())];
    assert_eq!(added.failed, wanted);
    assert_eq!(values(&function, &added.states), [Some(4.0), Some(5.0)]);
    let (_, scanned) = function.scan(&no_states(2), &groups, &columns).unwrap();
    let wanted = Float64Array::from(vec![Some(1.0), Some(2.0), None, Some(5.0), Some(4.0)]);
    assert_eq!(scanned.as_primitive::<Float64Type>(), &wanted);
}

#[test]
fn a_group_whose_value_kills_or_has_another_type_fails_alone() {
    let text = MEAN.replace(
        "        return self.total / self.n if self.n else None",
        "        import os, time
        if self.total == 2: os._exit(7)
        if self.total == 3: return 'three'
        if self.total == 4: time.sleep(60)
        return self.total",
    );
    let function = Function::new(Definition {
        timeout: Duration::from_secs(2),
        ..of(&text)
    });
    let groups = Int32Array::from(vec![0, 1, 2, 3, 4]);
    let columns = numbers([Some(1), Some(2), Some(3), Some(4), Some(5)]);
    let added = function
        .accumulate(&no_states(5), &groups, &columns)
        .unwrap();
    let (finished, failed) = function.finish(&added.states).unwrap();
    let wanted = Float64Array::from(vec![Some(1.0), None, None, None, Some(5.0)]);
    assert_eq!(finished.as_primitive::<Float64Type>(), &wanted);
    assert_eq!(rows(&failed), [1, 2, 3]);
    assert_eq!(failed[0].1, "its worker has ended with code 7");
    assert_eq!(
        failed[1].1,
        "TypeError: the result 'three' is not a value of DOUBLE"
    );
    assert!(
        failed[2].1.starts_with("it has taken longer than 2s"),
        "{failed:?}"
    );
}

#[test]
fn a_state_that_cant_be_pickled_is_final_and_names_the_attribute() {
    let text = MEAN.replace("self.n += 1", "self.n += 1; self.last = lambda: x");
    let function = Function::new(of(&text));
    let one = Int32Array::from(vec![0]);
    let failed = function.accumulate(&no_states(1), &one, &numbers([Some(1)]));
    let failure = failed.unwrap_err();
    assert!(failure.is_final);
    let begin = "its state can't be pickled: attribute 'last' of f: ";
    assert!(failure.reason.starts_with(begin), "{failure:?}");
}

#[test]
fn what_sql_cant_call_is_found_when_the_text_is_loaded() {
    let lock = MEAN.replace(
        "self.n, self.total = 0, 0",
        "import threading; self.n = threading.Lock()",
    );
    let cases = [
        (true, "def f(x): return x", "'f' is not a class", 1),
        (
            true,
            "\nclass f:\n    def merge(self, o): pass",
            "class 'f' has no accumulate and no finish",
            2,
        ),
        (
            true,
            &MEAN.replace("accumulate(self, x)", "accumulate(self, x, y)"),
            "accumulate(x, y) can't be",
            6,
        ),
        (
            true,
            &lock,
            "its state can't be pickled: attribute 'n' of f: ",
            2,
        ),
        (
            true,
            "class g: pass",
            "the text does not define 'f': add class f: …",
            0,
        ),
        (false, "\nclass f: pass", "'f' is a class", 2),
        (
            false,
            "import math\ndef f(): return 1",
            "f() can't be called with 1 argument",
            2,
        ),
        (
            false,
            "def f(x, y): return 1",
            "f(x, y) can't be called with 1 argument",
            1,
        ),
    ];
    for (is_aggregate, text, message, line) in cases {
        let function = Function::new(Definition {
            is_aggregate,
            ..definition(text, &[DataType::Int64], DataType::Float64)
        });
        let problem = function.start(true).unwrap_err();
        assert!(problem.message.contains(message), "{problem:?}");
        let found = problem.place.map_or(0, |(line, _)| line);
        assert_eq!(found, line, "{problem:?}");
    }
    for text in [
        "def f(x, y=1): return x",
        "def f(*all): return 1",
        "import math\nf = math.sqrt",
    ] {
        let function = definition(text, &[DataType::Int64], DataType::Float64);
        Function::new(function).start(true).unwrap();
    }
}

#[test]
fn groups_get_arrays() {
    let Some(python) = python_with_arrow() else {
        return;
    };
    let text = "
import pyarrow.compute as pc
class f:
    def __init__(self):
        self.n, self.total = 0, 0
    def accumulate(self, x):
        self.n += len(x)
        if pc.any(pc.equal(x, 13)).as_py():
            raise ValueError('thirteen')
        self.total += pc.sum(x).as_py()
    def merge(self, other):
        pass
    def finish(self):
        return self.total / self.n if self.n else None
";
    let function = Function::new(Definition {
        mode: Mode::Columns,
        python: Some(python),
        ..of(text)
    });
    assert!(!function.can_retract().unwrap());
    let groups = Int32Array::from(vec![0, 1, 0, 0, 1, 0, 1, 0]);
    let columns = numbers([
        Some(1),
        Some(2),
        Some(13),
        Some(4),
        Some(13),
        Some(13),
        Some(9),
        None,
    ]);
    let added = function
        .accumulate(&no_states(3), &groups, &columns)
        .unwrap();
    assert_eq!(rows(&added.failed), [2, 4, 5]);
    assert_eq!(
        values(&function, &added.states),
        [Some(2.5), Some(5.5), None]
    );
    let (_, scanned) = function.scan(&added.states, &groups, &columns).unwrap();
    assert_eq!(scanned.len(), 8);
    assert_eq!(scanned.as_primitive::<Float64Type>().value(7), 2.5);
}
