//! Line charts as SVG: one or several below each other, readable on light and on dark backgrounds.
//!
//! `plotters` draws them, with its SVG backend only. A media query changes the colors for readers who
//! prefer dark pages.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::series::DashedLineSeries;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Powers of ten; bounds are above zero.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The label, with the unit.
    pub label: String,
    /// The scale.
    pub scale: Scale,
    /// The lower bound.
    pub min: f64,
    /// The upper bound, above the lower one.
    pub max: f64,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// The horizontal position.
    pub x: f64,
    /// The vertical position.
    pub y: f64,
    /// Whether the point is filled; otherwise it is hollow.
    pub filled: bool,
}

/// A line, with its name in the legend.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The color: an index into the palette, which starts over after the last one.
    pub color: usize,
    /// Whether the line is dashed.
    pub dashed: bool,
    /// The points, from left to right.
    pub marks: Vec<Mark>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title above the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// Colors on light and on dark backgrounds. Neighbors differ in lightness as well as in hue.
const PALETTE: [(RGBColor, &str); 9] = [
    (RGBColor(0x1f, 0x23, 0x28), "#e6edf3"),
    (RGBColor(0xc1, 0x12, 0x1f), "#ff7b72"),
    (RGBColor(0xd9, 0x77, 0x06), "#ffb454"),
    (RGBColor(0x0e, 0x74, 0x90), "#56d4dd"),
    (RGBColor(0x1d, 0x4e, 0xd8), "#79a8ff"),
    (RGBColor(0x15, 0x80, 0x3d), "#56d364"),
    (RGBColor(0x7e, 0x22, 0xce), "#d2a8ff"),
    (RGBColor(0xbe, 0x18, 0x5d), "#ff9bce"),
    (RGBColor(0x78, 0x71, 0x6c), "#a8a29e"),
];

/// Colors of background and text on dark pages.
const DARK: [(RGBColor, &str); 2] = [(WHITE, "#0d1117"), (BLACK, "#e6edf3")];

const FONT: &str = "sans-serif";

/// Line heights in pixels; letters are four fifths of it.
const TITLE: u32 = 19;
const TEXT: u32 = 15;

/// Size of a chart in pixels, and the width of its legend on the right.
const WIDTH: u32 = 860;
const HEIGHT: u32 = 430;
const LEGEND: u32 = 160;
const LEGEND_STEP: i32 = 20;

const RADIUS: u32 = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The charts, one below the other.
///
/// # Errors
///
/// The library's error.
pub fn svg(charts: &[Chart]) -> Result<String, String> {
    let mut text = String::new();
    let rows = charts.len().max(1);
    let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT * rows as u32));
    let root = root.into_drawing_area();
    let failed = |error: &dyn std::fmt::Display| format!("can't draw: {error}");
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    for (area, chart) in root.split_evenly((rows, 1)).iter().zip(charts) {
        draw(area, chart).map_err(|error| failed(&error))?;
    }
    root.present().map_err(|error| failed(&error))?;
    drop(root);
    Ok(with_dark_colors(&text))
}

