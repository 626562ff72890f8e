//! The current state of a changing result as a table: rows by key, of which the first ones are drawn.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use slackwater_engine::chunk::RowKind;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_sql::node::Changes;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal::padded;

/// The most rows that are kept; further rows are only counted.
pub const ROWS_MAX: usize = 100_000;

/// How NULL is printed.
const NULL: &str = "NULL";

/// A part of a key: numbers sort numerically and before strings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Part(Option<Number>, String);

#[derive(Debug, Clone, Copy)]
struct Number(f64);

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Part {
    fn new(text: &str) -> Part {
        // Two large numbers that are equal as f64 still differ as strings.
        Part(text.parse().ok().map(Number), text.to_string())
    }
}

/// The table.
pub struct LiveTable {
    names: Vec<String>,
    /// Whether each column is right-aligned.
    right: Vec<bool>,
    changes: Changes,
    /// The order in which rows are drawn, before the key.
    order: RowOrder,
    /// The rows, and how often each occurs.
    rows: BTreeMap<Vec<Part>, (Vec<String>, usize)>,
    /// The number of rows that are not kept.
    beyond: usize,
}

impl LiveTable {
    /// A table without rows.
    pub fn new(
        names: Vec<String>,
        right: Vec<bool>,
        changes: Changes,
        order: RowOrder,
    ) -> LiveTable {
        LiveTable {
            names,
            right,
            changes,
            order,
            rows: BTreeMap::new(),
            beyond: 0,
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, kind: i8, row: Vec<String>) {
        let key = match &self.changes {
            Changes::ByKey(columns) => columns
                .iter()
                .map(|&column| Part::new(&row[column]))
                .collect(),
            _ => row
                .iter()
                .map(|text| Part::new(text))
                .collect::<Vec<Part>>(),
        };
        let is_keyed = matches!(self.changes, Changes::ByKey(_));
        if RowKind::is_retraction(kind) {
            // The new value follows and replaces the old one.
            if is_keyed && kind == RowKind::UpdateBefore as i8 {
                return;
            }
            match self.rows.get_mut(&key) {
                Some((_, count)) if *count > 1 => *count -= 1,
                Some(_) => {
                    self.rows.remove(&key);
                }
                None => self.beyond = self.beyond.saturating_sub(1),
            }
            return;
        }
        let is_full = self.rows.len() >= ROWS_MAX;
        match self.rows.get_mut(&key) {
            Some(known) if is_keyed => known.0 = row,
            Some(known) => known.1 += 1,
            None if !is_full => {
                self.rows.insert(key, (row, 1));
            }
            // An update of a row that is not kept adds no row.
            None if is_keyed && kind == RowKind::Update as i8 => {}
            None => self.beyond += 1,
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.values().map(|(_, count)| count).sum::<usize>() + self.beyond
    }

    /// The table as lines of at most `width` columns, at most `height` of them.
    pub fn draw(&self, width: usize, height: usize) -> Vec<String> {
        let total = self.len();
        let room = height.saturating_sub(2).max(1);
        let mut all = self.rows.values().collect::<Vec<_>>();
        if !self.order.is_empty() {
            all.sort_by(|(one, _), (other, _)| compare(&self.order, one, other));
        }
        let all = all.into_iter();
        let all = all.flat_map(|(row, count)| std::iter::repeat_n(row, *count));
        let shown = all.take(room).collect::<Vec<&Vec<String>>>();
        let mut widths = self
            .names
            .iter()
            .map(|name| name.width())
            .collect::<Vec<usize>>();
        for row in &shown {
            for (width, text) in widths.iter_mut().zip(row.iter()) {
                *width = text.width().max(*width);
            }
        }
        let line = |fields: &[String]| {
            let cells = fields.iter().zip(&widths).zip(&self.right);
            let cells = cells.map(|((text, width), right)| padded(text, *width, *right));
            cut(cells.collect::<Vec<String>>().join("  ").trim_end(), width)
        };
        let mut lines = vec![line(&self.names)];
        lines.extend(shown.iter().map(|row| line(row)));
        if total > shown.len() {
            let more = crate::report::count((total - shown.len()) as u64);
            let total_rows = crate::report::count(total as u64);
            lines.push(cut(&format!("… {more} more of {total_rows} rows"), width));
        }
        lines
    }
}

/// Which of two rows comes first in an order.
fn compare(order: &RowOrder, one: &[String], other: &[String]) -> Ordering {
    let by = order.iter().map(|&(column, options)| {
        let (one, other) = (&one[column], &other[column]);
        match (one == NULL, other == NULL) {
            (true, true) => Ordering::Equal,
            (false, false) => {
                let ascending = Part::new(one).cmp(&Part::new(other));
                match options.descending {
                    true => ascending.reverse(),
                    false => ascending,
                }
            }
            (is_first, _) if is_first == options.nulls_first => Ordering::Less,
            _ => Ordering::Greater,
        }
    });
    by.fold(Ordering::Equal, Ordering::then)
}

/// A line of at most `width` columns; a mark shows where it is cut.
fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_string();
    }
    let mut room = width.saturating_sub(1);
    let kept = line.chars().take_while(|c| {
        let left = room.checked_sub(c.width().unwrap_or(0));
        room = left.unwrap_or(0);
        left.is_some()
    });
    kept.chain(['…']).take(width).collect()
}

