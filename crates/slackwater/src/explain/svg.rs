//! The three graphs as SVG, one below the other: boxes in columns by their distance from a source, with
//! curves between them. Readable on light and dark backgrounds, without scripts, fonts or Graphviz.

use std::fmt::Write;

use super::picture::{Picture, Tile};

const MARGIN: f64 = 16.0;

/// The height of a graph's title.
const TITLE: f64 = 34.0;

/// The gap between columns, wide enough for a label.
const COLUMN_GAP: f64 = 110.0;
const ROW_GAP: f64 = 12.0;

const LINE: f64 = 16.0;
const PADDING: f64 = 8.0;

/// The width of a character of 12 pixels, rounded up.
const CHARACTER: f64 = 6.9;

/// Longer lines are cut, because conditions can have any length.
const LINE_CHARACTERS_MAX: usize = 44;

/// The longest label that fits between two columns.
const LABEL_CHARACTERS_MAX: usize = 14;

/// A box with its position.
struct Placed {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The pictures, one below the other.
pub fn svg(pictures: &[Picture]) -> String {
    let laid_out = pictures.iter().map(|picture| (picture, lay_out(picture)));
    let laid_out = laid_out.collect::<Vec<(&Picture, Vec<Placed>)>>();
    let right = |placed: &[Placed]| {
        let ends = placed.iter().map(|placed| placed.x + placed.width);
        ends.fold(0.0, f64::max)
    };
    let bottom = |placed: &[Placed]| {
        let ends = placed.iter().map(|placed| placed.y + placed.height);
        ends.fold(TITLE, f64::max)
    };
    let widths = laid_out.iter().map(|(_, placed)| right(placed));
    let width = widths.fold(240.0, f64::max) + MARGIN;
    let heights = laid_out.iter().map(|(_, placed)| bottom(placed) + MARGIN);
    let height = heights.sum::<f64>();
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\">\n{STYLE}\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
    );
    let mut top = 0.0;
    for (picture, placed) in &laid_out {
        let _ = writeln!(text, "<g transform=\"translate(0 {top:.0})\">");
        draw(picture, placed, &mut text);
        text.push_str("</g>\n");
        top += bottom(placed) + MARGIN;
    }
    text.push_str("</svg>\n");
    text
}

const STYLE: &str = "<style>.ground{fill:#ffffff}.text{fill:#1f2328}.faint{fill:#57606a}\
    .box{fill:#f6f8fa;stroke:#57606a}.arrow{stroke:#0e7490;fill:none}.head{fill:#0e7490}\
    @media (prefers-color-scheme:dark){.ground{fill:#0d1117}.text{fill:#e6edf3}\
    .faint{fill:#8b949e}.box{fill:#161b22;stroke:#8b949e}.arrow{stroke:#56d4dd}\
    .head{fill:#56d4dd}}</style>\n";

/// The lines of a box, including its group's label.
fn lines(picture: &Picture, tile: &Tile) -> Vec<String> {
    let group = tile.group.map(|group| picture.groups[group].clone());
    let lines = tile.lines.iter().cloned().chain(group);
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(|line| cut(&line, LINE_CHARACTERS_MAX)).collect()
}

fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_string();
    }
    let kept = text.chars().take(characters_max - 1).collect::<String>();
    format!("{kept}…")
}

