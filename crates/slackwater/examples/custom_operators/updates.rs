//! Operators over rows that change, whose own rows change, too: totals of each key, and its largest values.

use slackwater::functions::operator::{Call, Change, Column, KeyedOperator, Operator, Out, Row};
use slackwater::functions::{Functions, Time};

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .operator("totals", &["value"], Totals::plan)
        .operator("largest", &["value", "most"], Largest::plan);
}

/// `TOTALS(TABLE t PARTITION BY k, DESCRIPTOR(value))`: how many rows of a key have a value, and their sum,
/// as `COUNT(value)` and `SUM(value)` with GROUP BY.
struct Totals {
    value: Column<i64>,
}

/// How many rows, how many values, and their sum.
type Total = (i64, i64, i64);

impl Totals {
    fn plan(call: &Call) -> Result<Operator, String> {
        let value = call.input()?.column::<i64>(call.column("value")?)?;
        let operator = Operator::keyed(Totals { value }, &["n", "total"]);
        Ok(operator.takes_updates().emits_updates().forgets())
    }

    /// The row of a key; none without rows. A sum over no values is NULL.
    fn row(&(rows, n, total): &Total) -> Option<(i64, Option<i64>)> {
        (rows > 0).then_some((n, (n > 0).then_some(total)))
    }
}

impl KeyedOperator for Totals {
    type State = Total;
    type Saved = Total;
    type Row = (i64, Option<i64>);

    fn on_row(
        &self,
        state: &mut Total,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        let sign = match row.change() {
            Change::Insert => 1,
            Change::Delete => -1,
        };
        let (rows, n, total) = *state;
        let after = match row.get(self.value) {
            None => (rows + sign, n, total),
            Some(value) => {
                let total = total
                    .checked_add(sign * value)
                    .ok_or("the sum is too large")?;
                (rows + sign, n + sign, total)
            }
        };
        let before = std::mem::replace(state, after);
        let [old, new] = [before, after].map(|total| Totals::row(&total));
        if old != new {
            old.into_iter().for_each(|old| out.retract(old));
            new.into_iter().for_each(|new| out.emit(new));
        }
        if state.0 == 0 {
            out.forget();
        }
        Ok(())
    }

    fn on_time(
        &self,
        _: &mut Total,
        _: Time,
        _: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        Ok(())
    }

    fn save(&self, total: &Total) -> Total {
        *total
    }

    fn load(&self, saved: Total) -> Total {
        saved
    }
}

/// `LARGEST(TABLE t PARTITION BY k, DESCRIPTOR(value), most)`: the `most` largest values of a key.
struct Largest {
    value: Column<f64>,
    most: usize,
}

impl Largest {
    fn plan(call: &Call) -> Result<Operator, String> {
        let most = call.argument::<i64>("most")?;
        let most = usize::try_from(most).ok().filter(|most| *most > 0);
        let operator = Largest {
            value: call.input()?.column::<f64>(call.column("value")?)?,
            most: most.ok_or("needs 'most' to be at least 1")?,
        };
        let operator = Operator::keyed(operator, &["largest"]);
        Ok(operator.takes_updates().emits_updates().forgets())
    }
}

impl KeyedOperator for Largest {
    /// All values of the key, in descending order: a value that is taken back makes room for the next.
    type State = Vec<f64>;
    type Saved = Vec<f64>;
    type Row = f64;

    fn on_row(
        &self,
        values: &mut Vec<f64>,
        row: &Row<'_>,
        out: &mut Out<'_, '_, f64>,
    ) -> Result<(), String> {
        let Some(value) = row.get(self.value) else {
            return Ok(());
        };
        let place = values.partition_point(|other| other.total_cmp(&value).is_gt());
        match row.change() {
            Change::Insert => {
                values.insert(place, value);
                if place < self.most {
                    out.emit(value);
                    let pushed_out = values.get(self.most);
                    pushed_out.into_iter().for_each(|last| out.retract(*last));
                }
            }
            Change::Delete => {
                let there = values.get(place);
                if there.is_none_or(|there| there.total_cmp(&value).is_ne()) {
                    return Err("a value is taken back that the key does not have".to_string());
                }
                values.remove(place);
                if place < self.most {
                    out.retract(value);
                    let moved_up = values.get(self.most - 1);
                    moved_up.into_iter().for_each(|last| out.emit(*last));
                }
            }
        }
        if values.is_empty() {
            out.forget();
        }
        Ok(())
    }

    fn on_time(&self, _: &mut Vec<f64>, _: Time, _: &mut Out<'_, '_, f64>) -> Result<(), String> {
        Ok(())
    }

    fn save(&self, values: &Vec<f64>) -> Vec<f64> {
        values.clone()
    }

    fn load(&self, saved: Vec<f64>) -> Vec<f64> {
        saved
    }
}
