//! What a setting is.

use super::Settings;
use super::topic::Topic;

/// A setting.
pub struct Setting {
    /// The name in `SET 'name' = 'value'`.
    pub name: &'static str,
    /// The values that are accepted, with constants in quotes. A test sets each of these.
    pub values: &'static str,
    /// The value without a SET: a constant in quotes, which a test sets, or a description.
    pub default: &'static str,
    /// The first version with this setting.
    pub since: &'static str,
    /// The part of the page to which the setting belongs.
    pub topic: Topic,
    /// The meaning, as the end of "… is".
    pub meaning: &'static str,
    /// A longer description, in Markdown for the page.
    pub more: &'static str,
    /// Sets a value; `None` if the value is not valid.
    pub(super) set: fn(&mut Settings, &str) -> Option<()>,
}

impl Setting {
    /// The hint for a value that is not valid.
    pub fn hint(&self) -> String {
        let Setting {
            name,
            values,
            default,
            meaning,
            ..
        } = self;
        format!("'{name}' is {meaning}: {values}; default {default}")
    }
}
