//! Line charts as SVG: one or several below each other, readable on light and on dark ground.
//!
//! A file of its own, without script or font: colours are style classes, and a media query turns
//! them for readers who ask for dark pages. No dependency, no I/O.

use std::fmt::Write;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By equal steps.
    Linear,
    /// By powers of ten; bounds are above zero.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
    /// Its lower end.
    pub min: f64,
    /// Its upper end, above the lower one.
    pub max: f64,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Else hollow.
    pub filled: bool,
}

/// A line, with its name in the legend.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour: a place in the palette, which has [`COLOURS`] and begins anew behind them.
    pub colour: usize,
    /// Else drawn through.
    pub dashed: bool,
    /// Its points, from left to right.
    pub marks: Vec<Mark>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// What it shows.
    pub series: Vec<Series>,
}

/// Colours of the palette.
pub const COLOURS: usize = PALETTE.len();

/// On light and on dark ground. Neighbours differ in lightness as well as in hue.
const PALETTE: [(&str, &str); 9] = [
    ("#1f2328", "#e6edf3"),
    ("#c1121f", "#ff7b72"),
    ("#d97706", "#ffb454"),
    ("#0e7490", "#56d4dd"),
    ("#1d4ed8", "#79a8ff"),
    ("#15803d", "#56d364"),
    ("#7e22ce", "#d2a8ff"),
    ("#be185d", "#ff9bce"),
    ("#78716c", "#a8a29e"),
];

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 430.0;

/// Around the lines: above is the title, on the right the legend.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 54.0;

const RADIUS: f64 = 3.5;
const LEGEND_STEP: f64 = 20.0;

impl Axis {
    /// Where a value lies between the ends, from 0 to 1; beyond them at the end.
    fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => (value / self.min).ln() / (self.max / self.min).ln(),
        };
        // What has no logarithm lies at the lower end.
        if place.is_nan() {
            0.0
        } else {
            place.clamp(0.0, 1.0)
        }
    }

    /// Values with a line and a label.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let powers = self.min.log10().ceil() as i32..=self.max.log10().floor() as i32;
                powers.map(|power| 10f64.powi(power)).collect()
            }
            Scale::Linear => {
                let step = linear_step(self.max - self.min);
                let first = (self.min / step).ceil() as i64;
                let last = (self.max / step + 1e-9).floor() as i64;
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
        }
    }

    /// Values with a faint line.
    fn minor_ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Linear {
            return Vec::new();
        }
        let powers = self.min.log10().floor() as i32..=self.max.log10().floor() as i32;
        let values =
            powers.flat_map(|power| (2..10).map(move |n| f64::from(n) * 10f64.powi(power)));
        values
            .filter(|value| (self.min..=self.max).contains(value))
            .collect()
    }
}

