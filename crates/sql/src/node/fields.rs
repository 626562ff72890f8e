//! The fields of ROW columns that are read. Columns are identified by name, without their table: a name that
//! is used as a whole anywhere is kept as a whole everywhere, which is always correct.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::Expr;

/// The fields of each column that are read; `None` for the whole column.
#[derive(Debug, Clone, Default)]
pub struct UsedFields(HashMap<String, Option<BTreeSet<String>>>);

impl UsedFields {
    /// Notes the columns and fields that an expression reads.
    pub fn read(&mut self, expression: &Expr) {
        let visited = expression.apply(|part| {
            if let Some((column, field)) = field_access(part) {
                if let Some(fields) = self
                    .0
                    .entry(column)
                    .or_insert_with(|| Some(BTreeSet::new()))
                {
                    fields.insert(field);
                }
                return Ok(TreeNodeRecursion::Jump);
            }
            if let Expr::Column(column) = part {
                self.0.insert(column.name.clone(), None);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(visited.is_ok(), "the visit itself never fails");
    }

    /// Notes a column that is passed on as a whole without an expression that names it: in the output of a
    /// statement, or to a union.
    pub fn read_whole(&mut self, column: &str) {
        self.0.insert(column.to_string(), None);
    }

    /// The field without the parts that are never read.
    pub fn prune(&self, field: &FieldRef) -> FieldRef {
        let DataType::Struct(parts) = field.data_type() else {
            return field.clone();
        };
        let Some(Some(used)) = self.0.get(field.name()) else {
            return field.clone();
        };
        let parts = parts
            .iter()
            .filter(|part| used.contains(part.name()))
            .cloned();
        let parts = parts.collect::<Vec<FieldRef>>();
        if parts.is_empty() {
            return field.clone();
        }
        Arc::new(Field::new(
            field.name(),
            DataType::Struct(parts.into()),
            field.is_nullable(),
        ))
    }
}

/// The column and field of `column.field`, which the planner writes as a call of `get_field`.
fn field_access(expression: &Expr) -> Option<(String, String)> {
    let Expr::ScalarFunction(call) = expression else {
        return None;
    };
    if call.func.name() != "get_field" {
        return None;
    }
    match call.args.as_slice() {
        [Expr::Column(column), Expr::Literal(name, _), ..] => {
            let name = match name {
                ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)) => name,
                _ => return None,
            };
            Some((column.name.clone(), name.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_expr::{col, lit};

    #[test]
    fn only_used_fields_are_kept_unless_the_whole_row_is_used() {
        let part = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
        let row = DataType::Struct(vec![part("a"), part("b"), part("c")].into());
        let field: FieldRef = Arc::new(Field::new("e", row, true));
        let get_field =
            |name: &str| datafusion_functions::core::get_field().call(vec![col("e"), lit(name)]);
        let mut used = UsedFields::default();
        assert_eq!(used.prune(&field), field, "the column is not used");
        used.read(&(get_field("a") + get_field("c")));
        let DataType::Struct(kept) = used.prune(&field).data_type().clone() else {
            panic!()
        };
        assert_eq!(
            kept.iter().map(|f| f.name().as_str()).collect::<Vec<_>>(),
            ["a", "c"]
        );
        used.read(&col("e").is_not_null());
        assert_eq!(used.prune(&field), field);
    }
}
