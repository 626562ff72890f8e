//! Random expressions give the same values, and fail for the same rows, with and without the rewrites.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::Schema;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{Expr, LogicalPlan};

use crate::expression::physical;
use crate::session::Session;
use crate::statement::{Statement, parse};

/// The columns, and their values in turn; an empty string is NULL.
const COLUMNS: [(&str, &str, &[&str]); 13] = [
    ("p", "BOOLEAN", &["true", "false", ""]),
    ("q", "BOOLEAN", &["", "true", "false", "false"]),
    ("t", "TINYINT", &["0", "1", "-128", "127", ""]),
    (
        "k",
        "INT",
        &["1", "", "2", "0", "-1", "2147483647", "-2147483648", "300"],
    ),
    (
        "n",
        "BIGINT",
        &[
            "1",
            "0",
            "",
            "9223372036854775807",
            "-9223372036854775808",
            "5000000000",
            "2",
        ],
    ),
    (
        "d",
        "DECIMAL(12, 3)",
        &["0.284", "-0.5", "1.5", "", "0", "999999999.999", "1", "2.5"],
    ),
    (
        "e",
        "DECIMAL(5, 1)",
        &["0.3", "", "1.5", "-9999.9", "1", "2.5", "0"],
    ),
    (
        "x",
        "DOUBLE",
        &[
            "1", "NaN", "1e300", "1e-300", "", "-0.5", "0", "0.3", "2.5", "inf",
        ],
    ),
    ("f", "FLOAT", &["0.3", "1", "", "NaN", "16777216", "2.5"]),
    (
        "a",
        "TIMESTAMP(3)",
        &[
            "1969-12-31 23:59:59.500",
            "2024-01-01 00:00:00",
            "",
            "1970-01-01 00:00:00",
            "5000-06-01 12:00:00.001",
        ],
    ),
    (
        "b",
        "TIMESTAMP(6)",
        &[
            "2024-01-01 00:00:00.000500",
            "1969-12-31 23:59:59.999999",
            "1970-01-01 00:00:00",
            "",
            "2024-01-01 00:00:00",
        ],
    ),
    (
        "day",
        "DATE",
        &["2024-01-01", "1969-12-31", "", "5000-06-01"],
    ),
    (
        "s",
        "STRING",
        &["", "x", "12", "-0.5", "2024-01-01", "abc%", "1"],
    ),
];

const ROWS: usize = 60;

