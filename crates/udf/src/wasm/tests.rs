use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int8Array, Int32Array, Int64Array,
    StringViewArray, TimestampMillisecondArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::{WasmFunction, module_text, wasm_unsupported};
use crate::definition::WasmDefinition;

/// A module whose `same` returns its string, `pick` the address and length that it gets, and whose memory is
/// given out in one direction and taken back by `dealloc` if it was given out last.
const STRINGS: &str = r#"(module
  (memory (export "memory") 1 4)
  (global $top (mut i32) (i32.const 16))
  (func (export "alloc") (param $n i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $top))
    (global.set $top (i32.add (global.get $top) (local.get $n)))
    (block $enough
      (br_if $enough (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
      (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable)))
    (local.get $at))
  (func (export "dealloc") (param $at i32) (param $n i32)
    (if (i32.eq (i32.add (local.get $at) (local.get $n)) (global.get $top))
      (then (global.set $top (local.get $at)))))
  (func (export "same") (param $at i32) (param $n i32) (result i64)
    (i64.or
      (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32))
      (i64.extend_i32_u (local.get $n))))
  (func (export "pick") (param i64) (result i64) (local.get 0)))"#;

fn definition(
    module: &str,
    handler: &str,
    arguments: &[DataType],
    result: DataType,
) -> WasmDefinition {
    WasmDefinition {
        name: handler.to_string(),
        handler: handler.to_string(),
        module: module.to_string(),
        arguments: arguments.to_vec(),
        result,
        memory: 1 << 20,
        fuel: 100_000,
    }
}

fn function(module: &str, handler: &str, arguments: &[DataType], result: DataType) -> WasmFunction {
    WasmFunction::new(definition(module, handler, arguments, result)).unwrap()
}

/// A function with one argument and one result of a type, which returns what it gets.
fn same(data_type: DataType, wasm: &str) -> WasmFunction {
    let module =
        format!(r#"(module (func (export "f") (param {wasm}) (result {wasm}) (local.get 0)))"#);
    let result = data_type.clone();
    function(&module, "f", &[data_type], result)
}

#[test]
fn numbers_are_passed_and_nulls_are_left_out() {
    let module = r#"(module (func (export "add") (param i64 f64) (result f64)
        (f64.add (f64.convert_i64_s (local.get 0)) (local.get 1))))"#;
    let types = [DataType::Int64, DataType::Float64];
    let add = function(module, "add", &types, DataType::Float64);
    let columns: [ArrayRef; 2] = [
        Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)])),
        Arc::new(Float64Array::from(vec![Some(0.5), Some(1.0), Some(0.25)])),
    ];
    let results = add.call(&columns, 3).unwrap();
    assert_eq!(
        results.as_ref(),
        &Float64Array::from(vec![Some(1.5), None, Some(-2.75)])
    );
}

#[test]
fn values_of_all_types_come_back() {
    let times = TimestampMillisecondArray::from(vec![Some(-1), None, Some(i64::MAX)]);
    let cases: Vec<(ArrayRef, &str)> = vec![
        (
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            "i32",
        ),
        (
            Arc::new(Int8Array::from(vec![Some(i8::MIN), None, Some(i8::MAX)])),
            "i32",
        ),
        (
            Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(7)])),
            "i32",
        ),
        (
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(7)])),
            "i64",
        ),
        (
            Arc::new(Float64Array::from(vec![
                Some(f64::INFINITY),
                None,
                Some(-0.0),
            ])),
            "f64",
        ),
        (Arc::new(times), "i64"),
    ];
    for (column, wasm) in cases {
        let function = same(column.data_type().clone(), wasm);
        let results = function.call(&[Arc::clone(&column)], 3).unwrap();
        assert_eq!(&results, &column);
    }
}

#[test]
fn strings_are_copied_and_their_memory_is_used_again() {
    let text = function(STRINGS, "same", &[DataType::Utf8View], DataType::Utf8View);
    // More than the module's memory, all rows together.
    let rows = vec![
        Some("ä".repeat(30_000)),
        None,
        Some(String::new()),
        Some("b".repeat(50_000)),
    ];
    let column: ArrayRef = Arc::new(StringViewArray::from_iter(
        rows.into_iter().cycle().take(40),
    ));
    assert_eq!(&text.call(&[Arc::clone(&column)], 40).unwrap(), &column);
    let bytes = function(STRINGS, "same", &[DataType::Binary], DataType::Binary);
    let column: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&[0xff_u8, 0][..]), None]));
    assert_eq!(&bytes.call(&[Arc::clone(&column)], 2).unwrap(), &column);
}

#[test]
fn rows_that_fail_are_named_and_the_next_call_succeeds() {
    let module = r#"(module (func (export "f") (param i64) (result i64)
        (if (i64.eqz (local.get 0)) (then (loop (br 0))))
        (if (i64.eq (local.get 0) (i64.const 1)) (then unreachable))
        (i64.div_s (i64.const 10) (i64.sub (local.get 0) (i64.const 2)))))"#;
    let f = function(module, "f", &[DataType::Int64], DataType::Int64);
    let call = |numbers: Vec<i64>| {
        let rows = numbers.len();
        f.call(&[Arc::new(Int64Array::from(numbers))], rows)
    };
    for (number, said) in [(0, "'fuel' = '100000'"), (1, "panicked"), (2, "by zero")] {
        let failure = call(vec![3, number, 4]).unwrap_err();
        assert_eq!(failure.row, Some(1));
        assert!(
            failure.reason.contains(said) && !failure.is_final,
            "{failure:?}"
        );
    }
    assert_eq!(
        call(vec![3, 4]).unwrap().as_ref(),
        &Int64Array::from(vec![10, 5])
    );
}

