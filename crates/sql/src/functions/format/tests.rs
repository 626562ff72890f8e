//! Formats of a build: what they ask of a table, the rows that they decode, and the records that they encode.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int8Array, RecordBatch, StringViewArray};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use slackwater_engine::format::{RecordDecoder, RecordFormat, RecordTable, Records};

use super::*;
use crate::functions::{Functions, Time};

/// Words with numbers, `a=1 b=2`: a row for each. `!` and `?` panic and fail; `~` sets a value after the last
/// row.
fn words() -> FormatFunction {
    FormatFunction::new("Words", &["between", "most"], |table| {
        let word = table.column::<&str>("word")?;
        let number = table.optional::<i64>("number")?;
        let at = table.optional::<Time>("at")?;
        let bytes = table.optional::<&[u8]>("bytes")?;
        let between = table.option::<char>("between")?.unwrap_or(' ');
        let most = table.option::<usize>("most")?;
        if most == Some(0) {
            return Err(table.option_error("most", "no words would be read"));
        }
        Ok(Format::new()
            .decoder(move |record, out| {
                let record = std::str::from_utf8(record).map_err(|error| error.to_string())?;
                for part in record.split(between).take(most.unwrap_or(usize::MAX)) {
                    let (text, value) = part.split_once('=').unwrap_or((part, ""));
                    out.set(word, "is replaced");
                    out.set(word, text);
                    out.set(bytes, text.as_bytes());
                    match text {
                        "?" => return Err("a question".to_string()),
                        "!" => panic!("an exclamation"),
                        "~" => return Ok(()),
                        _ => {}
                    }
                    let value = value.parse::<i64>().ok();
                    out.set(number, value);
                    out.set(at, value.map(|micros| Time { micros }));
                    out.emit();
                }
                Ok(())
            })
            .encoder(move |row, record| {
                let text = row.get(word).ok_or("a word is NULL")?;
                assert!(text != "!", "an exclamation");
                record.extend_from_slice(text.as_bytes());
                if let Some(value) = number.and_then(|number| row.get(number)) {
                    record.extend_from_slice(format!("={value}").as_bytes());
                }
                Ok(())
            }))
    })
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let columns = columns.iter();
    let fields = columns.map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

fn records(
    schema: &SchemaRef,
    options: &[(&str, &str)],
    is_written: bool,
) -> Result<Arc<dyn Records>, FormatError> {
    let options = options.iter();
    let options = options.map(|(name, value)| (name.to_string(), value.to_string()));
    words().records(&RecordTable {
        schema,
        options: &options.collect::<BTreeMap<String, String>>(),
        is_written,
    })
}

/// The rows since the last call, with `|` between columns, and the bad ones among them.
fn rows(decoder: &mut dyn RecordDecoder) -> (Vec<String>, Vec<(usize, String)>) {
    let (columns, bad) = decoder.take();
    let value = |column: &ArrayRef, row| match column.is_valid(row) {
        true => array_value_to_string(column, row).unwrap(),
        false => "-".to_string(),
    };
    let rows = (0..columns[0].len()).map(|row| {
        let values = columns.iter().map(|column| value(column, row));
        values.collect::<Vec<String>>().join("|")
    });
    (rows.collect(), bad)
}

#[test]
fn a_record_gives_all_of_its_rows_or_none() {
    let table = schema(&[("number", DataType::Int64), ("word", DataType::Utf8View)]);
    let made = records(&table, &[("words.between", ",")], false).unwrap();
    let mut decoder = made.decoder(&[0, 1]);
    assert_eq!(decoder.decode(b"a=1,b"), Ok(2));
    assert_eq!(decoder.decode(b"c=3,?"), Err("a question".to_string()));
    let panicked = "the decoder panicked: an exclamation";
    assert_eq!(decoder.decode(b"d=4,e=5,!"), Err(panicked.to_string()));
    let unfinished = "the decoder set values after its last row";
    assert_eq!(decoder.decode(b"f=6,~"), Err(unfinished.to_string()));
    assert!(decoder.decode(b"\xFF").is_err());
    assert_eq!(decoder.decode(b"a long word that is not inline=7"), Ok(1));
    let found = ["1|a", "-|b", "7|a long word that is not inline"].map(str::to_string);
    assert_eq!(rows(decoder.as_mut()), (found.to_vec(), vec![]));
    // The next rows begin anew.
    assert_eq!(decoder.decode(b"g"), Ok(1));
    assert_eq!(rows(decoder.as_mut()).0, ["-|g"]);
    assert_eq!(rows(decoder.as_mut()).0, Vec::<String>::new());
}

#[test]
fn a_record_has_a_limited_number_of_rows() {
    let table = schema(&[("word", DataType::Utf8View)]);
    let made = records(&table, &[], false).unwrap();
    let mut decoder = made.decoder(&[0]);
    let most = vec!["w"; ROWS_OF_RECORD_MAX].join(" ");
    assert_eq!(decoder.decode(most.as_bytes()), Ok(ROWS_OF_RECORD_MAX));
    let failed = decoder.decode(format!("{most} w").as_bytes()).unwrap_err();
    assert_eq!(failed, "the decoder panicked: it has more than 65536 rows");
    assert_eq!(rows(decoder.as_mut()).0.len(), ROWS_OF_RECORD_MAX);
}

#[test]
fn values_are_converted_to_the_declared_types_and_columns_that_nothing_reads_are_left_out() {
    let table = schema(&[
        ("at", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("number", DataType::Int8),
        ("bytes", DataType::Binary),
        ("word", DataType::Utf8View),
    ]);
    let made = records(&table, &[], false).unwrap();
    let mut decoder = made.decoder(&[0, 1, 2, 3]);
    decoder.decode(b"a=-128 b=128").unwrap();
    decoder.decode(b"c").unwrap();
    let (found, bad) = rows(decoder.as_mut());
    assert_eq!(found[0], "1969-12-31T23:59:59.999|-128|61|a");
    assert_eq!(found[2], "-|-|63|c");
    assert_eq!(
        bad,
        [(1, "column 'number' (TINYINT): can't hold 128".to_string())]
    );
    let mut decoder = made.decoder(&[2]);
    decoder.decode(b"a=1000 b").unwrap();
    assert_eq!(
        rows(decoder.as_mut()),
        (vec!["61".into(), "62".into()], vec![])
    );
}

#[test]
fn what_is_wrong_with_a_table_is_said() {
    let (word, number) = (("word", DataType::Utf8View), ("number", DataType::Int64));
    let wrong = |columns: &[(&str, DataType)], options: &[(&str, &str)], is_written| {
        let wrong = records(&schema(columns), options, is_written).unwrap_err();
        let option = wrong
            .option
            .map_or(String::new(), |option| format!("{option}: "));
        format!("{option}{} ({})", wrong.reason, wrong.hint)
    };
    for (found, expected) in [
        (
            wrong(std::slice::from_ref(&number), &[], false),
            "needs a column 'word', and the table has number (declare word STRING)",
        ),
        (
            wrong(&[("word", DataType::Int32)], &[], false),
            "needs a column 'word' of type STRING, and it is INT (declare word STRING)",
        ),
        (
            wrong(&[word.clone(), ("number", DataType::Utf8View)], &[], true),
            "needs a column 'number' of type BIGINT, and it is STRING (declare number BIGINT)",
        ),
        (
            wrong(&[word.clone(), ("numbr", DataType::Int64)], &[], false),
            "has no column 'numbr' (did you mean 'number'? its columns are word, number, at, bytes)",
        ),
        (
            wrong(std::slice::from_ref(&word), &[("words.most", "two")], false),
            "words.most: 'two': invalid digit found in string ()",
        ),
        (
            wrong(std::slice::from_ref(&word), &[("words.most", "0")], false),
            "words.most: no words would be read ()",
        ),
    ] {
        assert_eq!(found, expected);
    }
    // A number that is written need not fit what is read: DOUBLE holds any, and INT no DOUBLE.
    let double = [word.clone(), ("number", DataType::Float64)];
    assert!(records(&schema(&double), &[], false).is_ok());
    assert!(records(&schema(&double), &[], true).is_err());
    let reader = FormatFunction::new("reader", &[], |table| {
        let word = table.column::<&str>("word")?;
        Ok(Format::new().decoder(move |_, out| {
            out.set(word, None);
            out.emit();
            Ok(())
        }))
    });
    let table = schema(&[word]);
    let written = RecordTable {
        schema: &table,
        options: &BTreeMap::new(),
        is_written: true,
    };
    let wrong = reader.records(&written).unwrap_err();
    assert_eq!(
        (wrong.option.as_deref(), &*wrong.reason),
        (Some("format"), "'reader' can only be read")
    );
}

#[test]
fn rows_are_written_until_one_fails() {
    let table = schema(&[("number", DataType::Int8), ("word", DataType::Utf8View)]);
    let made = records(&table, &[], true).unwrap();
    let batch = |words: [Option<&str>; 3]| {
        let numbers: ArrayRef = Arc::new(Int8Array::from(vec![Some(1), None, Some(-3)]));
        let words: ArrayRef = Arc::new(StringViewArray::from(words.to_vec()));
        RecordBatch::try_new(Arc::clone(&table), vec![numbers, words]).unwrap()
    };
    let mut encoder = made.encoder();
    let mut out = b"before ".to_vec();
    let mut encode = |words| {
        encoder.encode(&batch(words), &mut out, &mut |out| {
            out.push(b';');
            Ok(())
        })
    };
    encode([Some("a"), Some("b"), Some("c")]).unwrap();
    let failed = encode([Some("d"), None, Some("e")]).unwrap_err();
    let hint = "(leave such rows out with WHERE)";
    assert_eq!(
        failed.to_string(),
        format!("format words can't write a row: a word is NULL {hint}")
    );
    assert!(failed.is_final);
    let failed = encode([Some("!"), None, None]).unwrap_err();
    let panicked = "the encoder panicked: an exclamation";
    assert_eq!(
        failed.to_string(),
        format!("format words can't write a row: {panicked} {hint}")
    );
    assert_eq!(out, b"before a=1;b;c=-3;d=1;");
}

#[test]
fn names_of_formats_are_words_and_unique() {
    let add = |names: &[&str]| {
        let mut functions = Functions::default();
        for name in names {
            functions.format(name, &[], |_| Ok(Format::new()));
        }
        crate::functions::install(functions)
    };
    let error = add(&["nmea-0183"]).unwrap_err();
    assert_eq!(
        error,
        "the name of format 'nmea-0183' must consist of letters, digits and _"
    );
    let error = add(&["twice_0183", "TWICE_0183"]).unwrap_err();
    assert_eq!(error, "format 'twice_0183' already exists");
    assert!(
        crate::functions::formats()
            .iter()
            .all(|format| format.name() != "twice_0183")
    );
}
