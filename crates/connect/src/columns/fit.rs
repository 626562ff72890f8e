//! Checks, before the first row is read, whether a file's columns can be converted to those of the table.

use arrow_schema::{DataType, Field, Fields, Schema};
use slackwater_engine::error::{Error, Result};

use crate::format::sql_type_name;
use crate::options::nearest;

/// The file's columns that are read, in the table's order.
pub(super) fn find(place: &str, file: &Schema, read: &Schema) -> Result<Vec<usize>> {
    let columns = read.fields().iter().map(|wanted| {
        let index = position(place, file.fields(), wanted.name(), "")?;
        fits(place, file.field(index), wanted, wanted.name())?;
        Ok(index)
    });
    columns.collect()
}

/// The index of the field of that name. `within` is the path to the row that it belongs to.
fn position(place: &str, fields: &Fields, name: &str, within: &str) -> Result<usize> {
    let mut found = (0..fields.len()).filter(|&index| fields[index].name() == name);
    let shown = match within {
        "" => name.to_string(),
        within => format!("{within}.{name}"),
    };
    let Some(first) = found.next() else {
        let names = fields.iter().map(|field| field.name().as_str());
        let names = names.collect::<Vec<&str>>();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean '{near}'? its columns are {}", shorten(&names)),
            None => format!("its columns are {}", shorten(&names)),
        };
        return Err(Error::new(place, format!("has no column '{shown}'"))
            .hint(hint)
            .final_one());
    };
    if found.next().is_some() {
        return Err(Error::new(place, format!("has two columns '{shown}'"))
            .hint("read a file in which names are unique")
            .final_one());
    }
    Ok(first)
}

/// The first names.
fn shorten(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

/// Rejects a column whose values can't be converted to the table's type. `way` is its path.
fn fits(place: &str, file: &Field, wanted: &Field, way: &str) -> Result<()> {
    use DataType::{Binary, BinaryView, Date32, Date64, LargeBinary, LargeUtf8, Null, Utf8};
    use DataType::{Float16, Float32, Float64, Timestamp, Utf8View};
    let file_type = match file.data_type() {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let fits = match (file_type, wanted.data_type()) {
        (Null, _) => true,
        (DataType::Struct(fields), DataType::Struct(wanted)) => {
            for wanted in wanted {
                let index = position(place, fields, wanted.name(), way)?;
                let way = format!("{way}.{}", wanted.name());
                fits(place, &fields[index], wanted, &way)?;
            }
            true
        }
        (DataType::List(item) | DataType::LargeList(item), DataType::List(wanted)) => {
            return fits(place, item, wanted, &format!("{way}[]"));
        }
        (Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView, Utf8View) => true,
        (from, to) if to.is_integer() => from.is_integer(),
        (Float16 | Float32, Float32) => true,
        (Float16 | Float32 | Float64, Float64) => true,
        // A double holds these exactly.
        (from, Float64) => from.is_integer() && !matches!(from, DataType::Int64 | DataType::UInt64),
        (from, DataType::Decimal128(_, digits)) => match from {
            DataType::Decimal32(_, own)
            | DataType::Decimal64(_, own)
            | DataType::Decimal128(_, own)
            | DataType::Decimal256(_, own) => own <= digits,
            from => from.is_integer(),
        },
        (Date32 | Date64, Date32) => true,
        (Timestamp(_, _), Timestamp(_, None)) => true,
        (from, to) => from == to && *to == DataType::Boolean,
    };
    if fits {
        return Ok(());
    }
    let (found, wanted) = (
        sql_type_name(file.data_type()),
        sql_type_name(wanted.data_type()),
    );
    let reason = format!("column '{way}' is {found}, and the table has it as {wanted}");
    let hint = match file_type {
        Utf8 | LargeUtf8 => format!("declare it as {found}"),
        from if crate::format::is_nested(from) => format!("declare it as {found}"),
        _ => "leave the column out".to_string(),
    };
    Err(Error::new(place, reason).hint(hint).final_one())
}
