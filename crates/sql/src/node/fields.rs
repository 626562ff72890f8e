//! Which fields of ROW columns are read. By column name and not by table: a name that is used whole
//! anywhere is kept whole everywhere, which is never wrong.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::Expr;

/// Fields that are read of each column; `None` for the column as a whole.
#[derive(Debug, Clone, Default)]
pub struct UsedFields(HashMap<String, Option<BTreeSet<String>>>);

impl UsedFields {
    /// Notes what an expression reads.
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

    /// Notes that a column is passed on as it is, without an expression that names it: out of a
    /// statement, or into a union.
    pub fn read_whole(&mut self, column: &str) {
        self.0.insert(column.to_string(), None);
    }

    /// The field without what nobody reads of it.
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

/// `column.field`, as the planner writes it: a call of `get_field`.
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
    fn only_fields_that_are_read_are_kept_unless_the_row_is_used_whole() {
        let part = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
        let row = DataType::Struct(vec![part("a"), part("b"), part("c")].into());
        let field: FieldRef = Arc::new(Field::new("e", row, true));
        let get_field =
            |name: &str| datafusion_functions::core::get_field().call(vec![col("e"), lit(name)]);
        let mut used = UsedFields::default();
        assert_eq!(used.prune(&field), field, "nothing is known of it");
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
