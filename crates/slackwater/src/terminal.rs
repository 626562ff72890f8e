//! Standard output, standard error, columns of text, and exit codes.

use std::io::Write;

use unicode_width::UnicodeWidthStr;

/// The query could not be run because the command line or the SQL is wrong.
pub(crate) const USAGE: u8 = 2;
/// The query failed.
pub(crate) const FAILED: u8 = 1;

/// Writes to standard error; errors are ignored.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A string in `width` columns of a terminal: spaces come after it, or before it if it is at the `right`.
pub fn padded(text: &str, width: usize, right: bool) -> String {
    // Characters of East Asian scripts take two columns, which Rust's formatting does not know.
    let spaces = " ".repeat(width.saturating_sub(text.width()));
    match right {
        true => spaces + text,
        false => text.to_string() + &spaces,
    }
}

/// Rows in aligned columns under their titles.
pub fn aligned(titles: &[&str], rows: &[Vec<String>]) -> String {
    let titles = titles
        .iter()
        .map(|title| title.to_string())
        .collect::<Vec<String>>();
    let lines = std::iter::once(&titles).chain(rows);
    let width = |index: usize| {
        let cells = lines.clone().filter_map(|line| line.get(index));
        cells.map(|text| text.width()).max().unwrap_or(0)
    };
    let widths = (0..titles.len()).map(width).collect::<Vec<usize>>();
    let mut text = String::new();
    for line in lines.clone() {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(text, width)| padded(text, *width, false));
        let line = cells.collect::<Vec<String>>().join("  ");
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = ["東京", "Wien"].map(|city| vec![city.to_string(), "1".to_string()]);
        let text = aligned(&["city", "n"], &rows);
        assert_eq!(text, "  city  n\n  東京  1\n  Wien  1\n");
    }
}
