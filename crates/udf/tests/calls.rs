//! What a function gets, what it may return, and what it raises.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int32Array, Int64Array, StringViewArray};
use arrow_schema::{DataType, TimeUnit};
use slackwater_udf::{Definition, Function, Mode};

use super::{definition, python_with_arrow};

fn numbers(values: impl IntoIterator<Item = i64>) -> Vec<ArrayRef> {
    vec![Arc::new(Int64Array::from_iter_values(values))]
}

/// A function of one BIGINT that returns one.
fn of_number(text: &str) -> Function {
    Function::new(definition(text, &[DataType::Int64], DataType::Int64))
}

#[test]
fn arguments_of_several_types_and_none() {
    let text = "
import math
def f(x, y, times):
    return math.hypot(x, y) * times
";
    let types = [DataType::Float64, DataType::Float64, DataType::Int32];
    let function = Function::new(definition(text, &types, DataType::Float64));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![3.0, 6.0])),
        Arc::new(Float64Array::from(vec![4.0, 8.0])),
        Arc::new(Int32Array::from(vec![1, 10])),
    ];
    let result = function.call(&columns, 2).unwrap();
    assert_eq!(result.as_primitive::<Float64Type>().values(), &[5.0, 100.0]);
    let constant = Function::new(definition("def f(): return 7", &[], DataType::Int64));
    let result = constant.call(&[], 3).unwrap();
    assert_eq!(result.as_primitive::<Int64Type>().values(), &[7, 7, 7]);
}

#[test]
fn rows_with_null_are_left_out_unless_they_are_wanted() {
    let column = Int64Array::from(vec![None, Some(4), None, Some(6)]);
    let columns: Vec<ArrayRef> = vec![Arc::new(column)];
    let function = of_number("def f(x): return x + 1");
    let result = function.call(&columns, 4).unwrap();
    let wanted = Int64Array::from(vec![None, Some(5), None, Some(7)]);
    assert_eq!(result.as_primitive::<Int64Type>(), &wanted);
    let text = "def f(x): return -1 if x is None else None";
    let function = Function::new(Definition {
        takes_nulls: true,
        ..definition(text, &[DataType::Int64], DataType::Int64)
    });
    let result = function.call(&columns, 4).unwrap();
    let wanted = Int64Array::from(vec![Some(-1), None, Some(-1), None]);
    assert_eq!(result.as_primitive::<Int64Type>(), &wanted);
}

#[test]
fn what_a_row_raises_names_the_row_and_the_line() {
    let function = of_number("def f(x):\n    return 10 // x\n");
    let failure = function.call(&numbers([1, 2, 0, 4]), 4).unwrap_err();
    assert_eq!(failure.row, Some(2));
    assert!(!failure.is_final);
    let reason = &failure.reason;
    assert!(
        reason.contains("File \"<function f>\", line 2, in f"),
        "{reason}"
    );
    assert!(reason.contains("return 10 // x"), "{reason}");
    assert!(reason.contains("ZeroDivisionError"), "{reason}");
    assert!(!reason.contains("slackwater_worker"), "{reason}");
    // The worker lives on, and knows rows among those with NULL.
    let column = Int64Array::from(vec![None, Some(1), None, Some(0)]);
    let failure = function.call(&[Arc::new(column)], 4).unwrap_err();
    assert_eq!(failure.row, Some(3));
    assert!(function.call(&numbers([5]), 1).is_ok());
}

