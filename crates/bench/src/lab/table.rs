//! Tables, and numbers as text.

/// A table, line by line.
pub struct Table {
    head: Vec<String>,
    /// Rows of cells; an empty row separates groups.
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Table {
        Table {
            head: head.into_iter().map(S::into).collect(),
            lines: Vec::new(),
        }
    }

    /// Adds a row. Cells after the last column have no heading.
    pub fn line<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.lines.push(cells.into_iter().map(S::into).collect());
    }

    /// Starts a new group, unless the table is empty.
    pub fn gap(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(Vec::new());
        }
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.head);
        text.push_str(&format!("|{}\n", "---|".repeat(self.head.len())));
        text.extend(self.lines.iter().map(|cells| line(cells)));
        text
    }

    /// In columns: names are aligned to the left, numbers to the right.
    pub fn columns(&self) -> String {
        let cells = |column: usize| self.lines.iter().filter_map(move |line| line.get(column));
        let columns = self.head.iter().enumerate().map(|(column, head)| {
            let widths = cells(column).map(|cell| cell.chars().count());
            let width = widths.max().unwrap_or(0).max(head.chars().count());
            let is_name = cells(column).any(|cell| cell.starts_with(char::is_alphabetic));
            (width, is_name)
        });
        let columns = columns.collect::<Vec<(usize, bool)>>();
        let write = |cells: &Vec<String>| {
            let cells = cells
                .iter()
                .enumerate()
                .map(|(column, cell)| match columns.get(column) {
                    Some(&(width, true)) => format!("{cell:<width$}"),
                    Some(&(width, false)) => format!("{cell:>width$}"),
                    None => cell.clone(),
                });
            let line = cells.collect::<Vec<String>>().join("  ");
            line.trim_end().to_string() + "\n"
        };
        let lines = [&self.head].into_iter().chain(&self.lines).map(write);
        lines.collect()
    }
}

/// A number with three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Bytes: `4 KiB`.
pub fn bytes(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1024) => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} KiB", bytes as f64 / 1024.0),
    }
}

/// A rate: `10 k/s`.
pub fn rate(rate_per_s: f64) -> String {
    if rate_per_s >= 1e6 {
        format!("{} M/s", rate_per_s / 1e6)
    } else if rate_per_s >= 1e3 {
        format!("{} k/s", rate_per_s / 1e3)
    } else {
        format!("{rate_per_s}/s")
    }
}

/// Microseconds, with three digits: `12.3 ms`.
pub fn time(us: f64) -> String {
    match us {
        ..99.95 => format!("{us:.1} us"),
        ..999.5 => format!("{us:.0} us"),
        ..9_995.0 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.1} ms", us / 1e3),
    }
}

/// Seconds as minutes and seconds.
pub fn minutes(seconds: f64) -> String {
    format!(
        "{:.0} min {:.0} s",
        (seconds / 60.0).floor(),
        seconds % 60.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["bytes", "kind", "p50"]);
        table.line(["64", "shm", "0.170"]);
        table.gap();
        table.line(["1,024", "in-process", "-", "not measured"]);
        table
    }

    #[test]
    fn names_are_aligned_left_and_numbers_right() {
        let expected = "bytes  kind          p50\n   64  shm         0.170\n\n\
                        1,024  in-process      -  not measured\n";
        assert_eq!(table().columns(), expected);
    }

    #[test]
    fn markdown_has_a_line_below_its_heading() {
        let mut table = Table::new(["a", "b"]);
        table.line(["1", "2"]);
        assert_eq!(table.markdown(), "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }

    #[test]
    fn numbers_are_short() {
        let rates = [100.0, 1e3, 1e4, 2.5e5, 1e6].map(rate);
        assert_eq!(rates, ["100/s", "1 k/s", "10 k/s", "250 k/s", "1 M/s"]);
        let times = [3.26, 99.97, 999.6, 12_345.0].map(time);
        assert_eq!(times, ["3.3 us", "100 us", "1.00 ms", "12.3 ms"]);
        assert_eq!(minutes(130.0), "2 min 10 s");
        let sizes = [64, 1 << 10, 1_536, 3 << 19, 16 << 20].map(bytes);
        assert_eq!(sizes, ["64 B", "1 KiB", "1.5 KiB", "1536 KiB", "16 MiB"]);
        assert_eq!([1.234, 56.78, 999.6].map(number), ["1.23", "56.8", "1000"]);
    }
}
