//! The table of formats: what `'format' = '…'` can name, and the description of each.
//!
//! A format of lines works with every connector that has formats, a format of columns with files.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use slackwater_engine::format::{RecordFormat, RecordTable};

use crate::columns::{self, ColumnFormat};
use crate::format::{CsvOptions, Format, Own, RegexOptions, combined_log, types};
use crate::options::{OptionError, OptionKind, Options, listed, nearest, option};
use crate::table::Use;

/// All formats, in the order in which messages name them. The first is the default.
pub const FORMATS: &[FormatKind] = &[CSV, JSON, COMBINED_LOG, REGEX, RAW, ARROW, PARQUET];

/// The formats that a connector's rows can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Formats {
    /// The connector defines its rows itself.
    None,
    /// Each record is a message.
    Messages,
    /// Records are lines of a stream.
    Lines,
    /// Files, of lines or of columns.
    Files,
}

type MakeFormat<T> = fn(&Options<'_>, &Schema) -> Result<T, OptionError>;

/// How a format lays out its rows, with the functions that make it from the options for the columns of a
/// schema.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Layout {
    Lines {
        read: MakeFormat<Format>,
        /// `None`: such lines can only be read.
        write: Option<MakeFormat<Format>>,
    },
    Columns(MakeFormat<ColumnFormat>),
}

/// The description of a format.
#[derive(Debug, Clone, Copy)]
pub struct FormatKind {
    /// The format's name.
    pub name: &'static str,
    pub(crate) layout: Layout,
    /// Options of both directions.
    pub(crate) options: &'static [OptionKind],
    pub(crate) source_options: &'static [OptionKind],
    pub(crate) sink_options: &'static [OptionKind],
    /// The options that are not allowed if each record is a message.
    pub(crate) not_of_messages: &'static [&'static str],
}

/// The entry of `csv`.
const CSV: FormatKind = FormatKind {
    name: "csv",
    layout: Layout::Lines {
        read: |options, schema| {
            types::check_columns(schema)?;
            types::check_scalar(schema, "csv")?;
            Ok(Format::Csv(CsvOptions::read(options)?))
        },
        write: Some(|options, schema| {
            types::check_flat(schema, "csv")?;
            Ok(Format::Csv(CsvOptions::read(options)?))
        }),
    },
    options: &[
        option("csv.delimiter", "`,`", "one ASCII character, or `'\\t'`"),
        option(
            "csv.header",
            "`false`",
            "`true`: the first record of each file is a header. Sources skip it: columns are matched by \
             position, so all must be declared, in the order of the file. In another order, values end up \
             in the wrong columns, and records are only bad if a value does not fit there; there is a \
             warning if the header has the table's columns in another order. Without the option, a header \
             is read as a record. Sinks write it",
        ),
        option(
            "csv.null",
            "an empty field",
            "an unquoted field equal to this is NULL: `'NA'`",
        ),
    ],
    source_options: &[option(
        "csv.comment",
        "none",
        "lines that begin with this character are skipped",
    )],
    sink_options: &[],
    not_of_messages: &["csv.header", "csv.comment"],
};

/// The entry of `json`.
const JSON: FormatKind = FormatKind {
    name: "json",
    layout: Layout::Lines {
        read: |_, schema| {
            types::check_columns(schema)?;
            types::check_nested(schema, "json")?;
            Ok(Format::Json)
        },
        write: Some(|_, _| Ok(Format::Json)),
    },
    options: &[],
    source_options: &[],
    sink_options: &[],
    not_of_messages: &[],
};

/// The entry of `combined_log`.
const COMBINED_LOG: FormatKind = FormatKind {
    name: "combined_log",
    layout: Layout::Lines {
        read: |_, schema| {
            types::check_columns(schema)?;
            Ok(Format::CombinedLog(combined_log::parts(schema)?))
        },
        write: None,
    },
    options: &[],
    source_options: &[],
    sink_options: &[],
    not_of_messages: &[],
};

/// The entry of `raw`.
const RAW: FormatKind = FormatKind {
    name: "raw",
    layout: Layout::Lines {
        read: |_, schema| {
            types::check_columns(schema)?;
            match schema.fields().as_ref() {
                [one] if one.data_type() == &DataType::Utf8View => Ok(Format::Raw),
                _ => Err(OptionError::table(
                    "format raw gives each line as one value",
                    "declare exactly one column, of type STRING",
                )),
            }
        },
        write: None,
    },
    options: &[],
    source_options: &[],
    sink_options: &[],
    not_of_messages: &[],
};

