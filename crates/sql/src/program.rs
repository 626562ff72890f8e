//! Programs: all statements of a file, compiled.

mod columns;
mod declare;
mod judges;
mod materialized;
mod translated;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use slackwater_control::query::QueryGraph;
use slackwater_engine::operator::changelog::view::Cuts;
use sqlparser::ast::{Ident, Query};
use sqlparser::tokenizer::TokenWithSpan;

use crate::changelog::ChangelogMode;
use crate::connectors::Connectors;
use crate::error::{Result, SqlError, find, nearest};
use crate::functions::DeclaredFunction;
use crate::late_rows;
use crate::node::{Materialized, MaterializedView, NodeSpec, SinkSpec, SourceSpec};
use crate::outputs;
use crate::session::Session;
use crate::settings::{Parallelism, Settings, is_parallelism};
use crate::statement::{CreateTable, Hinted, OPTIONS_OF, Placed, Statement, parse};
use crate::table::{LATE_ROWS, Table};
use crate::warnings::{Clash, SetAt};
use columns::fit;
pub(crate) use declare::add_view;
pub use declare::declared;
pub(crate) use translated::of_read;
use translated::program;

/// The compiled program of a file.
pub struct Compiled {
    /// The queries to run.
    pub run: Program,
    /// The queries that are only explained (`EXPLAIN …`).
    pub explain: Program,
    /// The tables and views that each statement uses itself.
    pub uses: Vec<BTreeSet<String>>,
}

/// A query graph and the specifications of its nodes.
#[derive(Default)]
pub struct Program {
    /// The query graph.
    pub graph: QueryGraph,
    /// The specification of each node.
    pub nodes: Vec<NodeSpec>,
    /// The settings.
    pub settings: Settings,
    /// The statements that write rows.
    pub outputs: Vec<Output>,
    /// The kinds of changes that each node emits.
    pub modes: Vec<ChangelogMode>,
    /// Warnings to show before the program runs.
    pub warnings: Vec<String>,
    /// Settings and options that contradict each other; the caller knows the file names of their places.
    pub clashes: Vec<Clash>,
    /// The materialized views.
    pub views: Vec<MaterializedView>,
    /// The cuts of all materialized views.
    pub cuts: Arc<Cuts>,
    /// The functions that the program declares and uses, by name.
    pub functions: BTreeMap<String, Arc<dyn DeclaredFunction>>,
}

/// A statement that writes rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The node of the statement's sink.
    pub sink: usize,
    /// The number of instances of each subquery that can be parallel, if it was set at the statement.
    pub parallelism: Option<Parallelism>,
}

impl Program {
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.graph.nodes.is_empty()
    }

    /// Ends the functions that run in processes of their own, so that their CPU time is counted.
    pub fn end_functions(&self) {
        self.functions.values().for_each(|function| function.end());
    }

    /// The tables that are read, with their nodes.
    pub fn sources(&self) -> impl Iterator<Item = (usize, &SourceSpec)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(node, spec)| Some((node, spec.as_source()?)))
    }

    /// The tables that are written, with their nodes.
    pub fn sinks(&self) -> impl Iterator<Item = (usize, &SinkSpec)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(node, spec)| Some((node, spec.as_sink()?)))
    }
}

/// Compiles a file. `overrides` are settings of the command line: they take precedence over SET.
pub fn compile(
    text: &str,
    overrides: &[(String, String)],
    connectors: &dyn Connectors,
) -> Result<Compiled> {
    stacker::grow(STACK_BYTES, || compile_here(text, overrides, connectors))
}

/// The size of the stack for compiling, independent of the caller's stack and of the level of optimization. A
/// chain of 1000 operators (`statement::limits::CHAIN_MAX`), which the planner visits recursively, needs
/// between 8 and 16 MiB of it without optimization. Only pages that are touched use memory.
pub(crate) const STACK_BYTES: usize = 64 << 20;