/// The same drawing, with other colors for readers who prefer dark pages.
fn with_dark_colors(svg: &str) -> String {
    let colors = PALETTE.into_iter().chain(DARK);
    let turned = colors.map(|(RGBColor(red, green, blue), dark)| {
        let light = format!("#{red:02X}{green:02X}{blue:02X}");
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    let turned = turned.collect::<String>();
    let style = format!("\n<style>@media (prefers-color-scheme:dark){{{turned}}}</style>");
    match svg
        .find("<svg")
        .and_then(|at| Some(at + svg[at..].find('>')? + 1))
    {
        Some(at) => format!("{}{style}{}", &svg[..at], &svg[at..]),
        None => svg.to_string(),
    }
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(area: &Area<'_>, chart: &Chart) -> Drawn {
    let (x, y) = (&chart.x, &chart.y);
    let (xs, ys) = (x.min..x.max, y.min..y.max);
    match (x.scale, y.scale) {
        (Scale::Linear, Scale::Linear) => draw_in(area, chart, xs, ys),
        (Scale::Linear, Scale::Log) => draw_in(area, chart, xs, ys.log_scale()),
        (Scale::Log, Scale::Linear) => draw_in(area, chart, xs.log_scale(), ys),
        (Scale::Log, Scale::Log) => draw_in(area, chart, xs.log_scale(), ys.log_scale()),
    }
}

fn draw_in<X, Y>(area: &Area<'_>, chart: &Chart, xs: X, ys: Y) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let (lines, legend) = area.split_horizontally(WIDTH - LEGEND);
    let mut context = ChartBuilder::on(&lines)
        .caption(&chart.title, (FONT, TITLE))
        .margin(8)
        .set_label_area_size(LabelAreaPosition::Left, 56)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(xs, ys)?;
    context
        .configure_mesh()
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .label_style((FONT, TEXT))
        .draw()?;
    for (place, series) in chart.series.iter().enumerate() {
        let (color, _) = PALETTE[series.color % PALETTE.len()];
        let line = ShapeStyle::from(&color).stroke_width(2);
        let points = series.marks.iter();
        let points = points.map(|mark| (chart.x.within(mark.x), chart.y.within(mark.y)));
        let points = points.collect::<Vec<(f64, f64)>>();
        match series.dashed {
            true => context.draw_series(DashedLineSeries::new(points.clone(), 6, 4, line))?,
            false => context.draw_series(LineSeries::new(points.clone(), line))?,
        };
        for (point, mark) in points.into_iter().zip(&series.marks) {
            if !mark.filled {
                context.draw_series([Circle::new(point, RADIUS, WHITE.filled())])?;
            }
            let style = match mark.filled {
                true => color.filled(),
                false => ShapeStyle::from(&color).stroke_width(1),
            };
            context.draw_series([Circle::new(point, RADIUS, style)])?;
        }
        let y = 44 + LEGEND_STEP * place as i32;
        let dashes: &[(i32, i32)] = match series.dashed {
            true => &[(0, 10), (16, 28)],
            false => &[(0, 28)],
        };
        for &(from, to) in dashes {
            legend.draw(&PathElement::new([(from, y), (to, y)], line))?;
        }
        legend.draw(&Text::new(series.name.clone(), (36, y - 6), (FONT, TEXT)))?;
    }
    Ok(())
}

impl Axis {
    /// An axis by powers of ten that covers these values, which must be above zero.
    pub fn around(label: String, values: impl Iterator<Item = f64> + Clone) -> Axis {
        let min = values.clone().fold(f64::INFINITY, f64::min);
        let max = values.fold(0.0, f64::max);
        Axis {
            label,
            scale: Scale::Log,
            min,
            // A single value needs an axis of some length, too.
            max: if max > min { max } else { min * 10.0 },
        }
    }

    /// The value, or the nearer end of the axis if the value is outside.
    fn within(&self, value: f64) -> f64 {
        match value.is_nan() {
            true => self.min,
            false => value.clamp(self.min, self.max),
        }
    }
}

/// A number in its shortest form: `0.1`, `10`, `100k`, `1M`.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Three digits; the steps of an axis need no more.
    let rounded = format!("{value:.3}");
    let rounded = rounded.trim_end_matches('0').trim_end_matches('.');
    format!("{rounded}{unit}")
}

#[cfg(test)]
mod tests {
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
                    color: 1,
                    dashed: false,
                    marks: vec![mark(100.0, 0.0, true), mark(1e4, 100.0, false)],
                },
                Series {
                    name: "auto".to_string(),
                    color: PALETTE.len() + 2,
                    dashed: true,
                    marks: vec![mark(1e6, 500.0, true), mark(-1.0, f64::NAN, true)],
                },
            ],
        }
    }

    #[test]
    fn a_drawing_has_every_point_and_dark_colors() {
        let text = svg(&[chart(), chart()]).unwrap();
        for part in [
            "CPU &lt;time&gt;",
            "width=\"860\"",
            "height=\"860\"",
            "messages per second",
        ] {
            assert!(text.contains(part), "'{part}' is not in {text}");
        }
        // Three filled points and a hollow one with its background, twice.
        assert_eq!(text.matches("<circle").count(), 10);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let dark = "prefers-color-scheme:dark";
        assert_eq!(text.matches(dark).count(), 1);
        // The library writes colors as the style names them.
        for color in ["#FFFFFF", "#000000", "#C1121F", "#D97706"] {
            let drawn = format!("\"{color}\"");
            assert!(text.matches(&drawn).count() > 2, "{color} in {text}");
        }
    }

    #[test]
    fn an_empty_list_is_a_drawing_too() {
        assert!(svg(&[]).unwrap().starts_with("<svg "));
    }

    #[test]
    fn axis_labels_are_short() {
        let labels = [0.05, 0.1, 1.0, 20.0, 1e3, 2.5e5, 1e6].map(short);
        assert_eq!(labels, ["0.05", "0.1", "1", "20", "1k", "250k", "1M"]);
    }
}
