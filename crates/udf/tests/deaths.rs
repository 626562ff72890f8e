//! Workers that die, hang, or want too much memory.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::DataType;
use slackwater_udf::{Definition, Function};

use super::definition;

fn numbers(values: impl IntoIterator<Item = i64>) -> Vec<ArrayRef> {
    vec![Arc::new(Int64Array::from_iter_values(values))]
}

fn of_number(text: &str) -> Definition {
    definition(text, &[DataType::Int64], DataType::Int64)
}

const KILLER: &str = "
import ctypes, os, signal
def f(x):
    if x == -1:
        ctypes.string_at(0)
    if x == -2:
        os._exit(3)
    if x == -3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x
";

#[test]
fn a_death_names_the_row_and_how_it_came() {
    let function = Function::new(of_number(KILLER));
    let cases = [
        (-1, "its worker was killed by signal 11 (SIGSEGV)"),
        (-2, "its worker has ended with code 3"),
        (-3, "its worker was killed by signal 9"),
    ];
    for (number, wanted) in cases {
        let failure = function
            .call(&numbers([1, 2, 3, number, 5]), 5)
            .unwrap_err();
        assert_eq!(failure.row, Some(3), "{failure:?}");
        assert!(failure.reason.contains(wanted), "{failure:?}");
        assert!(!failure.is_final);
        // Another worker takes its place.
        assert!(function.call(&numbers([1, 2]), 2).is_ok());
    }
}

#[test]
fn a_function_that_always_dies_is_given_up() {
    let function = Function::new(of_number("import os\ndef f(x): os._exit(1)"));
    let mut calls = 0;
    let last = loop {
        let failure = function.call(&numbers([1]), 1).unwrap_err();
        calls += 1;
        if failure.is_final {
            break failure;
        }
        assert!(calls < 100);
    };
    let wanted =
        "its workers have died 24 times one after the other; the last time has ended with code 1";
    // A row is called twice before it is blamed.
    assert_eq!((calls, last.reason.as_str()), (12, wanted));
    // It is not tried again.
    let again = function.call(&numbers([1]), 1).unwrap_err();
    assert!(again.is_final, "{again:?}");
}

#[test]
fn a_worker_that_others_kill_is_replaced_and_no_row_is_blamed() {
    let function = Function::new(of_number("import os\ndef f(x): return os.getpid()"));
    let mut before = 0;
    for _ in 0..3 {
        let result = function.call(&numbers([1]), 1).unwrap();
        let process = result.as_primitive::<Int64Type>().value(0);
        assert_ne!(process, before);
        before = process;
        let process = rustix::process::Pid::from_raw(process as i32).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }
    // Also if it is killed at a row.
    let text = "
import os, signal
def f(x):
    path = f'/tmp/slackwater-udf-{os.getppid()}-{x}'
    if not os.path.exists(path):
        open(path, 'w').close()
        os.kill(os.getpid(), signal.SIGKILL)
    os.remove(path)
    return x
";
    let function = Function::new(of_number(text));
    assert!(function.call(&numbers([7]), 1).is_ok());
}

#[test]
fn a_call_that_hangs_is_killed_and_one_that_moves_on_is_not() {
    let text = "
import time
def f(x):
    time.sleep(3600 if x < 0 else 0.05)
    return x
";
    let function = Function::new(Definition {
        timeout: Duration::from_millis(400),
        ..of_number(text)
    });
    // Twice as long as the limit, which is for a row.
    assert!(function.call(&numbers(0..16), 16).is_ok());
    let failure = function.call(&numbers([0, 1, -1, 3]), 4).unwrap_err();
    assert_eq!(failure.row, Some(2), "{failure:?}");
    assert!(
        failure.reason.contains("longer than 400ms for a row"),
        "{failure:?}"
    );
    assert!(function.call(&numbers([1]), 1).is_ok());
}

#[test]
fn memory_is_bounded_and_too_much_rejects_the_row() {
    let text = "
def f(x):
    return len(bytearray(x << 20)) >> 20
";
    let function = Function::new(Definition {
        memory: Some(256 << 20),
        ..of_number(text)
    });
    let failure = function.call(&numbers([1, 10, 1000, 20]), 4).unwrap_err();
    assert_eq!(failure.row, Some(2), "{failure:?}");
    assert!(failure.reason.contains("MemoryError"), "{failure:?}");
    let result = function.call(&numbers([1, 10, 20]), 3).unwrap();
    assert_eq!(result.as_primitive::<Int64Type>().values(), &[1, 10, 20]);
}

#[test]
fn a_function_that_forks_or_leaves_children_does_not_hold_up_its_end() {
    let text = "
import os, signal, subprocess
subprocess.Popen(['sleep', '60'], start_new_session=True)
def f(x):
    if x < 0:
        if os.fork() == 0:
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
        signal.pause()
    return x
";
    let function = Function::new(of_number(text));
    assert!(function.call(&numbers([1]), 1).is_ok());
    let failure = function.call(&numbers([1, -1]), 2).unwrap_err();
    assert_eq!(failure.row, Some(1), "{failure:?}");
    assert!(failure.reason.contains("signal 9"), "{failure:?}");
}

/// The descriptors, and the children, of this process.
fn held() -> (usize, Vec<String>) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().map(str::to_string));
    }
    (descriptors, children)
}

#[test]
fn nothing_is_left_of_a_function() {
    // In a process of its own: other tests have workers, too.
    const SELF: &str = "deaths::nothing_is_left_of_a_function";
    if std::env::var_os("SLACKWATER_ALONE").is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", SELF, "--nocapture"])
            .env("SLACKWATER_ALONE", "1")
            .output()
            .unwrap();
        assert!(
            alone.status.success(),
            "{}",
            String::from_utf8_lossy(&alone.stderr)
        );
        return;
    }
    // The thread that starts processes stays.
    drop(start());
    let before = held();
    for _ in 0..3 {
        let function = start();
        assert!(held().1.len() == 1, "{:?}", held());
        function.call(&numbers([1, -3]), 2).unwrap_err();
        assert!(function.call(&numbers([1]), 1).is_ok());
        drop(function);
    }
    // The threads that forward output end after their processes.
    let mut left = held();
    for _ in 0..1000 {
        if left == before {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        left = held();
    }
    assert_eq!(left, before);
}

fn start() -> Function {
    let function = Function::new(of_number(KILLER));
    function.start(true).unwrap();
    function
}

/// The one that is asked for its version, and the one that is to load the text.
#[test]
fn regression_an_interpreter_that_is_killed_while_it_starts_is_started_again() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("slackwater-starts-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (python, starts) = (folder.join("python"), folder.join("starts"));
    let script = format!(
        "#!/bin/sh
echo >> {0}
case $(wc -l < {0}) in 1|3|4) kill -9 $$ ;; esac
exec python3 \"$@\"
",
        starts.display()
    );
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
    let function = Function::new(Definition {
        python: Some(python.display().to_string()),
        ..of_number("def f(x): return x")
    });
    assert!(function.call(&numbers([1, 2]), 2).is_ok());
    assert_eq!(fs::read_to_string(starts).unwrap().lines().count(), 5);
    fs::remove_dir_all(folder).unwrap();
}
