//! The three graphs for Graphviz: `slackwater explain query.sql --format dot | dot -Tpng`.

use std::fmt::Write;

use super::picture::Picture;

/// The pictures as clusters of one directed graph.
pub fn dot(pictures: &[Picture]) -> String {
    let mut text = String::from(
        "digraph slackwater {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n  \
         edge [fontname=\"sans-serif\"];\n",
    );
    for picture in pictures {
        draw(picture, &mut text);
    }
    text.push_str("}\n");
    text
}

fn draw(picture: &Picture, text: &mut String) {
    let name = picture.name;
    let _ = writeln!(text, "  subgraph cluster_{name} {{");
    let _ = writeln!(text, "    label={};", quoted(&picture.title));
    for (number, _) in picture.boxes.iter().enumerate() {
        if picture.boxes[number].group.is_none() {
            text.push_str(&node(picture, number, "    "));
        }
    }
    for (group, label) in picture.groups.iter().enumerate() {
        let _ = writeln!(text, "    subgraph cluster_{name}_{group} {{");
        let _ = writeln!(text, "      label={};", quoted(label));
        for (number, tile) in picture.boxes.iter().enumerate() {
            if tile.group == Some(group) {
                text.push_str(&node(picture, number, "      "));
            }
        }
        text.push_str("    }\n");
    }
    for arrow in &picture.arrows {
        let label = match arrow.label.as_str() {
            "" => String::new(),
            label => format!(" [label={}]", quoted(label)),
        };
        let _ = writeln!(
            text,
            "    {name}{} -> {name}{}{label};",
            arrow.from, arrow.to
        );
    }
    text.push_str("  }\n");
}

fn node(picture: &Picture, number: usize, indent: &str) -> String {
    let label = picture.boxes[number].lines.join("\n");
    let label = quoted(label.trim_end());
    format!("{indent}{}{number} [label={label}];\n", picture.name)
}

/// A text as Graphviz reads it.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_lines_stay_in_a_label() {
        assert_eq!(quoted("a \"b\"\nc\\d"), r#""a \"b\"\nc\\d""#);
    }
}
