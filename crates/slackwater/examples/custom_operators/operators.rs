//! The operators: a filter, one that adds a column and repeats rows, one with two outputs, and a change
//! detector with a state for each key and timers. `docs/operators.md` explains the traits.

use arrow_array::{Array, BooleanArray, Int64Array, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use slackwater::functions::operator::{Call, Column, KeyedOperator, Operator, Out, Row, Rows};
use slackwater::functions::{Functions, Time};

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .operator("clip", &["x0", "y0", "x1", "y1"], clip)
        .operator("repeat_rows", &["count"], repeat)
        .operator("by_sign", &["value"], by_sign)
        .operator("changes", &["value", "least", "silence"], Changes::plan);
}

/// `CLIP(TABLE pixels, x0, y0, x1, y1)`: the rows with `x` and `y` inside a rectangle.
fn clip(call: &Call) -> Result<Operator, String> {
    let (x, y) = (
        call.input()?.column::<f64>("x")?,
        call.input()?.column::<f64>("y")?,
    );
    let (x0, y0) = (call.argument::<f64>("x0")?, call.argument::<f64>("y0")?);
    let (x1, y1) = (call.argument::<f64>("x1")?, call.argument::<f64>("y1")?);
    if x0 > x1 || y0 > y1 {
        return Err("needs x0 <= x1 and y0 <= y1".to_string());
    }
    Ok(Operator::rows(move |batch| {
        let (x, y) = (x.of(batch), y.of(batch));
        let nulls = NullBuffer::union(x.nulls(), y.nulls());
        let (x, y) = (x.values(), y.values());
        // Without a branch, so that the compiler can handle several rows at once.
        let inside = BooleanBuffer::collect_bool(batch.num_rows(), |row| {
            (x[row] >= x0) & (x[row] <= x1) & (y[row] >= y0) & (y[row] <= y1)
        });
        // What is NULL is left out.
        Ok(Rows::Kept(BooleanArray::new(inside, nulls)))
    })
    .takes_updates())
}

/// `REPEAT_ROWS(TABLE t, DESCRIPTOR(count))`: each row as often as its column says, with a number `copy`.
fn repeat(call: &Call) -> Result<Operator, String> {
    const MOST: i64 = 1000;
    let count = call.input()?.column::<i64>(call.column("count")?)?;
    let rows = Operator::rows(move |batch| {
        let count = count.of(batch);
        let (mut of, mut copies) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            // A NULL has the value 0.
            let times = count.value(row);
            if times > MOST {
                return Err(format!("{times} copies of a row, at most {MOST}"));
            }
            of.extend((0..times).map(|_| row as u32));
            copies.extend(1..=times);
        }
        Ok(Rows::Made {
            of: Some(UInt32Array::from(of)),
            columns: vec![std::sync::Arc::new(Int64Array::from(copies))],
        })
    });
    Ok(rows.columns(&[("copy", arrow_schema::DataType::Int64)]))
}

/// `BY_SIGN(TABLE t, DESCRIPTOR(value)) OUTPUT …`: rows with values above zero, below zero, and others.
fn by_sign(call: &Call) -> Result<Operator, String> {
    let value = call.input()?.column::<f64>(call.column("value")?)?;
    let outputs = ["positive", "negative", "other"];
    Ok(Operator::rows_to(&outputs, move |batch| {
        let value = value.of(batch);
        let rows = |meets: fn(Option<f64>) -> bool| {
            let rows = value.iter().map(|value| Some(meets(value)));
            Rows::Kept(rows.collect::<BooleanArray>())
        };
        Ok(vec![
            rows(|value| value.is_some_and(|value| value > 0.0)),
            rows(|value| value.is_some_and(|value| value < 0.0)),
            rows(|value| value.is_none_or(|value| value == 0.0 || value.is_nan())),
        ])
    }))
}

/// `CHANGES(TABLE t PARTITION BY k ORDER BY ts, DESCRIPTOR(value) [, least [, silence]])`: a row when the
/// value of a key differs from that of the last row by more than `least`, and one with `new` NULL when the
/// key was silent for the interval `silence`, which then is forgotten.
struct Changes {
    value: Column<f64>,
    least: f64,
    silence_us: Option<i64>,
}

impl Changes {
    fn plan(call: &Call) -> Result<Operator, String> {
        let silence = call.optional::<std::time::Duration>("silence")?;
        let changes = Changes {
            value: call.input()?.column::<f64>(call.column("value")?)?,
            least: call.optional::<f64>("least")?.unwrap_or(0.0),
            silence_us: silence.map(|silence| silence.as_micros() as i64),
        };
        let has_timers = changes.silence_us.is_some();
        let operator = Operator::keyed(changes, &["old", "new"]);
        Ok(match has_timers {
            true => operator.needs_order().forgets(),
            false => operator,
        })
    }
}

impl KeyedOperator for Changes {
    /// The last value.
    type State = Option<f64>;
    type Saved = Option<f64>;
    /// The value before, and the new one.
    type Row = (Option<f64>, Option<f64>);

    fn on_row(
        &self,
        last: &mut Option<f64>,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        if let Some(silence) = self.silence_us {
            out.clear_timers();
            out.timer(Time {
                micros: row.time().micros.saturating_add(silence),
            });
        }
        let Some(value) = row.get(self.value) else {
            return Ok(());
        };
        if value.is_nan() {
            return Err("the value is not a number".to_string());
        }
        if last.is_none_or(|last| (value - last).abs() > self.least) {
            out.emit((*last, Some(value)));
            *last = Some(value);
        }
        Ok(())
    }

    fn on_time(
        &self,
        last: &mut Option<f64>,
        _: Time,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        out.emit((*last, None));
        out.forget();
        Ok(())
    }

    fn save(&self, last: &Option<f64>) -> Option<f64> {
        *last
    }

    fn load(&self, saved: Option<f64>) -> Option<f64> {
        saved
    }
}
