//! Sources: tables that are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion_common::DFSchema;
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::TableScan;
use slackwater_control::query::{Node, NodeKind};
use slackwater_engine::expression::{Column, Expression};
use slackwater_engine::intake::EventTimeSpec;

use super::spec::{NodeSpec, SourceSpec};
use super::stream::{Role, Stream};
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::expression::{NotNull, PhysicalExpression, column, physical};
use crate::simplify::computable;
use crate::table::{Table, TableColumn, TableHandle};

/// Tables.
pub const TRANSLATION: Translation = Translation {
    needs: |_| Needs::NOTHING,
    translate: |translator, plan| match plan {
        LogicalPlan::TableScan(scan) => translator.scan(scan).map(Some),
        _ => Ok(None),
    },
};

impl Translator<'_> {
    fn scan(&mut self, scan: &TableScan) -> Result<Stream> {
        let Some(handle) = scan.source.downcast_ref::<TableHandle>() else {
            return Err(SqlError::new(format!(
                "'{}' can't be read",
                scan.table_name
            )));
        };
        let table = handle.0.clone();
        let wanted = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..table.schema.fields().len()).collect(),
        };
        let node = self.source(&table)?;
        let kept = self.kept_columns(&table);
        let schema = self.schema(node);
        let position = |index: usize| kept.iter().position(|&kept| kept == index);
        let mut columns = Vec::new();
        let mut roles = Vec::new();
        for index in wanted {
            let at = position(index).expect("the columns of all scans are kept");
            columns.push(column(at, &schema));
            let is_time = table.event_time.is_some_and(|(time, _)| time == index);
            roles.push(if is_time { Role::Time } else { Role::Plain });
        }
        let time = table.event_time.and_then(|(time, _)| position(time));
        let time = time.map(|at| column(at, &schema));
        Ok(Stream {
            node,
            columns,
            roles,
            time,
            updates: false,
            key: None,
            deletes: false,
            unique: Vec::new(),
        })
    }

    /// The columns of the table that some statement reads, and its event time.
    fn kept_columns(&self, table: &Table) -> Vec<usize> {
        let mut kept = self.used.get(&table.name).cloned().unwrap_or_default();
        kept.extend(table.event_time.map(|(time, _)| time));
        kept.into_iter().collect()
    }

    /// The table with only those fields of ROW columns that some statement reads: the others are not parsed.
    fn pruned(&self, table: &Table) -> Table {
        let mut used = self.fields.clone();
        for column in &table.columns {
            if let TableColumn::Computed(expression) = column {
                used.read(expression);
            }
        }
        let prune = |schema: &Schema| {
            let fields = schema.fields().iter().map(|field| used.prune(field));
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        };
        Table {
            physical: prune(&table.physical),
            schema: prune(&table.schema),
            ..table.clone()
        }
    }

    fn source(&mut self, table: &Arc<Table>) -> Result<usize> {
        let key = format!("source {} {}", self.depth, table.name);
        if let Some(node) = self.known(&key) {
            return Ok(node);
        }
        let kept = self.kept_columns(table);
        let table = &Arc::new(self.pruned(table));
        let projection = projection(table, &kept)?;
        let read = table.physical.project(&projection);
        let read: SchemaRef = Arc::new(read.map_err(|error| SqlError::new(error.to_string()))?);
        let columns = computed(table, &kept, &projection, &read)?;
        let fields = kept.iter().map(|&index| table.schema.field(index).clone());
        let event_time = table.event_time.map(|(time, delay_us)| EventTimeSpec {
            column: kept
                .iter()
                .position(|&kept| kept == time)
                .expect("event time is kept"),
            delay_us,
            marks_at_watermark: self.needs.late_at_watermark,
        });
        let connector = self.connectors.source(table)?;
        let description = connector.describe();
        let names = read.fields().iter().map(|field| field.name().as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let node = Node {
            name: "source".to_string(),
            detail: format!("{} ({}): reads {names}", table.name, description.connector),
            kind: NodeKind::Source,
            inputs: Vec::new(),
            instances_max: description.max_instances.max(1),
        };
        let spec = NodeSpec::Source(SourceSpec {
            table: table.clone(),
            connector,
            projection,
            columns,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            event_time,
        });
        Ok(self.add_known(node, spec, key))
    }
}

/// The physical columns that are needed to compute the kept columns of a table.
fn projection(table: &Table, kept: &[usize]) -> Result<Vec<usize>> {
    let mut projection = BTreeSet::new();
    for &index in kept {
        match &table.columns[index] {
            TableColumn::Physical(physical) => {
                projection.insert(*physical);
            }
            TableColumn::Computed(expression) => {
                for column in expression.column_refs() {
                    projection.insert(table.physical.index_of(&column.name).map_err(|_| {
                        SqlError::new(format!("there is no column '{}'", column.name))
                    })?);
                }
            }
        }
    }
    Ok(projection.into_iter().collect())
}

/// The kept columns of a table, as expressions over the physical columns that are read.
fn computed(
    table: &Table,
    kept: &[usize],
    projection: &[usize],
    read: &SchemaRef,
) -> Result<Vec<Arc<dyn Expression>>> {
    let read_schema = DFSchema::try_from(read.as_ref().clone())?;
    let mut columns: Vec<Arc<dyn Expression>> = Vec::new();
    for &index in kept {
        let column: Arc<dyn Expression> = match &table.columns[index] {
            TableColumn::Physical(physical) => {
                let at = projection
                    .iter()
                    .position(|p| p == physical)
                    .expect("projected above");
                Arc::new(Column::new(at, read.field(at).data_type().clone()))
            }
            TableColumn::Computed(expression) => PhysicalExpression::over(
                physical(&computable(expression, &read_schema)?, &read_schema)?,
                read,
            )?,
        };
        // The first column also checks all NOT NULL columns that are read: a row with a NULL in one of them
        // is rejected as a whole.
        let checked = match columns.is_empty() {
            true => not_null(table, projection),
            false => Vec::new(),
        };
        columns.push(NotNull::around(column, checked));
    }
    Ok(columns)
}

/// The indices and names of NOT NULL columns among those that are read.
fn not_null(table: &Table, projection: &[usize]) -> Vec<(usize, String)> {
    let read = projection.iter().enumerate();
    let read = read.filter(|(_, physical)| table.not_null.contains(physical));
    read.map(|(at, &physical)| (at, table.physical.field(physical).name().clone()))
        .collect()
}