/// A number from the environment: `EXPRESSIONS=100000 SEED=5 cargo test … simplify` tests more.
fn given(name: &str, default: usize) -> usize {
    let given = std::env::var(name).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn session() -> Session {
    let columns = COLUMNS.map(|(name, data_type, _)| format!("{name} {data_type}"));
    let text = format!("CREATE TABLE v ({})", columns.join(", "));
    let mut session = Session::new();
    let Statement::CreateTable(create) = parse(&text).unwrap().remove(0).statement else {
        panic!("a table");
    };
    let table = session.declared(&create).unwrap();
    session.add_table(table).unwrap();
    session
}

fn rows(session: &Session) -> RecordBatch {
    let schema = session.tables["v"].physical.clone();
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let columns = schema.fields().iter().zip(COLUMNS);
    let columns = columns
        .enumerate()
        .map(|(number, (field, (_, _, values)))| {
            // Each column repeats its values with another shift.
            let value = |row: usize| values[(row + row / values.len() * number) % values.len()];
            let strings = (0..ROWS).map(value);
            let strings = strings.map(|text| (!text.is_empty()).then_some(text));
            let strings: ArrayRef = Arc::new(StringArray::from_iter(strings));
            cast_with_options(&strings, field.data_type(), &strict).unwrap()
        });
    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn negation(&mut self) -> &'static str {
        self.pick(&["", "", "NOT "])
    }

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            let constants = [
                "0",
                "1",
                "2",
                "-1",
                "300",
                "0.3",
                "0.284",
                "1.5",
                "2.5",
                "1e300",
                "5000000000",
                "NULL",
            ];
            let columns = ["t", "k", "n", "d", "e", "x", "f"];
            return match self.below(3) {
                0 => self.pick(&constants).to_string(),
                _ => self.pick(&columns).to_string(),
            };
        }
        let one = self.number(depth - 1);
        match self.below(10) {
            0..=2 => {
                let to = [
                    "SMALLINT",
                    "INT",
                    "BIGINT",
                    "DECIMAL(12, 1)",
                    "DECIMAL(20, 5)",
                    "DOUBLE",
                    "FLOAT",
                ];
                let cast = self.pick(&["CAST", "CAST", "TRY_CAST"]);
                format!("{cast}({one} AS {})", self.pick(&to))
            }
            3 => format!("(- {one})"),
            4 | 5 => {
                let operator = self.pick(&["+", "-", "*", "/", "%"]);
                format!("({one} {operator} {})", self.number(0))
            }
            6 => format!(
                "CASE WHEN {} THEN {one} ELSE {} END",
                self.condition(depth - 1),
                self.number(0)
            ),
            7 => format!("COALESCE({one}, {})", self.number(0)),
            8 => format!(
                "{}({one})",
                self.pick(&["abs", "round", "floor", "ceil", "signum"])
            ),
            _ => format!("NULLIF({one}, {})", self.number(0)),
        }
    }

    fn integer(&mut self) -> String {
        let casts = [
            "k",
            "n",
            "t",
            "CAST(k AS BIGINT)",
            "(k + 1)",
            "2",
            "1",
            "0",
            "NULL",
        ];
        self.pick(&casts).to_string()
    }

    fn time(&mut self, depth: usize) -> String {
        let times = [
            "a",
            "b",
            "day",
            "a",
            "TIMESTAMP '2024-01-01 00:00:00'",
            "TIMESTAMP '2024-01-01 00:00:00.0005'",
            "TIMESTAMP '1969-12-31 23:59:59.5'",
            "DATE '2024-01-01'",
        ];
        let time = self.pick(&times).to_string();
        if depth == 0 {
            return time;
        }
        match self.below(4) {
            0 => format!("CAST({time} AS TIMESTAMP({}))", self.pick(&["0", "3", "6"])),
            1 => format!("FLOOR({time} TO {})", self.pick(&["YEAR", "DAY", "SECOND"])),
            2 => format!("CAST({time} AS DATE)"),
            _ => format!("({time} + INTERVAL '1' DAY)"),
        }
    }

    fn text(&mut self) -> String {
        let strings = [
            "s",
            "CAST(k AS STRING)",
            "CAST(a AS STRING)",
            "'x'",
            "'12'",
            "(s || 'x')",
            "upper(s)",
            "NULLIF(s, 'x')",
        ];
        self.pick(&strings).to_string()
    }

    fn length(&mut self) -> String {
        let lengths = [
            "(a - b)",
            "(b - TIMESTAMP '2024-01-01 00:00:00')",
            "INTERVAL '1' DAY",
            "INTERVAL '24' HOUR",
            "INTERVAL '500' MILLISECOND",
            "(-INTERVAL '36' HOUR)",
        ];
        self.pick(&lengths).to_string()
    }

    fn condition(&mut self, depth: usize) -> String {
        const COMPARISONS: [&str; 8] = [
            "=",
            "<>",
            "<",
            "<=",
            ">",
            ">=",
            "IS DISTINCT FROM",
            "IS NOT DISTINCT FROM",
        ];
        if depth > 0 && self.below(2) == 0 {
            let (one, other) = (self.condition(depth - 1), self.condition(depth - 1));
            return match self.below(8) {
                0..=2 => format!("({one} AND {other})"),
                3 | 4 => format!("({one} OR {other})"),
                5 => format!("(({one} AND {other}) OR ({one} AND p))"),
                6 => format!("(NOT {one})"),
                _ => {
                    let word =
                        self.pick(&["TRUE", "FALSE", "UNKNOWN", "NOT TRUE", "NOT FALSE", "NULL"]);
                    format!("({one} IS {word})")
                }
            };
        }
        let depth = depth.min(2);
        match self.below(16) {
            0 => self
                .pick(&["p", "q", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)", "1 = 1"])
                .to_string(),
            1..=4 => format!(
                "({} {} {})",
                self.number(depth),
                self.pick(&COMPARISONS),
                self.number(depth.min(1))
            ),
            5 | 6 => format!(
                "({} {} {})",
                self.time(depth),
                self.pick(&COMPARISONS),
                self.time(depth.min(1))
            ),
            7 => format!(
                "({} {}BETWEEN {} AND {})",
                self.number(depth),
                self.negation(),
                self.number(0),
                self.number(0)
            ),
            8 | 9 => {
                let operand =
                    self.pick(&["k", "n", "CAST(k AS BIGINT)", "CAST(n AS INT)", "d", "x"]);
                let list = (0..=self.below(4))
                    .map(|_| self.integer())
                    .collect::<Vec<String>>();
                format!("({operand} {}IN ({}))", self.negation(), list.join(", "))
            }
            10 => {
                let operand = self.pick(&[
                    "k IN (1)",
                    "k NOT IN (1)",
                    "k NOT IN (2)",
                    "k IN (2, 300)",
                    "k = 1",
                    "k <> 2",
                ]);
                let other = self.pick(&[
                    "k IN (2)",
                    "k NOT IN (2)",
                    "k NOT IN (1, 2)",
                    "k IN (1, 2)",
                    "k = 2",
                    "k >= 1",
                ]);
                format!("({operand} {} {other})", self.pick(&["AND", "OR"]))
            }
            11 => format!(
                "(({} ^ k) = {})",
                self.pick(&["k", "n", "0"]),
                self.pick(&["0", "k", "1"])
            ),
            12 => {
                let operator = self.pick(&["~", "!~", "LIKE", "NOT LIKE", "ILIKE", "~*"]);
                let pattern = self.pick(&[
                    "'.*'",
                    "'%'",
                    "'x'",
                    "'^x$'",
                    "'a%'",
                    "''",
                    "'^(x|12)$'",
                    "NULL",
                ]);
                format!("({} {operator} {pattern})", self.text())
            }
            13 => format!(
                "({} {} {})",
                self.text(),
                self.pick(&COMPARISONS),
                self.text()
            ),
            14 => format!(
                "({} {} {})",
                self.length(),
                self.pick(&COMPARISONS),
                self.length()
            ),
            _ => {
                let operand = self.pick(&["k", "n", "x", "d", "s"]);
                format!("({operand} {} {operand})", self.pick(&COMPARISONS))
            }
        }
    }
}

