//! Prometheus' text format, version 0.0.4: families of samples, each with a kind and a help text.
//!
//! ```text
//! # HELP slackwater_source_rows_total Records read, bad ones included.
//! # TYPE slackwater_source_rows_total counter
//! slackwater_source_rows_total{pipeline="flights",table="planes"} 327346
//! ```
//!
//! The names are constants of the program, so a wrong one is a bug of ours; the values of labels come from
//! users and are escaped. A family without samples is left out.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The content type of a page in this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The name and value of a label.
pub type Label<'a> = (&'a str, &'a str);

/// What the samples of a family mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows, and starts at 0 with the process.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts by upper bound.
    Histogram,
    /// A sum and a count.
    Summary,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

/// The samples of one family.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut Page,
    name: &'static str,
    kind: Kind,
    help: &'static str,
    has_begun: bool,
}

impl Page {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        let is_counter = kind == Kind::Counter;
        assert!(is_name(name), "'{name}' is not a name of a metric");
        assert!(
            name.ends_with("_total") == is_counter,
            "the name of a counter, and of nothing else, ends with _total: {name}"
        );
        Family {
            page: self,
            name,
            kind,
            help,
            has_begun: false,
        }
    }

    /// The text of the page.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Adds the sample of a counter or gauge.
    pub fn sample(&mut self, labels: &[Label<'_>], value: f64) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    /// Adds the sum and the count of a summary.
    pub fn summary(&mut self, labels: &[Label<'_>], sum: f64, count: u64) -> &mut Self {
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
        self
    }

    /// Adds a histogram: upper bounds in order, each with the number of observations up to it, earlier
    /// bounds included; then the number and the sum of all.
    pub fn histogram(
        &mut self,
        labels: &[Label<'_>],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) -> &mut Self {
        for (bound, observed) in buckets {
            self.line("_bucket", labels, Some(bound), observed as f64);
        }
        self.line("_bucket", labels, Some(f64::INFINITY), count as f64);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
        self
    }

    fn line(&mut self, suffix: &str, labels: &[Label<'_>], bound: Option<f64>, value: f64) {
        let text = &mut self.page.text;
        if !std::mem::replace(&mut self.has_begun, true) {
            let (name, kind) = (self.name, self.kind.word());
            text.push_str("# HELP ");
            text.push_str(name);
            text.push(' ');
            escape(text, self.help, false);
            text.push_str("\n# TYPE ");
            text.push_str(name);
            text.push(' ');
            text.push_str(kind);
            text.push('\n');
        }
        text.push_str(self.name);
        text.push_str(suffix);
        let mut opening = '{';
        for (label, value) in labels {
            debug_assert!(is_name(label) && !label.contains(':') && *label != "le");
            text.push(opening);
            text.push_str(label);
            text.push_str("=\"");
            escape(text, value, true);
            text.push('"');
            opening = ',';
        }
        if let Some(bound) = bound {
            text.push(opening);
            text.push_str("le=\"");
            number(text, bound);
            text.push('"');
            opening = ',';
        }
        if opening == ',' {
            text.push('}');
        }
        text.push(' ');
        number(text, value);
        text.push('\n');
    }
}

/// One page of several: the samples of a family come together, as the format demands. Of samples with the
/// same labels, the one of the first page counts.
pub fn merge<'a>(pages: impl Iterator<Item = &'a str>) -> String {
    struct Family<'a> {
        head: Vec<&'a str>,
        samples: Vec<&'a str>,
        known: HashSet<&'a str>,
    }
    let mut families = Vec::<Family<'a>>::new();
    let mut places = HashMap::<&str, usize>::new();
    for page in pages {
        let mut own = None;
        for line in page.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# ") {
                let name = rest.split(' ').nth(1).unwrap_or_default();
                let place = *places.entry(name).or_insert_with(|| {
                    families.push(Family {
                        head: Vec::new(),
                        samples: Vec::new(),
                        known: HashSet::new(),
                    });
                    families.len() - 1
                });
                let family = &mut families[place];
                if family.samples.is_empty() && !family.head.contains(&line) {
                    family.head.push(line);
                }
                own = Some(place);
            } else if let Some(place) = own {
                let family = &mut families[place];
                let labels = line.rsplit_once(' ').map_or(line, |(labels, _)| labels);
                if family.known.insert(labels) {
                    family.samples.push(line);
                }
            }
        }
    }
    let mut text = String::new();
    for family in families {
        for line in family.head.into_iter().chain(family.samples) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Whether a name consists of letters, digits, `_` and `:`, and doesn't start with a digit.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(letter) && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// Escapes what would end a line or, in the value of a label, the value.
fn escape(text: &mut String, value: &str, quoted: bool) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quoted => text.push_str("\\\""),
            letter => text.push(letter),
        }
    }
}