#[cfg(test)]
mod tests {
    use arrow_schema::SortOptions;

    use super::*;

    fn table(changes: Changes) -> LiveTable {
        let names = vec!["k".to_string(), "n".to_string()];
        LiveTable::new(names, vec![false, true], changes, RowOrder::new())
    }

    #[test]
    fn the_first_rows_stand_in_their_order() {
        let names = vec!["k".to_string(), "n".to_string()];
        let descending = SortOptions {
            descending: true,
            nulls_first: false,
        };
        let order = vec![(1, descending)];
        let mut table = LiveTable::new(names, vec![false, true], Changes::ByRow, order);
        table.apply(INSERT, row("a", 9));
        table.apply(INSERT, row("b", 10));
        table.apply(INSERT, vec!["c".to_string(), NULL.to_string()]);
        table.apply(INSERT, row("d", 11));
        table.apply(DELETE, row("d", 11));
        table.apply(INSERT, row("e", 9));
        let drawn = table.draw(80, 24);
        assert_eq!(
            drawn,
            ["k     n", "b    10", "a     9", "e     9", "c  NULL"]
        );
    }

    fn row(k: &str, n: i64) -> Vec<String> {
        vec![k.to_string(), n.to_string()]
    }

    const INSERT: i8 = RowKind::Insert as i8;
    const UPDATE: i8 = RowKind::Update as i8;
    const BEFORE: i8 = RowKind::UpdateBefore as i8;
    const DELETE: i8 = RowKind::Delete as i8;

    #[test]
    fn rows_replace_those_of_their_key() {
        let mut table = table(Changes::ByKey(vec![0]));
        table.apply(INSERT, row("10", 1));
        table.apply(INSERT, row("9", 1));
        table.apply(BEFORE, row("10", 1));
        table.apply(UPDATE, row("10", 20));
        table.apply(INSERT, row("x", 3));
        table.apply(DELETE, row("x", 3));
        assert_eq!(table.draw(80, 24), ["k    n", "9    1", "10  20"]);
        assert_eq!(table.draw(5, 3), ["k  n", "9  1", "… 1 …"]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = table(Changes::ByKey(vec![0]));
        table.apply(INSERT, row("東京", 1));
        table.apply(INSERT, row("Wien", 20));
        assert_eq!(table.draw(80, 24), ["k      n", "Wien  20", "東京   1"]);
        assert_eq!(table.draw(4, 24)[2], "東…");
    }

    #[test]
    fn without_a_key_the_whole_row_is_taken_back() {
        let mut table = table(Changes::ByRow);
        for _ in 0..3 {
            table.apply(INSERT, row("a", 1));
        }
        table.apply(DELETE, row("a", 1));
        table.apply(BEFORE, row("a", 1));
        table.apply(UPDATE, row("a", 2));
        assert_eq!(table.draw(80, 24), ["k  n", "a  1", "a  2"]);
        assert_eq!(table.draw(80, 3), ["k  n", "a  1", "… 1 more of 2 rows"]);
    }
}