#[test]
fn what_a_module_returns_is_checked() {
    let pick = function(STRINGS, "pick", &[DataType::Int64], DataType::Utf8View);
    let call = |address: i64, length: i64| {
        pick.call(
            &[Arc::new(Int64Array::from(vec![address << 32 | length]))],
            1,
        )
    };
    for (address, length) in [
        (65_530, 7),
        (1 << 31, 1),
        (0, 0xffff_ffff),
        (0xffff_ffff, 0xffff_ffff),
    ] {
        let failure = call(address, length).unwrap_err();
        assert!(
            failure.reason.contains("not in the module's memory"),
            "{failure:?}"
        );
    }
    let small = r#"(module (func (export "f") (param i32) (result i32)
        (i32.mul (local.get 0) (i32.const 2))))"#;
    let double = function(small, "f", &[DataType::Int8], DataType::Int8);
    let failure = double
        .call(&[Arc::new(Int8Array::from(vec![100]))], 1)
        .unwrap_err();
    assert!(
        failure
            .reason
            .contains("200 is not in the range of TINYINT"),
        "{failure:?}"
    );
    let liar = r#"(module (memory (export "memory") 1)
        (func (export "alloc") (param i32) (result i32) (i32.const -8))
        (func (export "f") (param i32 i32) (result i32) (i32.const 0)))"#;
    let liar = function(liar, "f", &[DataType::Utf8View], DataType::Int32);
    let text: ArrayRef = Arc::new(StringViewArray::from(vec!["nine bytes"]));
    assert!(
        liar.call(&[text], 1)
            .unwrap_err()
            .reason
            .contains("no room")
    );
}

#[test]
fn memory_is_bounded() {
    let module = r#"(module (memory 1)
        (func (export "f") (param i32) (result i32) (memory.grow (local.get 0))))"#;
    let f = function(module, "f", &[DataType::Int32], DataType::Int32);
    let results = f
        .call(&[Arc::new(Int32Array::from(vec![1, 16, 1]))], 3)
        .unwrap();
    assert_eq!(results.as_ref(), &Int32Array::from(vec![1, -1, 2]));
    let big = definition(
        "(module (memory 17) (func (export \"f\") (result i32) (i32.const 1)))",
        "f",
        &[],
        DataType::Int32,
    );
    assert!(WasmFunction::new(big).unwrap().start().is_err());
}

#[test]
fn modules_that_are_wrong() {
    let long = [DataType::Int64];
    let one = |module: &str, arguments: &[DataType]| {
        let made = WasmFunction::new(definition(module, "f", arguments, DataType::Int64));
        let problem = made.err().unwrap();
        format!("{}\n{}", problem.message, problem.hint)
    };
    for (module, said) in [
        ("(module", "it is not a module"),
        ("", "it is not a module"),
        ("AGFzbQEAAAA=AAA", "Base64 is broken"),
        ("AGFzbQEAAAAB", "it is not a module"),
        (r#"(module (import "env" "f" (func)))"#, "imports 'env.f'"),
        (
            r#"(module (func (export "g")))"#,
            "no function 'f'\nit needs f(i64) -> (i64); its functions are: g",
        ),
        (
            r#"(module (func (export "f") (param i32) (result i64) (i64.const 1)))"#,
            "exports f(i32) -> (i64)\nthe types in SQL need f(i64) -> (i64)",
        ),
    ] {
        let shown = one(module, &long);
        assert!(shown.contains(said), "{module}: {shown}");
    }
    let text = [DataType::Utf8View];
    let f = r#"(func (export "f") (param i32 i32) (result i64) (i64.const 1))"#;
    assert!(one(&format!("(module {f})"), &text).contains("exports no 'memory'"));
    let memory = format!(r#"(module (memory (export "memory") 1) {f})"#);
    assert!(one(&memory, &text).contains("no function 'alloc'"));
    let decimal = DataType::Decimal128(10, 2);
    assert_eq!(
        wasm_unsupported([&DataType::Int64, &decimal]),
        Some(&decimal)
    );
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    assert_eq!(wasm_unsupported([&DataType::Int64, &seconds]), None);
}

#[test]
fn a_binary_module_is_the_same_as_its_text() {
    // (module (func (export "f") (result i64) (i64.const 42)))
    let binary = [
        &b"\0asm\x01\0\0\0"[..],
        b"\x01\x05\x01\x60\x00\x01\x7e",
        b"\x03\x02\x01\x00",
        b"\x07\x05\x01\x01f\x00\x00",
        b"\x0a\x06\x01\x04\x00\x42\x2a\x0b",
    ]
    .concat();
    let f = function(&module_text(&binary), "f", &[], DataType::Int64);
    assert_eq!(
        f.call(&[], 2).unwrap().as_ref(),
        &Int64Array::from(vec![42, 42])
    );
}
