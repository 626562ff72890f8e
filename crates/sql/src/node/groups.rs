//! The keys and the window of a GROUP BY.

use datafusion_expr::Expr;
use datafusion_expr::logical_plan::Aggregate;
use slackwater_engine::operator::window::{WindowKind, Windows};

use super::columns::Columns;
use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::Physical;

/// The keys and the window of a GROUP BY.
#[derive(Default)]
pub struct Groups {
    /// The keys: indices of the input's columns, and their names.
    pub keys: Vec<(usize, String)>,
    /// What each expression of the GROUP BY is in the output: a key, or an edge of the window.
    pub places: Vec<(Option<usize>, Role)>,
    /// The edge by which windows are closed.
    pub edge: Option<Edge>,
}

/// An edge of a window.
pub struct Edge {
    pub windows: Windows,
    pub is_start: bool,
    pub value: Physical,
    pub name: String,
}

impl Groups {
    /// The keys and the window of the expressions of a GROUP BY; the keys are added to `columns`. `merges`:
    /// the aggregation merges sessions itself.
    pub fn of(
        aggregate: &Aggregate,
        translator: &Translator<'_>,
        input: &Stream,
        merges: bool,
        columns: &mut Columns,
    ) -> Result<Groups> {
        // Columns of the result are found by their places.
        let columns_of = aggregate.group_expr.len() + aggregate.aggr_expr.len();
        if aggregate.schema.fields().len() < columns_of {
            return Err(SqlError::new("GROUP BY has a key twice").hint("name it once"));
        }
        let mut groups = Groups::default();
        for expression in &aggregate.group_expr {
            if let Expr::GroupingSet(_) = expression {
                return Err(
                    SqlError::new("GROUPING SETS, CUBE and ROLLUP are not supported here")
                        .hint("write one query for each grouping"),
                );
            }
            let value = translator.bind(expression, input, &aggregate.input)?;
            // Windows over updated rows never close: their edges are ordinary keys.
            let role = match input.updates {
                true => Role::Plain,
                false => translator.role(expression, input, &aggregate.input)?,
            };
            groups.add(
                value,
                expression.schema_name().to_string(),
                role,
                merges,
                columns,
            )?;
        }
        check_edges(&groups.places, merges)?;
        Ok(groups)
    }

    fn add(
        &mut self,
        value: Physical,
        name: String,
        role: Role,
        merges: bool,
        columns: &mut Columns,
    ) -> Result<()> {
        let (windows, is_start) = match role {
            // Other windows may share one edge, such as two sessions with the same end.
            Role::WindowStart(windows) if windows.is_fixed() || merges => (windows, true),
            Role::WindowEnd(windows) => (windows, false),
            Role::WindowStart(_) | Role::Plain | Role::Time | Role::WindowNumber => {
                self.add_key(&value, name, role, columns);
                return Ok(());
            }
        };
        let other = self.edge.as_ref().map(|edge| edge.windows);
        if let Some(other) = other.filter(|other| *other != windows) {
            if !is_same_window(other, windows) {
                return Err(SqlError::new(
                    "GROUP BY contains the edges of two different windows",
                ));
            }
            // The same edge in another unit is an ordinary key.
            self.add_key(&value, name, Role::Plain, columns);
            return Ok(());
        }
        // One edge identifies the window. The end is preferred, because windows close by it.
        if self.edge.is_none() || !is_start {
            self.edge = Some(Edge {
                windows,
                is_start,
                value,
                name,
            });
        }
        self.places.push((None, role));
        Ok(())
    }

    fn add_key(&mut self, value: &Physical, name: String, role: Role, columns: &mut Columns) {
        self.keys.push((columns.place(value, name.as_str()), name));
        self.places.push((Some(self.keys.len() - 1), role));
    }
}

/// Whether two windows are equal, except for the unit of their edges.
fn is_same_window(one: Windows, other: Windows) -> bool {
    let unit = one.unit.max(other.unit);
    one.in_unit(unit) == other.in_unit(unit)
}

/// Rejects a GROUP BY whose edges do not identify a window.
fn check_edges(places: &[(Option<usize>, Role)], merges: bool) -> Result<()> {
    let roles = || places.iter().map(|(_, role)| role);
    let has_end = roles().any(|role| matches!(role, Role::WindowEnd(_)));
    let start = roles().find_map(|role| match role {
        Role::WindowStart(windows) if !windows.is_named_by_start() => Some(windows),
        _ => None,
    });
    if let (Some(windows), false, false) = (start, has_end, merges) {
        let kind = explain::windows(windows);
        let error = format!("window_start does not identify a window of this kind ({kind})");
        let hint = match windows.kind {
            WindowKind::Count => {
                "use GROUP BY window_start, window_end, window_number, and the columns of PARTITION BY"
            }
            _ => "use GROUP BY window_start, window_end",
        };
        return Err(SqlError::new(error).near("GROUP").hint(hint));
    }
    let counts = |role: &Role| match role {
        Role::WindowEnd(windows) => windows.kind == WindowKind::Count,
        _ => false,
    };
    let has_number = roles().any(|role| *role == Role::WindowNumber);
    if roles().any(counts) && !has_number {
        return Err(SqlError::new(
            "two count windows of a key can have the same edges, so the edges do not identify a window",
        )
        .near("GROUP")
        .hint(
            "use GROUP BY window_start, window_end, window_number, and the columns of PARTITION BY",
        ));
    }
    Ok(())
}
