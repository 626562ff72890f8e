//! The setting of functions in Python.

use super::setting::Setting;
use super::topic::Topic;

/// `python`.
pub(super) const PYTHON: Setting = Setting {
    name: "python",
    values: "the path or name of an interpreter, or 'auto'",
    default: "'auto'",
    since: "0.1.0",
    topic: Topic::Results,
    meaning: "the interpreter that runs functions in Python",
    more: "`'auto'`: `python3` of the environment variable VIRTUAL_ENV, otherwise of PATH. It applies to the \
    functions that are declared after it; a function's option `'python'` takes precedence \
    ([functions in Python](python-functions.md)).",
    set: |settings, value| {
        settings.python = match value.trim() {
            "" => return None,
            "auto" => None,
            python => Some(python.to_string()),
        };
        Some(())
    },
};
