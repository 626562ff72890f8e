//! CREATE MATERIALIZED VIEW.

use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use slackwater_engine::time::parse_duration_ns;
use sqlparser::ast::Ident;
use sqlparser::tokenizer::TokenWithSpan;

use super::Compiler;
use super::columns::rename;
use crate::error::{Result, SqlError, nearest};
use crate::late_rows;
use crate::node::Materialized;
use crate::statement::CreateMaterializedView;

/// The option that says how long rows are kept.
const RETENTION: &str = "retention";

/// The option that names the column with the time that counts.
const RETENTION_COLUMN: &str = "retention_column";

impl Compiler<'_> {
    pub(super) fn create_materialized_view(
        &mut self,
        create: CreateMaterializedView,
        tokens: &Arc<[TokenWithSpan]>,
        explain: bool,
    ) -> Result<()> {
        let (name, span) = (create.name.value.clone(), create.name.span);
        if create.if_not_exists && self.session.is_view(&name) {
            return Ok(());
        }
        let mut plan = self.session.plan((*create.query).clone())?;
        if !create.columns.is_empty() {
            plan = rename(plan, &create.columns).map_err(|error| error.at(span))?;
        }
        let view = materialized(&create, &plan)?;
        // Queries read it as a view: what they have in common with it is computed once.
        self.session
            .add_view(&name, plan.clone())
            .map_err(|error| error.at(span))?;
        let plan = late_rows::mark(plan, &self.session)?;
        self.add_job(plan, None, Some(view), tokens, explain)
    }
}

/// What the statement asks for.
fn materialized(create: &CreateMaterializedView, plan: &LogicalPlan) -> Result<Materialized> {
    let known = [RETENTION, RETENTION_COLUMN];
    if let Some(key) = create
        .options
        .keys()
        .find(|key| !known.contains(&key.as_str()))
    {
        let error = SqlError::new(format!("'{key}' is not an option of a materialized view"))
            .at(create.option_places[key]);
        return Err(match nearest(key, &known.map(String::from)) {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None => error.hint(format!("the options are: {}", known.join(", "))),
        });
    }
    let option = |key: &str| Some((create.options.get(key)?, create.option_places[key]));
    let retention = option(RETENTION).map(|(value, place)| {
        let us = parse_duration_ns(value).map(|ns| ns / 1_000);
        match us
            .and_then(|us| i64::try_from(us).ok())
            .filter(|us| *us > 0)
        {
            Some(us) => Ok((us, place)),
            None => Err(SqlError::new(format!("'{value}' is not a valid duration"))
                .at(place)
                .hint("for example 'retention' = '1 d'")),
        }
    });
    let column = option(RETENTION_COLUMN).map(|(value, place)| {
        let at = index(plan, value).map_err(|error| error.at(place));
        at.map(|at| (at, place))
    });
    let key = create.primary_key.iter();
    let key =
        key.map(|column: &Ident| index(plan, &column.value).map_err(|error| error.at(column.span)));
    let key = key.collect::<Result<Vec<usize>>>()?;
    if let Some(twice) = (1..key.len()).find(|&at| key[..at].contains(&key[at])) {
        let column = &create.primary_key[twice];
        let error = format!("column '{}' is named twice", column.value);
        return Err(SqlError::new(error).at(column.span));
    }
    Ok(Materialized {
        name: create.name.value.clone(),
        span: create.name.span,
        primary_key: Some(key).filter(|key| !key.is_empty()),
        retention: retention.transpose()?,
        retention_column: column.transpose()?,
    })
}

/// The place of a column of the view.
fn index(plan: &LogicalPlan, name: &str) -> Result<usize> {
    let fields = plan.schema().fields();
    fields
        .iter()
        .position(|field| field.name() == name)
        .ok_or_else(|| {
            let known = fields.iter().map(|field| field.name().clone());
            let known = known.collect::<Vec<String>>();
            let error = SqlError::new(format!("the view has no column '{name}'"));
            match nearest(name, &known) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint(format!("the columns are: {}", known.join(", "))),
            }
        })
}