fn number(text: &mut String, value: f64) {
    // Writing to a string never fails.
    let _ = match value {
        value if value.is_nan() => write!(text, "NaN"),
        f64::INFINITY => write!(text, "+Inf"),
        f64::NEG_INFINITY => write!(text, "-Inf"),
        value => write!(text, "{value}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::default();
        write(&mut page);
        page.into_text()
    }

    #[test]
    fn a_family_begins_with_its_help_and_kind() {
        let text = text(|page| {
            page.family("rows_total", Kind::Counter, "Rows: all\nof \\ them.")
                .sample(&[("table", "a")], 3.0)
                .sample(&[("table", "b"), ("partition", "0")], 0.5);
            page.family("up", Kind::Gauge, "Up.").sample(&[], -1e21);
        });
        assert_eq!(
            text,
            "# HELP rows_total Rows: all\\nof \\\\ them.\n# TYPE rows_total counter\n\
             rows_total{table=\"a\"} 3\nrows_total{table=\"b\",partition=\"0\"} 0.5\n\
             # HELP up Up.\n# TYPE up gauge\nup -1000000000000000000000\n"
        );
    }

    #[test]
    fn a_family_without_samples_is_left_out() {
        let text = text(|page| {
            let _ = page.family("up", Kind::Gauge, "Up.");
        });
        assert_eq!(text, "");
    }

    #[test]
    fn values_of_labels_can_be_anything() {
        let name = "a\"b\\c\nd} 7\u{e9}";
        let text = text(|page| {
            page.family("up", Kind::Gauge, "Up.")
                .sample(&[("table", name)], f64::NAN);
        });
        let line = text.lines().nth(2).unwrap();
        assert_eq!(line, "up{table=\"a\\\"b\\\\c\\nd} 7\u{e9}\"} NaN");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_histogram_ends_with_all_its_observations() {
        let text = text(|page| {
            page.family("wait_seconds", Kind::Histogram, "Waits.")
                .histogram(&[("table", "a")], [(0.001, 2), (0.5, 5)], 7, 3.25);
        });
        let lines = text.lines().skip(2).collect::<Vec<_>>();
        assert_eq!(
            lines,
            [
                "wait_seconds_bucket{table=\"a\",le=\"0.001\"} 2",
                "wait_seconds_bucket{table=\"a\",le=\"0.5\"} 5",
                "wait_seconds_bucket{table=\"a\",le=\"+Inf\"} 7",
                "wait_seconds_sum{table=\"a\"} 3.25",
                "wait_seconds_count{table=\"a\"} 7",
            ]
        );
    }

    #[test]
    fn a_summary_without_labels_has_a_sum_and_a_count() {
        let text = text(|page| {
            page.family("took_seconds", Kind::Summary, "Times.")
                .summary(&[], 1.5, 2);
        });
        assert!(text.ends_with("took_seconds_sum 1.5\ntook_seconds_count 2\n"));
    }

    #[test]
    fn families_of_several_pages_come_together_once() {
        let one = |pipeline: &str, rows: f64| {
            text(|page| {
                page.family("rows_total", Kind::Counter, "Rows.")
                    .sample(&[("pipeline", pipeline)], rows);
                page.family("cpu_seconds_total", Kind::Counter, "CPU time.")
                    .sample(&[], rows);
            })
        };
        let pages = [one("a", 1.0), one("b} 2 ", 2.0), String::new()];
        assert_eq!(
            merge(pages.iter().map(String::as_str)),
            "# HELP rows_total Rows.\n# TYPE rows_total counter\n\
             rows_total{pipeline=\"a\"} 1\nrows_total{pipeline=\"b} 2 \"} 2\n\
             # HELP cpu_seconds_total CPU time.\n# TYPE cpu_seconds_total counter\ncpu_seconds_total 1\n"
        );
    }

    #[test]
    #[should_panic(expected = "_total")]
    fn a_counter_is_named_as_one() {
        let _ = Page::default().family("rows", Kind::Counter, "Rows.");
    }
}