fn lay_out(picture: &Picture) -> Vec<Placed> {
    // Arrows lead from earlier boxes to later ones, in the order of their ends.
    let mut columns = vec![0usize; picture.boxes.len()];
    let mut arrows = picture.arrows.iter().collect::<Vec<_>>();
    arrows.sort_by_key(|arrow| arrow.to);
    for arrow in arrows {
        columns[arrow.to] = columns[arrow.to].max(columns[arrow.from] + 1);
    }
    let sizes = picture.boxes.iter().map(|tile| {
        let lines = lines(picture, tile);
        let longest = lines.iter().map(|line| line.chars().count()).max();
        let width = longest.unwrap_or(0) as f64 * CHARACTER + 2.0 * PADDING;
        (width, lines.len() as f64 * LINE + 2.0 * PADDING)
    });
    let sizes = sizes.collect::<Vec<(f64, f64)>>();
    let count = columns.iter().max().map_or(0, |last| last + 1);
    let mut left = MARGIN;
    let mut places = Vec::new();
    for column in 0..count {
        let here = sizes.iter().zip(&columns).filter(|(_, at)| **at == column);
        let width = here.map(|((width, _), _)| *width).fold(0.0, f64::max);
        places.push((left, TITLE, width));
        left += width + COLUMN_GAP;
    }
    let placed = sizes
        .into_iter()
        .zip(&columns)
        .map(|((_, height), &column)| {
            let (x, y, width) = places[column];
            places[column].1 += height + ROW_GAP;
            Placed {
                x,
                y,
                width,
                height,
            }
        });
    placed.collect()
}

fn draw(picture: &Picture, placed: &[Placed], text: &mut String) {
    let _ = writeln!(
        text,
        "<text class=\"text\" x=\"{MARGIN}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>",
        escape(&picture.title)
    );
    for arrow in &picture.arrows {
        let (from, to) = (&placed[arrow.from], &placed[arrow.to]);
        let (x1, y1) = (from.x + from.width, from.y + from.height / 2.0);
        let (x2, y2) = (to.x, to.y + to.height / 2.0);
        let middle = x1.midpoint(x2);
        let _ = writeln!(
            text,
            "<path class=\"arrow\" d=\"M{x1:.1} {y1:.1}C{middle:.1} {y1:.1} {middle:.1} {y2:.1} \
             {:.1} {y2:.1}\"/>\n<path class=\"head\" d=\"M{x2:.1} {y2:.1}l-7 -3.5v7z\"/>",
            x2 - 6.0
        );
        if !arrow.label.is_empty() {
            let _ = writeln!(
                text,
                "<text class=\"faint\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                y1.midpoint(y2) - 4.0,
                escape(&cut(&arrow.label, LABEL_CHARACTERS_MAX))
            );
        }
    }
    for (tile, place) in picture.boxes.iter().zip(placed) {
        let Placed {
            x,
            y,
            width,
            height,
        } = place;
        let _ = writeln!(
            text,
            "<rect class=\"box\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"4\"/>"
        );
        for (number, line) in lines(picture, tile).iter().enumerate() {
            let class = if number == 0 { "text" } else { "faint" };
            let _ = writeln!(
                text,
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + PADDING,
                y + PADDING + LINE * (number as f64 + 0.75),
                escape(line)
            );
        }
    }
}

/// The text escaped for XML.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::picture::Arrow;

    #[test]
    fn a_drawing_is_well_formed_and_columns_follow_the_arrows() {
        let tile = |line: &str, group| Tile {
            lines: vec![line.to_string(), String::new()],
            group,
        };
        let arrow = |from, to, label: &str| Arrow {
            from,
            to,
            label: label.to_string(),
        };
        let picture = Picture {
            name: "test",
            title: "a < b & \"c\"".to_string(),
            boxes: vec![
                tile("source", None),
                tile(&"x > 1 AND ".repeat(20), Some(0)),
                tile("sink", None),
            ],
            groups: vec!["worker <0>".to_string()],
            arrows: vec![
                arrow(0, 2, ""),
                arrow(0, 1, "by a, b, c, d, e"),
                arrow(1, 2, ""),
            ],
        };
        let placed = lay_out(&picture);
        assert!(placed[0].x < placed[1].x && placed[1].x < placed[2].x);
        let text = svg(&[picture]);
        check_well_formed(&text);
        for part in ["a &lt; b &amp; &quot;c&quot;", "worker &lt;0&gt;", "…"] {
            assert!(text.contains(part), "'{part}' is not in {text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(text.matches("class=\"box\"").count(), 3);
        assert_eq!(text.matches("class=\"arrow\"").count(), 3);
    }

    /// Every tag that opens closes, in order, and every attribute is quoted: enough of XML for what
    /// is written here.
    fn check_well_formed(text: &str) {
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
}