/// The expression without the rewrites, except for functions that must be replaced.
fn only_functions(expression: Expr, schema: &DFSchema) -> Expr {
    let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone()));
    let context = context.build();
    let rewritten = expression.transform_up(|part| match part {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "coalesce" => {
            match func.simplify(args, &context)? {
                ExprSimplifyResult::Simplified(case) => Ok(Transformed::yes(case)),
                ExprSimplifyResult::Original(_) => panic!("COALESCE is a CASE"),
            }
        }
        part => Ok(Transformed::no(part)),
    });
    rewritten.unwrap().data
}

/// The value of an expression for a single row.
fn value(expression: &Expr, schema: &DFSchema, row: &RecordBatch) -> Option<ScalarValue> {
    let computed = physical(expression, schema).unwrap();
    let columns = schema.fields().iter();
    let columns = columns.map(|field| row.schema().index_of(field.name()).unwrap());
    let row = row.project(&columns.collect::<Vec<usize>>()).unwrap();
    let schema = Arc::new(Schema::clone(schema.as_arrow()));
    let row = RecordBatch::try_new_with_options(
        schema,
        row.columns().to_vec(),
        &arrow_array::RecordBatchOptions::new().with_row_count(Some(1)),
    );
    let value = computed.evaluate(&row.unwrap()).ok()?;
    let value = ScalarValue::try_from_array(&value.into_array(1).unwrap(), 0).unwrap();
    Some(value)
}