#[test]
fn results_of_other_types_are_refused_with_their_row() {
    let cases = [
        (
            "'three'",
            DataType::Int64,
            "the result 'three' is not a value of BIGINT",
        ),
        (
            "2.5",
            DataType::Int64,
            "the result 2.5 is not a value of BIGINT",
        ),
        ("300", DataType::Int8, "a result does not fit TINYINT"),
        (
            "1",
            DataType::Utf8View,
            "the result 1 is not a value of STRING",
        ),
        (
            "1",
            DataType::Boolean,
            "the result 1 is not a value of BOOLEAN",
        ),
        (
            "'a'",
            DataType::Binary,
            "the result 'a' is not a value of BYTES",
        ),
        (
            "'2024-01-01'",
            DataType::Date32,
            "the result '2024-01-01' is not a value of DATE",
        ),
        (
            "5",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            "the result 5 is not a value of TIMESTAMP",
        ),
        (
            "1000",
            DataType::Decimal128(5, 2),
            "1000 does not fit DECIMAL(5, 2)",
        ),
    ];
    for (value, result, wanted) in cases {
        let text = format!("def f(x): return {value} if x == 2 else None");
        let function = Function::new(definition(&text, &[DataType::Int64], result));
        let failure = function.call(&numbers([0, 1, 2, 3]), 4).unwrap_err();
        assert_eq!(failure.row, Some(2), "{failure:?}");
        assert!(failure.reason.ends_with(wanted), "{}", failure.reason);
    }
}

#[test]
fn a_text_that_can_t_be_loaded_is_a_problem_with_a_place() {
    let cases = [
        ("def f(x)\n    return x\n", "SyntaxError", Some((1, 9))),
        (
            "import math\nimport nowhere_at_all\n",
            "nowhere_at_all",
            Some((2, 0)),
        ),
        ("def g(x): return x", "does not define 'f'", None),
        ("1 / 0", "ZeroDivisionError: division by zero", Some((1, 0))),
        ("raise SystemExit(3)", "SystemExit: 3", Some((1, 0))),
        (
            "import os\nos._exit(3)",
            "has ended with code 3 while it started",
            None,
        ),
    ];
    for (text, wanted, place) in cases {
        let problem = of_number(text).start(true).unwrap_err();
        assert!(problem.message.contains(wanted), "{problem:?}");
        assert_eq!(problem.place, place, "{problem:?}");
        // Called without being started, it ends the query.
        let failure = of_number(text).call(&numbers([1]), 1).unwrap_err();
        assert!(
            failure.is_final && failure.reason.contains(wanted),
            "{failure:?}"
        );
    }
    let function = Function::new(Definition {
        python: Some("/nowhere/python3".to_string()),
        ..definition("", &[], DataType::Int64)
    });
    let problem = function.start(true).unwrap_err();
    assert!(
        problem.message.contains("can't start '/nowhere/python3'"),
        "{problem:?}"
    );
    assert!(problem.hint.contains("SET 'python'"), "{problem:?}");
}

#[test]
fn the_output_does_not_get_into_the_protocol() {
    let text = "
import os, sys
def f(x):
    print('out', x)
    sys.stderr.write('err\\n')
    os.write(1, b'more')
    sys.stdin.read()
    return x
";
    let function = of_number(text);
    let result = function.call(&numbers(0..3), 3).unwrap();
    assert_eq!(result.len(), 3);
}

/// What the program counts for them until they have ended.
#[test]
fn workers_are_known_as_long_as_they_run() {
    let function = of_number("import os\ndef f(x): return os.getpid()");
    let result = function.call(&numbers([1]), 1).unwrap();
    let process = result.as_primitive::<Int64Type>().value(0) as u32;
    assert!(slackwater_udf::running().contains(&process));
    function.end();
    assert!(!slackwater_udf::running().contains(&process));
}

#[test]
fn several_threads_have_a_worker_each_and_no_more_than_they_may() {
    let text = "import os\ndef f(x): return os.getpid()";
    for (most, wanted) in [(None, 4), (Some(2), 2), (Some(1), 1)] {
        let function = Function::new(Definition {
            workers: most,
            ..definition(text, &[DataType::Int64], DataType::Int64)
        });
        let all = std::sync::Barrier::new(4);
        let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    all.wait();
                    for _ in 0..20 {
                        let result = function.call(&numbers([1]), 1).unwrap();
                        let process = result.as_primitive::<Int64Type>().value(0);
                        seen.lock().unwrap().insert(process);
                    }
                });
            }
        });
        let seen = seen.lock().unwrap().len();
        assert!((1..=wanted).contains(&seen), "{seen} processes");
    }
}

