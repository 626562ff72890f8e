//! Statements that declare: CREATE TABLE in all its forms, DROP and RESET.

use std::sync::Arc;

use arrow_schema::DataType;
use sqlparser::ast::{Ident, Query};
use sqlparser::tokenizer::TokenWithSpan;

use super::columns::rename;
use super::{Compiler, STACK_BYTES};
use crate::connectors::Connectors;
use crate::error::{Result, SqlError, nearest};
use crate::functions::Declared;
use crate::session::Session;
use crate::settings::{Settings, setting};
use crate::statement::{
    ColumnDefinition, ColumnKind, CreateFunction, CreateTable, Statement, parse,
};
use crate::types::{SqlType, of_tables};

/// The tables, views and settings that a file declares. Its queries are checked, but not returned. The
/// session knows what the last statement used.
pub fn declared(
    text: &str,
    overrides: &[(String, String)],
    connectors: &dyn Connectors,
) -> Result<Session> {
    stacker::grow(STACK_BYTES, || declared_here(text, overrides, connectors))
}

fn declared_here(
    text: &str,
    overrides: &[(String, String)],
    connectors: &dyn Connectors,
) -> Result<Session> {
    let mut compiler = Compiler::new(connectors);
    for placed in parse(text)? {
        let tokens = placed.tokens.clone();
        compiler.session.take_used();
        compiler
            .placed(placed)
            .map_err(|error| error.among(&tokens))?;
    }
    let options = connectors.table_options();
    for (key, value) in overrides {
        compiler.session.settings.set(key, value, &options)?;
    }
    Ok(compiler.session)
}

/// Adds the view of a statement CREATE VIEW.
pub fn add_view(session: &mut Session, statement: Statement) -> Result<()> {
    let Statement::CreateView {
        name,
        if_not_exists,
        columns,
        query,
    } = statement
    else {
        return Err(SqlError::new("only views can be declared here"));
    };
    if if_not_exists && session.is_view(&name.value) {
        return Ok(());
    }
    let span = name.span;
    let mut plan = session.plan(*query)?;
    if !columns.is_empty() {
        plan = rename(plan, &columns).map_err(|error| error.at(span))?;
    }
    session
        .add_view(&name.value, plan)
        .map_err(|error| error.at(span))
}

impl Compiler<'_> {
    pub(super) fn create_table(
        &mut self,
        mut create: CreateTable,
        tokens: &Arc<[TokenWithSpan]>,
        explain: bool,
    ) -> Result<()> {
        let name = create.name.value.clone();
        if create.if_not_exists && self.session.tables.contains_key(&name) {
            return Ok(());
        }
        if let Some(like) = create.like.take() {
            create = like.merged(create, self.other(&like.source)?)?;
        }
        let query = create.query.take();
        if let Some(query) = &query {
            create.columns = self.columns_of(query)?;
        }
        self.connectors.translate(&mut create)?;
        let table = self.session.declared(&create)?;
        self.connectors.check(&table)?;
        self.session.add_table(table)?;
        self.created.insert(name.clone(), create);
        match query {
            None => Ok(()),
            Some(query) => {
                let table = self.session.tables.get(&name).cloned();
                self.job(*query, table, &[], tokens, explain)
            }
        }
    }

    /// The declaration of the table after LIKE.
    fn other(&self, name: &Ident) -> Result<&CreateTable> {
        self.session.uses(&name.value);
        self.created.get(&name.value).ok_or_else(|| {
            if self.session.is_view(&name.value) {
                let error = format!("LIKE needs a table, and '{}' is a view", name.value);
                return SqlError::new(error)
                    .at(name.span)
                    .hint("use CREATE TABLE … WITH (…) AS SELECT * FROM the view");
            }
            let known = self.created.keys().cloned().collect::<Vec<String>>();
            let error = SqlError::new(format!("there is no table '{}'", name.value)).at(name.span);
            match nearest(&name.value, &known) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint("declare it first: CREATE TABLE …"),
            }
        })
    }

    /// The columns of a table that is declared with AS.
    fn columns_of(&self, query: &Query) -> Result<Vec<ColumnDefinition>> {
        let plan = self.session.plan(query.clone())?;
        let plan = self.session.analyse(plan)?;
        let columns = plan.schema().fields().iter().map(|field| {
            if field.data_type() == &DataType::Null {
                let error = format!("column '{}' has no type", field.name());
                return Err(SqlError::new(error).hint("use CAST(NULL AS STRING), or another type"));
            }
            Ok(ColumnDefinition {
                name: Ident::new(field.name()),
                kind: ColumnKind::Physical(SqlType::Given(of_tables(field.data_type()))),
                not_null: false,
                comment: None,
            })
        });
        columns.collect()
    }

    /// Declares a function.
    pub(super) fn create_function(&mut self, mut create: CreateFunction) -> Result<()> {
        let (name, span) = (create.name.value.clone(), create.name.span);
        if create.if_not_exists && self.session.is_declared_function(&name) {
            return Ok(());
        }
        let python = &mut create.options.python;
        *python = python
            .take()
            .or_else(|| self.session.settings.python.clone());
        let function = self.connectors.function(&create)?;
        let declared = Declared::new(&name, create.arguments, create.result, function);
        let added = self.session.add_function(declared);
        added.map_err(|error| error.at(span))
    }

    pub(super) fn drop(&self, name: &Ident, is_function: bool, if_exists: bool) -> Result<()> {
        let (is_known, kind) = match is_function {
            true => (self.session.is_declared_function(&name.value), "function"),
            false => (
                self.session.tables.contains_key(&name.value) || self.session.is_view(&name.value),
                "table or view",
            ),
        };
        let error = match (is_known, if_exists) {
            (false, true) => return Ok(()),
            (false, false) => SqlError::new(format!("there is no {kind} '{}'", name.value)),
            (true, _) => SqlError::new(format!(
                "DROP is not supported for '{}', because a file declares all of its {}",
                name.value,
                match is_function {
                    true => "functions",
                    false => "tables and views",
                }
            )),
        };
        Err(error.at(name.span).hint(match is_known {
            true => {
                "remove DROP and the first declaration, or use another name for the second; in the \
            shell, \\drop name \
            removes a declaration"
            }
            false => "remove the statement: what a file declares only exists during a run",
        }))
    }

    /// Undoes the SET of one setting, or of all.
    pub(super) fn reset(&mut self, key: Option<&str>) -> Result<()> {
        let options = self.connectors.table_options();
        let known = key.is_some_and(|key| setting(key).is_some());
        let is_set = self.set.iter().any(|(set, _)| Some(set.as_str()) == key);
        if let Some(key) = key
            && !known
            && !is_set
        {
            // The error for an unknown name.
            return Settings::default().set(key, "", &options).map_err(|error| {
                match error.message.starts_with("there is no setting") {
                    true => error,
                    false => SqlError::new(format!("'{key}' was not set")),
                }
            });
        }
        self.set
            .retain(|(set, _)| key.is_some_and(|key| set != key));
        if let Some(before) = &self.settings_before {
            self.session.settings = before.clone();
        }
        for (key, value) in &self.set {
            self.session.settings.set(key, value, &options)?;
        }
        Ok(())
    }
}