/// One, two or five times a power of ten, five to ten of which fill the span.
fn linear_step(span: f64) -> f64 {
    let power = 10f64.powf((span / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let fits = steps.into_iter().find(|step| span / step <= 10.0 + 1e-9);
    fits.unwrap_or(power * 10.0)
}

/// A number as short as it can be: `0.1`, `10`, `100k`, `1M`.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Three digits; steps of an axis need no more.
    let rounded = format!("{value:.3}");
    let rounded = rounded.trim_end_matches('0').trim_end_matches('.');
    format!("{rounded}{unit}")
}

/// A text as XML has it.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// The charts, one below the other.
pub fn svg(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\">\n"
    );
    text.push_str(&style());
    text.push_str("<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n");
    for (place, chart) in charts.iter().enumerate() {
        let _ = writeln!(
            text,
            "<g transform=\"translate(0 {})\">",
            HEIGHT * place as f64
        );
        draw(chart, &mut text);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn style() -> String {
    let mut light = ".ground{fill:#ffffff}.text{fill:#1f2328}.grid{stroke:#d0d7de}\
                     .minor{stroke:#eef1f4}.frame{stroke:#57606a;fill:none}"
        .to_string();
    let mut dark = ".ground{fill:#0d1117}.text{fill:#e6edf3}.grid{stroke:#30363d}\
                    .minor{stroke:#1c2128}.frame{stroke:#8b949e}"
        .to_string();
    for (number, (on_light, on_dark)) in PALETTE.iter().enumerate() {
        let _ = write!(
            light,
            ".l{number}{{stroke:{on_light};fill:none;stroke-width:2}}\
             .f{number}{{stroke:{on_light};fill:{on_light}}}\
             .h{number}{{stroke:{on_light};fill:#ffffff;stroke-width:1.5}}"
        );
        let _ = write!(
            dark,
            ".l{number}{{stroke:{on_dark}}}.f{number}{{stroke:{on_dark};fill:{on_dark}}}\
             .h{number}{{stroke:{on_dark};fill:#0d1117}}"
        );
    }
    format!("<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>\n")
}

/// Where a point of a chart lies in the drawing.
fn position(chart: &Chart, mark: &Mark) -> (f64, f64) {
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x = LEFT + width * chart.x.place(mark.x);
    let y = TOP + height * (1.0 - chart.y.place(mark.y));
    (x, y)
}

fn draw(chart: &Chart, text: &mut String) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let _ = writeln!(
        text,
        "<text class=\"text\" x=\"{LEFT}\" y=\"24\" font-size=\"15\" \
         font-weight=\"bold\">{}</text>",
        escape(&chart.title)
    );
    let at = |x: f64, y: f64| {
        let mark = Mark { x, y, filled: true };
        position(chart, &mark)
    };
    let line = |class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)| {
        format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        )
    };
    for (class, xs, ys) in [
        ("minor", chart.x.minor_ticks(), chart.y.minor_ticks()),
        ("grid", chart.x.ticks(), chart.y.ticks()),
    ] {
        for value in xs {
            let (x, _) = at(value, chart.y.min);
            text.push_str(&line(class, (x, TOP), (x, bottom)));
        }
        for value in ys {
            let (_, y) = at(chart.x.min, value);
            text.push_str(&line(class, (LEFT, y), (right, y)));
        }
    }
    for value in chart.x.ticks() {
        let (x, _) = at(value, chart.y.min);
        label(text, x, bottom + 18.0, "middle", &short(value));
    }
    for value in chart.y.ticks() {
        let (_, y) = at(chart.x.min, value);
        label(text, LEFT - 8.0, y + 4.0, "end", &short(value));
    }
    let _ = writeln!(
        text,
        "<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/>",
        right - LEFT,
        bottom - TOP
    );
    let middle = LEFT.midpoint(right);
    label(text, middle, HEIGHT - 14.0, "middle", &chart.x.label);
    let _ = writeln!(
        text,
        "<text class=\"text\" transform=\"translate(16 {}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        TOP.midpoint(bottom),
        escape(&chart.y.label)
    );
    for (place, series) in chart.series.iter().enumerate() {
        draw_series(chart, series, text);
        draw_legend(series, place, text);
    }
}

fn label(text: &mut String, x: f64, y: f64, anchor: &str, content: &str) {
    let content = escape(content);
    let _ = writeln!(
        text,
        "<text class=\"text\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
    );
}

fn dashes(series: &Series) -> &'static str {
    if series.dashed {
        " stroke-dasharray=\"6 4\""
    } else {
        ""
    }
}

fn draw_series(chart: &Chart, series: &Series, text: &mut String) {
    let colour = series.colour % COLOURS;
    let points = series.marks.iter().map(|mark| {
        let (x, y) = position(chart, mark);
        format!("{x:.1},{y:.1}")
    });
    let _ = writeln!(
        text,
        "<polyline class=\"l{colour}\" points=\"{}\"{}/>",
        points.collect::<Vec<_>>().join(" "),
        dashes(series)
    );
    for mark in &series.marks {
        let (x, y) = position(chart, mark);
        circle(text, colour, mark.filled, x, y);
    }
}

