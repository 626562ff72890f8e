//! What a GROUP BY names: keys, and a window.

use datafusion_expr::Expr;
use datafusion_expr::logical_plan::Aggregate;
use slackwater_engine::operator::window::{WindowKind, Windows};

use super::columns::Columns;
use super::stream::{Role, Stream};
use super::translator::Translator;
use crate::error::{Result, SqlError};
use crate::explain;
use crate::expression::Physical;

/// What a GROUP BY names.
#[derive(Default)]
pub struct Groups {
    /// The keys: columns of the input, and their names.
    pub keys: Vec<(usize, String)>,
    /// What each expression is in the output: a key, or an edge of the window.
    pub places: Vec<(Option<usize>, Role)>,
    /// The edge that windows are closed by.
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
    /// What the expressions of a GROUP BY name, with the keys among `columns`. `merges`: sessions
    /// are merged here.
    pub fn of(
        aggregate: &Aggregate,
        translator: &Translator<'_>,
        input: &Stream,
        merges: bool,
        columns: &mut Columns,
    ) -> Result<Groups> {
        let mut groups = Groups::default();
        for expression in &aggregate.group_expr {
            if let Expr::GroupingSet(_) = expression {
                return Err(
                    SqlError::new("GROUPING SETS, CUBE and ROLLUP are not known here")
                        .hint("write one statement per grouping"),
                );
            }
            let value = translator.bind(expression, input, &aggregate.input)?;
            // A window of rows that may be taken back never closes: its edges are keys like others.
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
            // Of several sessions with one end, say, each has its own.
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
                return Err(SqlError::new("GROUP BY names two different windows"));
            }
            // The other edge in another unit, which is a key like others.
            self.add_key(&value, name, Role::Plain, columns);
            return Ok(());
        }
        // Either edge names the window, so only one is carried along; the end is what it is closed by.
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

/// Whether windows differ in the unit of their edges at most.
fn is_same_window(one: Windows, other: Windows) -> bool {
    let unit = one.unit.max(other.unit);
    one.in_unit(unit) == other.in_unit(unit)
}

/// Whether the edges that a GROUP BY names are enough.
fn check_edges(places: &[(Option<usize>, Role)], merges: bool) -> Result<()> {
    let roles = || places.iter().map(|(_, role)| role);
    let has_end = roles().any(|role| matches!(role, Role::WindowEnd(_)));
    let start = roles().find_map(|role| match role {
        Role::WindowStart(windows) if !windows.is_named_by_start() => Some(windows),
        _ => None,
    });
    if let (Some(windows), false, false) = (start, has_end, merges) {
        let kind = explain::windows(windows);
        let error = format!("window_start alone does not say which window it is ({kind})");
        let hint = match windows.kind {
            WindowKind::Count => {
                "GROUP BY window_start, window_end, window_number, and the columns of PARTITION BY"
            }
            _ => "GROUP BY window_start, window_end",
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
            "two count windows of a key can have the same edges, and would be taken for one",
        )
        .near("GROUP")
        .hint(
            "GROUP BY window_start, window_end, window_number, and the columns of PARTITION BY",
        ));
    }
    Ok(())
}