/// The entry of `regex`.
const REGEX: FormatKind = FormatKind {
    name: "regex",
    layout: Layout::Lines {
        read: |options, schema| {
            types::check_columns(schema)?;
            Ok(Format::Regex(RegexOptions::read(options, schema)?))
        },
        write: None,
    },
    options: &[],
    source_options: &[option(
        "regex.pattern",
        "required",
        "an expression in the [syntax of Rust's \
             `regex`](https://docs.rs/regex/latest/regex/#syntax). Each column needs a group \
             `(?<name>…)` with its name (case matters); other groups are ignored. A quote is written \
             twice, as always in SQL",
    )],
    sink_options: &[],
    not_of_messages: &[],
};

/// The entry of `parquet`.
const PARQUET: FormatKind = FormatKind {
    name: "parquet",
    layout: Layout::Columns(columns::parquet_of),
    options: &[],
    source_options: &[],
    sink_options: &[option(
        "parquet.compression",
        "`zstd`",
        "also `snappy`, `gzip`, `lz4` (LZ4_RAW), `none`",
    )],
    not_of_messages: &[],
};

/// The entry of `arrow`.
const ARROW: FormatKind = FormatKind {
    name: "arrow",
    layout: Layout::Columns(columns::arrow_of),
    options: &[],
    source_options: &[],
    sink_options: &[
        option(
            "arrow.layout",
            "`file`",
            "`stream`: without the list of batches at the end",
        ),
        option(
            "arrow.compression",
            "`none`",
            "also `zstd`, and `lz4` in a build with `parquet`",
        ),
    ],
    not_of_messages: &[],
};

/// The format that a table's options choose.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chosen<'a> {
    BuiltIn(&'static FormatKind),
    /// One that the program brings.
    Own(&'a dyn RecordFormat),
}

impl<'a> Chosen<'a> {
    pub(crate) fn of(
        options: &Options<'a>,
        usage: Use,
        formats: Formats,
    ) -> Result<Chosen<'a>, OptionError> {
        let Some(name) = options.text("format") else {
            return Ok(Chosen::BuiltIn(&FORMATS[0]));
        };
        let own = options.formats().iter();
        let built_in = FORMATS.iter();
        let mut known: Vec<&str> = (built_in.clone())
            .filter(|kind| kind.is_of(formats) && kind.can(usage))
            .map(|kind| kind.name)
            .collect();
        known.extend(own.clone().map(|format| format.name()));
        let quoted: Vec<String> = known.iter().map(|name| format!("'{name}'")).collect();
        let names = listed(quoted.iter().map(String::as_str), "or");
        let mut fix = format!("write {names}");
        let kind = (built_in.clone()).find(|kind| kind.name.eq_ignore_ascii_case(name));
        let own = (own.clone()).find(|format| format.name().eq_ignore_ascii_case(name));
        let reason = match (kind, own) {
            (Some(_), Some(_)) => {
                fix = "the program must give its format another name".to_string();
                format!("'{name}' is a format of the program's own and one that every build has")
            }
            (None, Some(own)) => return Ok(Chosen::Own(own.as_ref())),
            (Some(kind), _) if !kind.is_of(formats) => return Err(kind.not_lines()),
            (Some(kind), _) if kind.can(usage) => return Ok(Chosen::BuiltIn(kind)),
            (Some(kind), _) => format!("'{}' can only be read", kind.name),
            (None, None) => {
                if let Some(near) = nearest(name, &known) {
                    fix = format!("did you mean '{near}'? {fix}");
                }
                format!("'{name}' is not a format")
            }
        };
        Err(OptionError::new("format", reason, fix))
    }

    pub(crate) fn name(&self) -> &'a str {
        match self {
            Chosen::BuiltIn(kind) => kind.name,
            Chosen::Own(own) => own.name(),
        }
    }

    /// The names of the format's options for one use.
    pub(crate) fn known(&self, usage: Use, formats: Formats) -> Vec<&'a str> {
        match self {
            Chosen::BuiltIn(kind) => {
                let known = kind.known(usage, formats);
                known.map(|option| option.name).collect()
            }
            Chosen::Own(own) => own.options().iter().map(String::as_str).collect(),
        }
    }
}

/// What a format that the program brings does with a table.
fn own(
    format: &dyn RecordFormat,
    options: &Options<'_>,
    schema: &Schema,
    usage: Use,
) -> Result<Format, OptionError> {
    types::check_columns(schema)?;
    let made = format.records(&RecordTable {
        schema: &Arc::new(schema.clone()),
        options: options.values(),
        is_written: usage == Use::Sink,
    });
    let name = format.name();
    match made {
        Ok(records) => Ok(Format::Own(Own(records))),
        Err(wrong) => Err(OptionError {
            reason: match &wrong.option {
                Some(_) => wrong.reason,
                None => format!("format {name} {}", wrong.reason),
            },
            option: wrong.option,
            hint: wrong.hint,
        }),
    }
}

