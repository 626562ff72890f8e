//! The SQL of a program, assembled from parts: files, `-e`, earlier input of the shell.

use slackwater_sql::error::Place;
use slackwater_sql::{Program, SqlError};

/// A program of several parts, each with its own name and line numbers.
#[derive(Debug, Clone, Default)]
pub struct Script {
    parts: Vec<Part>,
    text: String,
}

#[derive(Debug, Clone)]
struct Part {
    name: String,
    /// The number of lines before the part.
    lines_before: usize,
    text: String,
}

impl Script {
    /// A program of one part.
    pub fn new(name: &str, text: &str) -> Script {
        let mut script = Script::default();
        script.add(name, text);
        script
    }

    /// Adds a part after the earlier ones, whether these end with `;` or not.
    pub fn add(&mut self, name: &str, text: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\n;\n");
        }
        self.parts.push(Part {
            name: name.to_string(),
            lines_before: self.text.matches('\n').count(),
            text: text.to_string(),
        });
        self.text.push_str(text);
    }

    /// The whole SQL.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name for messages about the whole program: that of the only or the last part.
    pub fn name(&self) -> &str {
        self.parts.last().map_or("", |part| part.name.as_str())
    }

    /// Whether a part has that name.
    pub fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part.name == name)
    }

    /// The part that an error is in, if it has a place.
    pub fn part_of(&self, error: &SqlError) -> Option<usize> {
        let place = error.place?;
        let mut parts = self.parts.iter();
        parts.rposition(|part| part.lines_before < place.line)
    }

    /// The number of parts.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The place of an error within the last part.
    pub fn place_in_last(&self, error: &SqlError) -> Option<Place> {
        let (place, part) = (error.place?, self.parts.last()?);
        Some(Place {
            line: place.line.checked_sub(part.lines_before)?,
            ..place
        })
    }

    /// Adds warnings about statements that don't go together.
    pub fn warn(&self, program: &mut Program) {
        for clash in std::mem::take(&mut program.clashes) {
            let mut text = clash.text;
            for (number, place) in clash.places.into_iter().enumerate() {
                text = text.replace(&format!("{{{number}}}"), &self.name_of(place));
            }
            program.warnings.push(text);
        }
    }

    /// The name of a place for users; without a place, the error is on the command line.
    fn name_of(&self, place: Option<Place>) -> String {
        let Some(place) = place else {
            return "--set".to_string();
        };
        let mut parts = self.parts.iter().rev();
        let part = parts.find(|part| part.lines_before < place.line);
        let (name, before) = part.map_or(("", 0), |part| (&part.name[..], part.lines_before));
        format!("{name}:{}", place.line - before)
    }

    /// The error as shown to the user, with the line within its part.
    pub fn render(&self, error: &SqlError) -> String {
        let Some(place) = error.place else {
            return error.render(self.name(), "");
        };
        let part = self
            .parts
            .iter()
            .rev()
            .find(|part| part.lines_before < place.line);
        let Some(part) = part else {
            return error.render(self.name(), &self.text);
        };
        let mut error = error.clone();
        error.place = Some(Place {
            line: place.line - part.lines_before,
            ..place
        });
        error.render(&part.name, &part.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line_of_their_part() {
        let mut script = Script::new(
            "a.sql",
            "CREATE TABLE t (n INT)\nWITH ('connector' = 'stdin')",
        );
        script.add("-e", "\nSELECT m FROM t");
        script.add("-e", "SELECT n FROM t -- the end");
        let compiled = slackwater_sql::compile(script.text(), &[], &crate::catalog::BuiltIn);
        let error = compiled.err().expect("there is no column m");
        let shown = script.render(&error);
        assert!(
            shown.starts_with("-e:2:8: there is no column 'm'"),
            "{shown}"
        );
        assert!(shown.contains("\n2 | SELECT m FROM t\n"), "{shown}");
    }
}