#[test]
fn columns_may_be_arrow_numpy_or_a_list() {
    let Some(python) = python_with_arrow() else {
        return;
    };
    let call = |text: &str, columns: &[ArrayRef], result: DataType| {
        let arguments = columns.iter().map(|column| column.data_type().clone());
        let function = Function::new(Definition {
            mode: Mode::Columns,
            python: Some(python.clone()),
            ..definition(text, &arguments.collect::<Vec<_>>(), result)
        });
        function.call(columns, columns.first().map_or(3, |column| column.len()))
    };
    let bodies = [
        "import pyarrow.compute as pc\ndef f(x): return pc.multiply(x, 2)",
        "import numpy\ndef f(x): return numpy.asarray(x) * 2",
        "import numpy\ndef f(x): return numpy.asarray(x) * 2.0",
        "def f(x): return [value.as_py() * 2 for value in x]",
        "import pyarrow\ndef f(x): return pyarrow.chunked_array([[2, 4], [6]])",
        "import numpy\ndef f(x):\n  assert not numpy.asarray(x).flags.writeable\n  return [2, 4, 6]",
    ];
    for text in bodies {
        let result = call(text, &numbers([1, 2, 3]), DataType::Int64).unwrap();
        assert_eq!(
            result.as_primitive::<Int64Type>().values(),
            &[2, 4, 6],
            "{text}"
        );
    }
    let strings: Vec<ArrayRef> = vec![Arc::new(StringViewArray::from(vec!["a", "", "ßß"]))];
    let text = "import pyarrow.compute as pc\ndef f(x): return pc.utf8_upper(x)[:3]";
    let result = call(text, &strings, DataType::Utf8View).unwrap();
    let wanted = StringViewArray::from(vec!["A", "", "ẞẞ"]);
    assert_eq!(result.as_string_view().len(), wanted.len());
    let text = "def f(rows): return list(range(rows))";
    let result = call(text, &[], DataType::Int64).unwrap();
    assert_eq!(result.as_primitive::<Int64Type>().values(), &[0, 1, 2]);
    let wrong = [
        (
            "def f(x): return [1]",
            "it has returned 1 values for 3 rows",
        ),
        (
            "def f(x): return 1",
            "it has returned int instead of a column",
        ),
        ("def f(x): return ['a', 'b', 'c']", "Arrow"),
        (
            "import numpy\ndef f(x): return numpy.array([.5, 1, 1])",
            "double instead of int64",
        ),
        ("def f(x): return x[5]", "IndexError"),
    ];
    for (text, wanted) in wrong {
        let failure = call(text, &numbers([1, 2, 3]), DataType::Int64).unwrap_err();
        assert!(failure.reason.contains(wanted), "{failure:?}");
        assert_eq!(failure.row, None);
    }
}

#[test]
fn columns_without_pyarrow_say_what_to_install() {
    // An interpreter that finds no packages.
    let folder = tempfile_folder();
    let python = folder.join("python");
    std::fs::write(&python, "#!/bin/sh\nexec python3 -S -I \"$@\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&python, mode).unwrap();
    let function = Function::new(Definition {
        mode: Mode::Columns,
        python: Some(python.display().to_string()),
        ..definition("def f(x): return x", &[DataType::Int64], DataType::Int64)
    });
    let problem = function.start(true).unwrap_err();
    std::fs::remove_dir_all(folder).unwrap();
    assert!(problem.message.contains("needs pyarrow"), "{problem:?}");
    assert!(
        problem.message.contains("-m pip install pyarrow"),
        "{problem:?}"
    );
}

fn tempfile_folder() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("slackwater-udf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
