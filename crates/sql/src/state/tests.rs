use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use serde_json::json;

use super::*;

fn column(name: &str, data_type: &DataType) -> Column {
    Column {
        name: name.to_string(),
        data_type: Type::of(data_type),
    }
}

fn tumbling(size: i64) -> Window {
    Window {
        kind: WindowKind::Aligned,
        size,
        slide: size,
        unit: Unit::Millisecond,
    }
}

/// The identity of sums per user and window.
fn sums() -> Aggregate {
    let amount = column("amount", &DataType::Int32);
    Aggregate {
        keys: vec![column("user", &DataType::Utf8View)],
        aggregates: vec![
            Call {
                function: Function::Count,
                arguments: Vec::new(),
                filter: false,
            },
            Call {
                function: Function::Sum {
                    to: Type::of(&DataType::Int64),
                },
                arguments: vec![amount],
                filter: true,
            },
        ],
        window: Some(tumbling(10_000)),
        form: AggregateForm::Plain,
    }
}

fn side(columns: &[(&str, DataType)], keys: &[usize]) -> Side {
    Side {
        rows: columns
            .iter()
            .map(|(name, data_type)| column(name, data_type))
            .collect(),
        keys: keys.to_vec(),
    }
}

#[test]
fn the_json_of_an_identity_does_not_change() {
    let stored = json!({
        "version": 1,
        "operator": "aggregate",
        "keys": [{"name": "user", "type": "STRING"}],
        "aggregates": [
            {"function": {"name": "count"}, "arguments": []},
            {"function": {"name": "sum", "type": "BIGINT"},
             "arguments": [{"name": "amount", "type": "INT"}], "filter": true},
        ],
        "window": {"kind": "aligned", "size": 10000, "slide": 10000, "unit": "ms"},
        "form": "plain",
    });
    let identity = StateIdentity::Aggregate(sums());
    assert_eq!(identity.to_json(), stored);
    assert_eq!(StateIdentity::from_json(&stored), Ok(identity));
}

#[test]
fn a_difference_names_the_part_and_both_values() {
    let (before, mut now) = (sums(), sums());
    now.window = Some(tumbling(20_000));
    let json = |aggregate: &Aggregate| StateIdentity::Aggregate(aggregate.clone()).to_json();
    assert_eq!(
        StateIdentity::difference(&json(&before), &json(&before)),
        None
    );
    assert_eq!(
        StateIdentity::difference(&json(&before), &json(&now)).unwrap(),
        "its state has other windows: 'tumbling 10 s, of TIMESTAMP(3)' before, \
         'tumbling 20 s, of TIMESTAMP(3)' now"
    );
    now.window = before.window;
    now.aggregates.pop();
    assert_eq!(
        StateIdentity::difference(&json(&before), &json(&now)).unwrap(),
        "its state has other aggregates: 'COUNT(), SUM(amount INT) as BIGINT FILTER' before, 'COUNT()' now"
    );
    let source = StateIdentity::Source(Source {
        connector: "file".to_string(),
    });
    assert_eq!(
        StateIdentity::difference(&json(&before), &source.to_json()).unwrap(),
        "it was an aggregation, and is a source"
    );
}

#[test]
fn a_later_version_is_rejected() {
    let now = StateIdentity::Aggregate(sums()).to_json();
    let mut later = now.clone();
    later["version"] = json!(2);
    let reason = StateIdentity::difference(&later, &now).unwrap();
    assert!(
        reason.contains("has version 2, and this program supports versions up to 1"),
        "{reason}"
    );
    // An unknown field has a meaning that this version doesn't know, so the state differs.
    let mut more = now.clone();
    more["spills"] = json!(true);
    let reason = StateIdentity::difference(&more, &now).unwrap();
    assert!(reason.contains("spills"), "{reason}");
    assert!(StateIdentity::difference(&json!({"operator": "over"}), &now).is_some());
    assert!(StateIdentity::difference(&json!(1), &now).is_some());
}