impl FormatKind {
    /// Whether a connector with these formats supports this one.
    pub(crate) fn is_of(&self, formats: Formats) -> bool {
        match formats {
            Formats::None => false,
            Formats::Messages | Formats::Lines => matches!(self.layout, Layout::Lines { .. }),
            Formats::Files => true,
        }
    }

    pub(crate) fn can(&self, usage: Use) -> bool {
        match self.layout {
            Layout::Lines { write: None, .. } => usage != Use::Sink,
            Layout::Lines { .. } | Layout::Columns(_) => true,
        }
    }

    fn not_lines(&self) -> OptionError {
        let reason = format!("'{}' is a format of files", self.name);
        let fix = "use 'connector' = 'file', or 'format' = 'json'";
        OptionError::new("format", reason, fix)
    }

    /// The connector's options for one use.
    pub(crate) fn known(
        &self,
        usage: Use,
        formats: Formats,
    ) -> impl Iterator<Item = &'static OptionKind> {
        let own = match usage {
            Use::Sink => self.sink_options,
            Use::Source | Use::Lookup => self.source_options,
        };
        let without = match formats {
            Formats::Messages => self.not_of_messages,
            _ => &[],
        };
        let all = self.options.iter().chain(own);
        all.filter(|option| !without.contains(&option.name))
    }

    /// All options of the format, in either direction.
    pub(crate) fn every_option(&self) -> impl Iterator<Item = &'static OptionKind> {
        let lists = [self.options, self.source_options, self.sink_options];
        lists.into_iter().flatten()
    }
}

impl Format {
    /// A source's format of lines, after checking that it can represent the columns.
    pub(crate) fn of_source(options: &Options<'_>, schema: &Schema) -> Result<Format, OptionError> {
        let kind = match Chosen::of(options, Use::Source, Formats::Lines)? {
            Chosen::Own(format) => return own(format, options, schema, Use::Source),
            Chosen::BuiltIn(kind) => kind,
        };
        match kind.layout {
            Layout::Lines { read, .. } => read(options, schema),
            Layout::Columns(_) => Err(kind.not_lines()),
        }
    }

    /// A sink's format of lines, after checking that it can represent the columns.
    pub(crate) fn of_sink(options: &Options<'_>, schema: &Schema) -> Result<Format, OptionError> {
        let kind = match Chosen::of(options, Use::Sink, Formats::Lines)? {
            Chosen::Own(format) => return own(format, options, schema, Use::Sink),
            Chosen::BuiltIn(kind) => kind,
        };
        match kind.layout {
            Layout::Lines {
                write: Some(write), ..
            } => write(options, schema),
            _ => Err(kind.not_lines()),
        }
    }
}

/// A file's format, as a table's options choose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Lines(Format),
    Columns(ColumnFormat),
}

/// Endings of the names of part files.
pub(crate) const EXTENSIONS: &[&str] = &["csv", "json", "records", "parquet", "arrow"];

impl FileFormat {
    /// A source's format, after checking that it can represent the columns.
    pub(crate) fn of_source(
        options: &Options<'_>,
        schema: &Schema,
    ) -> Result<FileFormat, OptionError> {
        match Chosen::of(options, Use::Source, Formats::Files)? {
            Chosen::BuiltIn(FormatKind {
                layout: Layout::Columns(make),
                ..
            }) => make(options, schema).map(FileFormat::Columns),
            _ => Format::of_source(options, schema).map(FileFormat::Lines),
        }
    }

    /// A sink's format, after checking that it can represent the columns.
    pub(crate) fn of_sink(
        options: &Options<'_>,
        schema: &Schema,
    ) -> Result<FileFormat, OptionError> {
        match Chosen::of(options, Use::Sink, Formats::Files)? {
            Chosen::BuiltIn(FormatKind {
                layout: Layout::Columns(make),
                ..
            }) => make(options, schema).map(FileFormat::Columns),
            _ => Format::of_sink(options, schema).map(FileFormat::Lines),
        }
    }

    /// The ending of a part's name.
    pub(crate) fn extension(&self) -> &'static str {
        match self {
            FileFormat::Lines(Format::Json) => "json",
            FileFormat::Lines(Format::Own(_)) => "records",
            FileFormat::Lines(_) => "csv",
            FileFormat::Columns(format) => format.extension(),
        }
    }

    /// The unit of positions.
    pub(crate) fn unit(&self) -> &'static str {
        match self {
            FileFormat::Lines(_) => "line",
            FileFormat::Columns(_) => "row",
        }
    }
}
