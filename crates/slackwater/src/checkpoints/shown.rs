//! Rewrites the descriptions of operators in checkpoints of format 1, which name windows and functions as the
//! engine did, in SQL's words.

/// The description in SQL's words.
pub fn shown(text: &str) -> String {
    let mut shown = replaced(text, "Windows", windows);
    shown = replaced(&shown, "SortOptions", |fields| {
        let is_descending = field(fields, "descending") == Some("true");
        if is_descending { "DESC" } else { "ASC" }.to_string()
    });
    shown = replaced(&shown, "Extreme", |fields| {
        let is_largest = field(fields, "largest") == Some("true");
        if is_largest { "MAX" } else { "MIN" }.to_string()
    });
    shown = replaced(&shown, "FirstLast", |fields| {
        let is_last = field(fields, "last") == Some("true");
        if is_last { "LAST_VALUE" } else { "FIRST_VALUE" }.to_string()
    });
    shown = replaced(&shown, "Sum", |_| "SUM".to_string());
    shown = replaced(&shown, "Distinct", |fields| {
        let function = field(fields, "function").unwrap_or_default();
        format!("DISTINCT {function}")
    });
    shown
        .replace("Average(", "AVG(")
        .replace("Count(", "COUNT(")
}

/// The text with each `Name { fields }` replaced by `with(fields)`.
fn replaced(text: &str, name: &str, with: impl Fn(&str) -> String) -> String {
    let open = format!("{name} {{ ");
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&open) {
        let Some(end) = rest[at..].find(" }") else {
            break;
        };
        shown.push_str(&rest[..at]);
        shown.push_str(&with(&rest[at + open.len()..at + end]));
        rest = &rest[at + end + " }".len()..];
    }
    shown + rest
}

fn field<'f>(fields: &'f str, name: &str) -> Option<&'f str> {
    let fields = fields.split(", ");
    let mut pairs = fields.filter_map(|field| field.split_once(": "));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

fn windows(fields: &str) -> String {
    let number = |name| field(fields, name).and_then(|value| value.parse::<i128>().ok());
    let tick_ns = match field(fields, "unit") {
        Some("Second") => 1_000_000_000,
        Some("Millisecond") => 1_000_000,
        Some("Microsecond") => 1_000,
        _ => 1,
    };
    let (size, slide) = (number("size").unwrap_or(0), number("slide").unwrap_or(0));
    let length = |ticks: i128| slackwater_sql::explain::duration(ticks * tick_ns);
    match field(fields, "kind") {
        None if size == slide => format!("tumbling {}", length(size)),
        None => format!("sliding {} every {}", length(size), length(slide)),
        Some("Cumulating") => format!("cumulating {} by {}", length(size), length(slide)),
        Some("Session") => format!("sessions, gap {}", length(size)),
        Some(_) if size == slide => format!("windows of {size} rows"),
        Some(_) => format!("windows of {size} rows every {slide}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::TimeUnit;
    use slackwater_engine::operator::window::Windows;

    #[test]
    fn what_a_checkpoint_says_is_shown_without_the_engines_words() {
        let windows = Windows::new(10_000, 5_000, TimeUnit::Millisecond).unwrap();
        let text = format!(
            "its state has other windows: '{windows:?}' before, 'none' now; keys: 'k STRING'; \
             aggregates: 'Count(), Sum {{ to: BIGINT }}(v BIGINT), Extreme {{ largest: true, of: DOUBLE \
             }}(p DOUBLE)'"
        );
        assert_eq!(
            shown(&text),
            "its state has other windows: 'sliding 10 s every 5 s' before, 'none' now; keys: 'k STRING'; \
             aggregates: 'COUNT(), SUM(v BIGINT), MAX(p DOUBLE)'"
        );
        assert_eq!(shown("Windows { of the world"), "Windows { of the world");
    }
}