#[test]
fn types_have_names_of_their_own() {
    let timestamp = |unit| DataType::Timestamp(unit, None);
    let item = |data_type, nullable| Arc::new(Field::new_list_field(data_type, nullable));
    let row = DataType::Struct(
        vec![
            Field::new("a, `b`", DataType::List(item(DataType::Int32, false)), true),
            Field::new("c", timestamp(TimeUnit::Second), false),
        ]
        .into(),
    );
    // The type, its name, and what Arrow 59 printed for it with {} and {:?}.
    let all = [
        (DataType::Boolean, "BOOLEAN", "Boolean", "Boolean"),
        (DataType::Int8, "TINYINT", "Int8", "Int8"),
        (DataType::UInt64, "BIGINT UNSIGNED", "UInt64", "UInt64"),
        (DataType::Float64, "DOUBLE", "Float64", "Float64"),
        (DataType::Utf8View, "STRING", "Utf8View", "Utf8View"),
        (DataType::Utf8, "STRING32", "Utf8", "Utf8"),
        (DataType::Binary, "BYTES", "Binary", "Binary"),
        (DataType::Date32, "DATE", "Date32", "Date32"),
        (
            DataType::Decimal128(10, 2),
            "DECIMAL(10, 2)",
            "Decimal128(10, 2)",
            "Decimal128(10, 2)",
        ),
        (
            timestamp(TimeUnit::Millisecond),
            "TIMESTAMP(3)",
            "Timestamp(ms)",
            "Timestamp(Millisecond, None)",
        ),
        (
            DataType::Time64(TimeUnit::Microsecond),
            "TIME(6)",
            "Time64(µs)",
            "Time64(Microsecond)",
        ),
        (
            DataType::Duration(TimeUnit::Nanosecond),
            "DURATION(9)",
            "Duration(ns)",
            "Duration(Nanosecond)",
        ),
        (
            DataType::List(item(DataType::Utf8View, true)),
            "ARRAY<STRING>",
            "List(Utf8View)",
            "List(Field { data_type: Utf8View, nullable: true })",
        ),
        (
            row,
            "ROW<`a, ``b``` ARRAY<INT NOT NULL>, `c` TIMESTAMP(0) NOT NULL>",
            "Struct(\"a, `b`\": List(non-null Int32), \"c\": non-null Timestamp(s))",
            "Struct([Field { name: \"a, `b`\", data_type: List(Field { data_type: Int32 }), \
             nullable: true }, Field { name: \"c\", data_type: Timestamp(Second, None) }])",
        ),
    ];
    for (data_type, name, display, debug) in all {
        let named = Type::of(&data_type);
        assert_eq!(named.0, name);
        assert_eq!(
            legacy::arrow_strings(&named),
            (display.to_string(), debug.to_string())
        );
    }
}

#[test]
fn the_old_format_does_not_change() {
    let aspects = |identity: &StateIdentity| {
        let aspects = legacy::aspects(identity).into_iter();
        let aspects = aspects.map(|(name, value)| format!("{name}: {value}"));
        aspects.collect::<Vec<String>>()
    };
    assert_eq!(
        aspects(&StateIdentity::Aggregate(sums())),
        [
            "keys: user Utf8View",
            "aggregates: Count(), Sum { to: Int64 }(amount Int32) FILTER",
            "windows: Windows { size: 10000, slide: 10000, unit: Millisecond }",
        ]
    );
    let join = StreamJoin {
        left: side(
            &[("a.id", DataType::Int32), ("a.k", DataType::Utf8View)],
            &[1],
        ),
        right: side(&[("b.k", DataType::Utf8View)], &[0]),
        kind: JoinKind::Semi,
        settles: true,
    };
    assert_eq!(
        aspects(&StateIdentity::StreamJoin(join)),
        [
            "rows: a.id Int32, a.k Utf8View by [1]; b.k Utf8View by [0]",
            "kind: Semi, forgets rows that have a partner",
        ]
    );
    let over = Over {
        rows: TimedSide {
            rows: vec![column("id", &DataType::Int32)],
            keys: Vec::new(),
            time: 0,
        },
        functions: vec![OverCall {
            function: OverFunction::Aggregate {
                function: Function::Quantile {
                    fraction: "0.5".to_string(),
                    data_type: Type::of(&DataType::Float64),
                },
                frame: Frame::Rows(Some(3)),
            },
            arguments: vec![0],
            filter: None,
        }],
    };
    assert_eq!(
        aspects(&StateIdentity::Over(over)),
        [
            "rows: id Int32 by [] at 0",
            "functions: [OverCall { function: Aggregate { function: Quantile { fraction: 0.5, of: Float64 }, \
             frame: Rows(Some(3)) }, arguments: [0], filter: None }]",
        ]
    );
}

#[test]
fn parameters_that_datafusion_printed_are_ignored() {
    let mut now = sums();
    now.aggregates = vec![Call {
        function: Function::Other {
            function: "string_agg".to_string(),
            arguments: vec![Type::of(&DataType::Utf8View)],
            constants: vec!["'}'".to_string()],
            order: Vec::new(),
            ignore_nulls: false,
        },
        arguments: vec![column("name", &DataType::Utf8View)],
        filter: false,
    }];
    let now = StateIdentity::Aggregate(now);
    let mut stored = legacy::aspects(&now);
    stored[1].1 = "Other(string_agg([Utf8View], AggregateFunctionParams { \
                   args: [Literal(Utf8View(\"}\\\"{\"))], \
                   distinct: false }))(name Utf8View)"
        .to_string();
    assert_eq!(legacy::difference(&stored, &now), None);
    stored[1].1 = stored[1].1.replace("string_agg", "array_agg");
    assert_eq!(
        legacy::difference(&stored, &now).unwrap(),
        "its state has other aggregates: 'Other(array_agg([STRING]))(name STRING)' before, \
         'Other(string_agg([STRING]))(name STRING)' now"
    );
}
