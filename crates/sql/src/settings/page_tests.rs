//! `docs/settings.md` is generated from the table of settings; `UPDATE_EXPECTED=1` writes it. Also checks the
//! table.

use std::path::PathBuf;

use super::*;

const COLUMNS: usize = 110;

const HEAD: &str = "\
# Settings

<!-- Generated from crates/sql/src/settings/table.rs:
     UPDATE_EXPECTED=1 cargo test -p slackwater-sql settings -->

A setting belongs to a query, while an option belongs to a table. `SET 'name' = 'value';` sets it in a file or
in the shell, `--set name=value` on the command line, which takes precedence; `RESET 'name'` undoes a SET, and
`RESET` all of them. The last SET of a setting applies to all queries of the file; only `parallelism` and
`late_rows` apply to the statements after them. [Flink's names](coming-from.md#flinks-names) of settings are
accepted where they mean the same.
";

/// The text with constants in quotes as code.
fn with_code(text: &str) -> String {
    let parts = text.split('\'').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => part.to_string(),
        _ => format!("`'{part}'`"),
    });
    parts.collect()
}

fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("one at least");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= COLUMNS {
            *last += &format!(" {word}");
        } else {
            lines.push(word.to_string());
        }
    }
    lines.join("\n")
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

fn section(setting: &Setting) -> String {
    let meaning = capitalized(&with_code(setting.meaning));
    let (values, default) = (with_code(setting.values), with_code(setting.default));
    let facts = format!(
        "Values: {values}. Default: {default}. Since {}.",
        setting.since
    );
    let more = setting.more.split("\n\n").filter(|more| !more.is_empty());
    let paragraphs = [format!("{meaning}."), facts].into_iter();
    let paragraphs = paragraphs.chain(more.map(str::to_string));
    let paragraphs = paragraphs.map(|paragraph| format!("\n{}\n", wrapped(&paragraph)));
    format!(
        "\n### `{}`\n{}",
        setting.name,
        paragraphs.collect::<String>()
    )
}

fn page() -> String {
    let mut page = HEAD.to_string();
    for topic in Topic::ALL {
        page += &format!("\n## {}\n", topic.heading());
        let of_topic = SETTINGS.iter().filter(|setting| setting.topic == topic);
        page.extend(of_topic.map(section));
    }
    page
}

#[test]
fn the_page_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/settings.md is out of date: UPDATE_EXPECTED=1 writes it"
    );
}

#[test]
fn settings_are_sorted_and_unique() {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
}

/// The constants in quotes in a text.
fn constants(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').skip(1).step_by(2)
}

#[test]
fn every_value_that_the_table_shows_can_be_set() {
    for setting in SETTINGS {
        let mut shown = 0;
        for value in constants(setting.values).chain(constants(setting.default)) {
            // The excluded end of a range is written as "above zero", without quotes.
            let set = Settings::default().set(setting.name, value, &[]);
            assert_eq!(set, Ok(()), "'{}' = '{value}'", setting.name);
            shown += 1;
        }
        let numbers = setting.values.contains(" to 1");
        assert!(shown > 0 || numbers, "'{}' shows no value", setting.name);
        let wrong = Settings::default().set(setting.name, "", &[]).unwrap_err();
        assert_eq!(wrong.hint, setting.hint());
    }
}

#[test]
fn defaults_hold_without_a_set() {
    for setting in SETTINGS {
        let mut constants = constants(setting.default);
        let (Some(default), None) = (constants.next(), constants.next()) else {
            continue;
        };
        let mut settings = Settings::default();
        settings.set(setting.name, default, &[]).unwrap();
        // These remember that a value was set.
        settings.linger_set = false;
        settings.wait_delay_set = false;
        settings.parallelism = settings.parallelism.filter(|set| *set != Parallelism::Auto);
        assert_eq!(settings, Settings::default(), "{}", setting.name);
    }
}