fn compile_here(
    text: &str,
    overrides: &[(String, String)],
    connectors: &dyn Connectors,
) -> Result<Compiled> {
    let mut compiler = Compiler::new(connectors);
    let options = connectors.table_options();
    // SET applies from its statement on; the command line applies from the beginning.
    let at_statements = overrides.iter();
    for (key, value) in at_statements.filter(|(key, _)| AT_STATEMENTS.contains(&key.as_str())) {
        compiler.session.settings.set(key, value, &options)?;
        compiler.given.insert(key.clone());
    }
    let (mut tokens, mut uses) = (Vec::new(), Vec::new());
    for placed in parse(text)? {
        let of_statement = placed.tokens.clone();
        compiler
            .placed(placed)
            .map_err(|error| error.among(&of_statement))?;
        tokens.extend(of_statement.iter().cloned());
        uses.push(compiler.session.take_used());
    }
    for (key, value) in overrides {
        compiler.session.settings.set(key, value, &options)?;
        compiler.set_at.remove(key);
    }
    if overrides.iter().any(|(key, _)| is_parallelism(key)) {
        let parallelism = compiler.session.settings.parallelism;
        let jobs = compiler.jobs.iter_mut();
        jobs.for_each(|job| job.parallelism = parallelism);
    }
    compiler
        .session
        .settings
        .check()
        .map_err(|error| error.among_if_found(&tokens))?;
    compiler.check_targets()?;
    let (explained, run): (Vec<Job>, Vec<Job>) = std::mem::take(&mut compiler.jobs)
        .into_iter()
        .partition(|job| job.explain);
    Ok(Compiled {
        run: program(&compiler.session, connectors, &compiler.set_at, run)?,
        explain: program(&compiler.session, connectors, &compiler.set_at, explained)?,
        uses,
    })
}

/// Settings that apply at the statements that follow them: those of the command line apply from the
/// beginning.
const AT_STATEMENTS: [&str; 2] = [LATE_ROWS, "python"];

struct Compiler<'a> {
    session: Session,
    connectors: &'a dyn Connectors,
    jobs: Vec<Job>,
    /// Those of [`AT_STATEMENTS`] that the command line sets.
    given: BTreeSet<String>,
    /// The declarations of tables, for CREATE TABLE … LIKE.
    created: HashMap<String, CreateTable>,
    /// The settings before the first SET, and all SETs since: RESET undoes one or all of them.
    settings_before: Option<Settings>,
    set: Vec<(String, String)>,
    /// The places of settings that the command line does not override.
    set_at: SetAt,
}

/// A statement that writes rows.
struct Job {
    plan: LogicalPlan,
    table: Option<Arc<Table>>,
    /// The view that the statement keeps, instead of writing to a table.
    view: Option<Materialized>,
    /// The views that the statement reads, directly or through other views.
    views: BTreeSet<String>,
    explain: bool,
    /// The parallelism at the statement.
    parallelism: Option<Parallelism>,
    tokens: Arc<[TokenWithSpan]>,
}

impl<'a> Compiler<'a> {
    fn new(connectors: &'a dyn Connectors) -> Compiler<'a> {
        Compiler {
            session: Session::new(),
            connectors,
            jobs: Vec::new(),
            given: BTreeSet::new(),
            created: HashMap::new(),
            settings_before: None,
            set: Vec::new(),
            set_at: SetAt::new(),
        }
    }
}

impl Compiler<'_> {
    fn placed(&mut self, placed: Placed) -> Result<()> {
        for hinted in &placed.hinted {
            self.hinted(hinted)?;
        }
        self.statement(placed.statement, &placed.tokens, false)
    }

    /// Adds a table with the options of a hint, next to the table itself.
    fn hinted(&mut self, hinted: &Hinted) -> Result<()> {
        if self.session.hinted.contains_key(&hinted.name) {
            return Ok(());
        }
        let Hinted { table: name, .. } = hinted;
        let Some(table) = self.session.tables.get(name) else {
            let error = match self.session.is_view(name) {
                true => format!("the hint OPTIONS needs a table, and '{name}' is a view"),
                false => {
                    format!("the hint OPTIONS needs a table, and there is no table '{name}'")
                }
            };
            return Err(SqlError::new(error)
                .at(hinted.span)
                .hint("use FROM t /*+ OPTIONS('key' = 'value') */ AS x"));
        };
        let mut table = table.as_ref().clone();
        table.name = hinted.name.clone();
        for (key, value) in &hinted.options {
            if key == "connector" {
                let error = "a hint can't change the connector of a table";
                return Err(SqlError::new(error)
                    .at(hinted.span)
                    .hint("declare another table with that connector"));
            }
            table.options.insert(key.clone(), value.clone());
            table.option_places.insert(key.clone(), hinted.span);
        }
        self.connectors.check(&table)?;
        self.session
            .hinted
            .insert(hinted.name.clone(), Arc::new(table));
        Ok(())
    }