/// The computed expression of the first projection, or all conditions of filters, with their schemas.
fn parts(plan: &LogicalPlan, conditions: bool) -> Vec<(Expr, DFSchema)> {
    let mut found = Vec::new();
    plan.apply(|node| {
        match node {
            LogicalPlan::Projection(projection) if !conditions => {
                let expression = projection.expr[0].clone().unalias();
                found.push((expression, projection.input.schema().as_ref().clone()));
                return Ok(TreeNodeRecursion::Stop);
            }
            LogicalPlan::Filter(filter) if conditions => {
                found.push((
                    filter.predicate.clone(),
                    filter.input.schema().as_ref().clone(),
                ));
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    found
}

fn plans(session: &Session, text: &str) -> Option<(LogicalPlan, LogicalPlan)> {
    let Statement::Select(query) = parse(text).unwrap().remove(0).statement else {
        panic!("a query");
    };
    // Operands of the wrong types are rejected.
    let plan = session.plan(*query).ok()?;
    let plain = session.analyse(plan.clone()).ok()?;
    // A constant that fails is rejected.
    Some((plain, session.optimise(plan).ok()?))
}

fn is_same(one: &Option<ScalarValue>, other: &Option<ScalarValue>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || one.is_null() && other.is_null(),
        (None, None) => true,
        _ => false,
    }
}

#[test]
fn rewrites_change_no_value() {
    let session = session();
    let rows = rows(&session);
    let mut random = Random(given("SEED", 20_240_229) as u64);
    let (mut compared, mut failed, mut nulls) = (0, 0, 0);
    for _ in 0..given("EXPRESSIONS", 600) {
        let written = match random.below(4) {
            0 => random.number(3),
            _ => random.condition(3),
        };
        let Some((plain, optimised)) = plans(&session, &format!("SELECT {written} AS c FROM v"))
        else {
            continue;
        };
        let (plain, plain_schema) = parts(&plain, false).remove(0);
        let plain = only_functions(plain, &plain_schema);
        let (simple, schema) = parts(&optimised, false).remove(0);
        for row in 0..ROWS {
            let row = rows.slice(row, 1);
            let wanted = value(&plain, &plain_schema, &row);
            let got = value(&simple, &schema, &row);
            assert!(
                is_same(&wanted, &got),
                "{written} as {simple}: {got:?} instead of {wanted:?} for {row:?}"
            );
            compared += 1;
            failed += usize::from(wanted.is_none());
            nulls += usize::from(wanted.is_some_and(|value| value.is_null()));
        }
    }
    // Enough values, failures and NULLs are compared.
    assert!(
        compared > 10_000 && failed > 100 && nulls > 1_000,
        "{compared} {failed} {nulls}"
    );
}

#[test]
fn pushed_down_conditions_keep_and_reject_the_same_rows() {
    let session = session();
    let rows = rows(&session);
    let mut random = Random(given("SEED", 7) as u64);
    let mut kept = [0; 3];
    for _ in 0..given("EXPRESSIONS", 600) {
        let parts_of = [
            random.condition(1),
            random.condition(2),
            random.condition(1),
        ];
        let written = parts_of.join(" AND ");
        let query = format!(
            "SELECT * FROM (SELECT * FROM v WHERE {}) WHERE {} AND {}",
            parts_of[0], parts_of[1], parts_of[2]
        );
        let plain = format!("SELECT * FROM v WHERE {written}");
        let (Some((plain, _)), Some((_, optimised))) =
            (plans(&session, &plain), plans(&session, &query))
        else {
            continue;
        };
        let (plain, plain_schema) = parts(&plain, true).remove(0);
        let plain = only_functions(plain, &plain_schema);
        let conditions = parts(&optimised, true);
        for row in 0..ROWS {
            let row = rows.slice(row, 1);
            let yes = Some(ScalarValue::Boolean(Some(true)));
            let outcome = |value: Option<ScalarValue>| match value {
                None => 0,
                value if value == yes => 1,
                _ => 2,
            };
            let wanted = outcome(value(&plain, &plain_schema, &row));
            // The innermost condition is the last one.
            let mut got = 1;
            for (condition, schema) in conditions.iter().rev() {
                if got == 1 {
                    got = outcome(value(condition, schema, &row));
                }
            }
            assert_eq!(got, wanted, "{written} as {conditions:?} for {row:?}");
            kept[wanted] += 1;
        }
    }
    assert!(kept.iter().all(|&rows| rows > 50), "{kept:?}");
}

#[test]
fn constants_and_casts_are_rewritten() {
    let session = session();
    let simple = |written: &str| {
        let query = format!("SELECT {written} AS c FROM v");
        let (_, optimised) = plans(&session, &query).expect(written);
        let (simple, schema) = parts(&optimised, false).remove(0);
        physical(&simple, &schema).unwrap()
    };
    for (written, shown) in [
        ("n > 1 + 2 * 3", "n@0 > 7"),
        ("CAST(k AS BIGINT) = 5", "k@0 = 5"),
        ("k IN (CAST(1 AS BIGINT), 2)", "k@0 IN (SET) ([1, 2])"),
        ("p AND 1 = 1", "p@0"),
        ("d > 1", "d@0 > 1.000"),
    ] {
        assert_eq!(simple(written).to_string(), shown, "{written}");
    }
}