fn circle(text: &mut String, colour: usize, filled: bool, x: f64, y: f64) {
    let class = if filled { 'f' } else { 'h' };
    let _ = writeln!(
        text,
        "<circle class=\"{class}{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\"/>"
    );
}

fn draw_legend(series: &Series, place: usize, text: &mut String) {
    let colour = series.colour % COLOURS;
    let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 8.0 + LEGEND_STEP * place as f64);
    let _ = writeln!(
        text,
        "<polyline class=\"l{colour}\" points=\"{x},{y} {},{y}\"{}/>",
        x + 28.0,
        dashes(series)
    );
    circle(text, colour, true, x + 14.0, y);
    label(text, x + 36.0, y + 4.0, "start", &series.name);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn chart() -> Chart {
        let mark = |x, y, filled| Mark { x, y, filled };
        Chart {
            title: "CPU <time> & \"rate\"".to_string(),
            x: Axis {
                label: "messages per second".to_string(),
                scale: Scale::Log,
                min: 100.0,
                max: 1e6,
            },
            y: Axis {
                label: "% of a core".to_string(),
                scale: Scale::Linear,
                min: 0.0,
                max: 200.0,
            },
            series: vec![
                Series {
                    name: "poll".to_string(),
                    colour: 1,
                    dashed: false,
                    marks: vec![mark(100.0, 0.0, true), mark(1e4, 100.0, false)],
                },
                Series {
                    name: "auto".to_string(),
                    colour: COLOURS + 2,
                    dashed: true,
                    marks: vec![mark(1e6, 500.0, true), mark(-1.0, 200.0, true)],
                },
            ],
        }
    }

    /// Every tag that opens closes, in order, and every attribute is quoted: enough of XML for what
    /// is written here.
    pub(crate) fn check_well_formed(text: &str) {
        let mut open = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find('<') {
            let content = &rest[..start];
            assert!(!content.contains('>'), "{content}");
            for (at, _) in content.match_indices('&') {
                let entity = &content[at..];
                let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
                assert!(
                    known.iter().any(|name| entity.starts_with(name)),
                    "{entity}"
                );
            }
            let end = start + rest[start..].find('>').expect("a tag that ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
                continue;
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.split([' ', '/']).next().unwrap();
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
        assert_eq!(rest.trim(), "");
    }

    #[test]
    fn a_drawing_is_well_formed() {
        let text = svg(&[chart(), chart()]);
        check_well_formed(&text);
        assert!(text.contains("CPU &lt;time&gt; &amp; &quot;rate&quot;"));
        assert!(text.contains("viewBox=\"0 0 860 860\""));
        assert!(text.contains("prefers-color-scheme:dark"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn points_lie_where_their_values_are() {
        let text = svg(&[chart()]);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let circle = |class: &str, x: f64, y: f64| {
            let circle = format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\"");
            assert!(text.contains(&circle), "{circle} in {text}");
        };
        // The lower left corner; half way along the decades and up, hollow.
        circle("f1", LEFT, bottom);
        circle("h1", LEFT.midpoint(right), TOP.midpoint(bottom));
        // What is beyond an end lies at it; colours begin anew.
        circle("f2", right, TOP);
        circle("f2", LEFT, TOP);
        let dashed = "stroke-dasharray=\"6 4\"";
        assert_eq!(text.matches(dashed).count(), 2, "a line and its legend");
    }

    #[test]
    fn axes_are_divided_at_round_values() {
        let chart = chart();
        assert_eq!(chart.x.ticks(), [1e2, 1e3, 1e4, 1e5, 1e6]);
        let ticks = [
            0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0, 200.0,
        ];
        assert_eq!(chart.y.ticks(), ticks);
        assert!(chart.x.minor_ticks().contains(&2e5));
        let labels = [0.05, 0.1, 1.0, 20.0, 1e3, 2.5e5, 1e6].map(short);
        assert_eq!(labels, ["0.05", "0.1", "1", "20", "1k", "250k", "1M"]);
    }
}