    fn statement(
        &mut self,
        statement: Statement,
        tokens: &Arc<[TokenWithSpan]>,
        explain: bool,
    ) -> Result<()> {
        match statement {
            Statement::CreateTable(create) => self.create_table(*create, tokens, explain),
            view @ Statement::CreateView { .. } => add_view(&mut self.session, view),
            Statement::CreateMaterializedView(create) => {
                self.create_materialized_view(*create, tokens, explain)
            }
            Statement::CreateFunction(create) => self.create_function(*create),
            Statement::Drop {
                name,
                is_function,
                if_exists,
            } => self.drop(&name, is_function, if_exists),
            Statement::Reset(key) => self.reset(key.as_deref()),
            Statement::Set { key, .. } if self.given.contains(&key) => Ok(()),
            Statement::Set { key, value } => {
                let settings = &mut self.session.settings;
                self.settings_before.get_or_insert_with(|| settings.clone());
                let options = self.connectors.table_options();
                settings.set(&key, &value, &options)?;
                if let Some(token) = find(tokens, &key) {
                    self.set_at.insert(key.clone(), token.span);
                }
                self.set.push((key, value));
                Ok(())
            }
            Statement::Explain(inner) => self.statement(*inner, tokens, true),
            Statement::Select(query) => self.job(*query, None, &[], tokens, explain),
            Statement::Insert {
                table,
                columns,
                query,
            } => {
                self.session.uses(&table.value);
                let found = self.session.table(&table.value).map(|found| {
                    // The sink of a table with a hint has the table's own name.
                    let name = found.name.split(OPTIONS_OF).next().unwrap_or_default();
                    let name = name.to_string();
                    Arc::new(Table {
                        name,
                        ..found.as_ref().clone()
                    })
                });
                let found = found.ok_or_else(|| {
                    let mut names = self.session.tables.keys().cloned().collect::<Vec<_>>();
                    names.sort();
                    let error = SqlError::new(format!("there is no table '{}'", table.value))
                        .at(table.span);
                    if self.session.is_view(&table.value) {
                        return SqlError::new(format!(
                            "'{}' is a view, and INSERT INTO needs a table",
                            table.value
                        ))
                        .at(table.span);
                    }
                    match nearest(&table.value, &names) {
                        Some(near) => error.hint(format!("did you mean '{near}'?")),
                        None => error.hint("declare it first: CREATE TABLE …"),
                    }
                })?;
                self.job(*query, Some(found), &columns, tokens, explain)
            }
        }
    }

    fn job(
        &mut self,
        query: Query,
        table: Option<Arc<Table>>,
        columns: &[Ident],
        tokens: &Arc<[TokenWithSpan]>,
        explain: bool,
    ) -> Result<()> {
        let places = outputs::places(&query);
        let plan = self.session.plan(query)?;
        let mut plan = late_rows::mark(plan, &self.session)?;
        if let Some(table) = &table {
            plan = fit(plan, table, columns, &places)?;
        }
        self.add_job(plan, table, None, tokens, explain)
    }

    fn add_job(
        &mut self,
        plan: LogicalPlan,
        table: Option<Arc<Table>>,
        view: Option<Materialized>,
        tokens: &Arc<[TokenWithSpan]>,
        explain: bool,
    ) -> Result<()> {
        let views = self.session.views_in(&plan);
        let plan = self.session.optimise(plan)?;
        self.jobs.push(Job {
            plan,
            table,
            view,
            views,
            explain,
            parallelism: self.session.settings.parallelism,
            tokens: tokens.clone(),
        });
        Ok(())
    }

    /// Rejects latency targets of tables and views that do not exist, or that no query uses.
    fn check_targets(&self) -> Result<()> {
        for name in self.session.settings.latency_targets.keys() {
            let is_used = self.jobs.iter().any(|job| {
                let table = job.table.as_ref().map(|table| &table.name);
                let view = job.view.as_ref().map(|view| &view.name);
                table == Some(name) || view == Some(name) || job.views.contains(name)
            });
            if is_used || self.jobs.is_empty() {
                continue;
            }
            if self.session.tables.contains_key(name) || self.session.is_view(name) {
                let error = format!(
                    "'latency_target.{name}': no query inserts into the table '{name}', or reads the view"
                );
                return Err(SqlError::new(error).hint(
                    "use the name of a table that a query inserts into, or of a view that it reads",
                ));
            }
            let tables = self.session.tables.keys();
            let known = tables.chain(self.session.view_names());
            let known = known.cloned().collect::<Vec<String>>();
            let error = SqlError::new(format!(
                "'latency_target.{name}': there is no table or view '{name}'"
            ));
            return Err(match nearest(name, &known) {
                Some(near) => error.hint(format!("did you mean 'latency_target.{near}'?")),
                None => {
                    error.hint("use the name of a table that a query inserts into, or of a view")
                }
            });
        }
        Ok(())
    }
}
