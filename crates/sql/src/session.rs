//! A session: the declared tables, views and settings, and DataFusion's planner for them.

mod declaration;
mod functions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::DataType;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DFSchema, DataFusionError, TableReference};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};
use datafusion_optimizer::analyzer::Analyzer;
use datafusion_optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion_optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion_optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion_optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::{Optimizer, OptimizerContext};
use datafusion_sql::planner::{NullOrdering, ParserOptions, PlannerContext, SqlToRel};
use sqlparser::ast::{Expr as AstExpr, LimitClause, Query, Statement as AstStatement, Value};

use crate::check;
use crate::common_types;
use crate::constants;
use crate::error::{Result, SqlError, Unknown, nearest};
use crate::functions::{self as language, DeclaredFunction};
use crate::grouping_sets;
use crate::operands::{Operands, check_filters};
use crate::operators::{DeclaredOperators, Operators};
use crate::outputs;
use crate::prune::Prune;
use crate::settings::Settings;
use crate::simplify::{PushDown, Simplify};
use crate::statement::OPTIONS_OF;
use crate::subqueries;
use crate::table::{Table, TableHandle, ViewHandle};
use crate::types::Types;
use crate::walk::{self, Change, Next, ON};
use crate::window::WindowFunctions;
use crate::{as_of, broadcast};

/// The declared tables, views and settings.
pub struct Session {
    /// The tables by name.
    pub tables: HashMap<String, Arc<Table>>,
    /// The tables with options of hints, by name and hint.
    pub hinted: HashMap<String, Arc<Table>>,
    views: HashMap<String, Arc<LogicalPlan>>,
    /// The settings.
    pub settings: Settings,
    /// Whether queries may have parameters, VALUES and no FROM: reads.
    pub is_read: bool,
    scalars: HashMap<String, Arc<ScalarUDF>>,
    aggregates: HashMap<String, Arc<AggregateUDF>>,
    window_functions: HashMap<String, Arc<WindowUDF>>,
    expression_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    options: ConfigOptions,
    used: Mutex<BTreeSet<String>>,
    /// The functions that were declared, by their names in lower case.
    functions: BTreeMap<String, Arc<dyn DeclaredFunction>>,
    functions_used: Mutex<BTreeSet<String>>,
    /// Those that return a table.
    operators: Arc<DeclaredOperators>,
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

impl Session {
    /// A session without tables.
    pub fn new() -> Session {
        let mut scalars = HashMap::new();
        for function in language::scalar_functions() {
            for name in function.aliases() {
                scalars.insert(name.clone(), function.clone());
            }
            scalars.insert(function.name().to_string(), function.clone());
        }
        let mut aggregates = HashMap::new();
        for function in language::aggregate_functions() {
            for name in function.aliases() {
                aggregates.insert(name.clone(), function.clone());
            }
            aggregates.insert(function.name().to_lowercase(), function.clone());
        }
        let mut window_functions = HashMap::new();
        for function in language::window_functions() {
            window_functions.insert(function.name().to_lowercase(), function);
        }
        let operators = Arc::new(DeclaredOperators::default());
        let others = Arc::clone(&operators);
        Session {
            tables: HashMap::new(),
            hinted: HashMap::new(),
            views: HashMap::new(),
            settings: Settings::default(),
            is_read: false,
            scalars,
            aggregates,
            window_functions,
            expression_planners: vec![
                Arc::new(Operands),
                Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
                Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
                Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
                Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
                Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
                Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
                Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
            ],
            relation_planners: vec![
                Arc::new(Operators {
                    declared: Arc::clone(&operators),
                }),
                Arc::new(WindowFunctions { declared: others }),
            ],
            options: ConfigOptions::default(),
            used: Mutex::default(),
            functions: BTreeMap::new(),
            functions_used: Mutex::default(),
            operators,
        }
    }

    /// The tables and views that were used since the last call, not those that these use themselves.
    pub fn take_used(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes the use of a table or view. The name may contain a hint.
    pub(crate) fn uses(&self, name: &str) {
        let name = name.split(OPTIONS_OF).next().unwrap_or_default();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.insert(name.to_string());
    }

    /// The table with a name, which may contain a hint.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(name).or_else(|| self.hinted.get(name))
    }

    /// Declares a table.
    pub fn add_table(&mut self, table: Table) -> Result<()> {
        self.check_new(&table.name)
            .map_err(|error| error.at(table.span))?;
        self.tables.insert(table.name.clone(), Arc::new(table));
        Ok(())
    }

    /// Declares a view.
    pub fn add_view(&mut self, name: &str, plan: LogicalPlan) -> Result<()> {
        self.check_new(name)?;
        self.views.insert(name.to_string(), Arc::new(plan));
        Ok(())
    }

    /// Whether there is a view with this name.
    pub fn is_view(&self, name: &str) -> bool {
        self.views.contains_key(name)
    }

    /// The names of all views.
    pub fn view_names(&self) -> impl Iterator<Item = &String> {
        self.views.keys()
    }

    /// The names and types of a view's columns.
    pub fn view_columns(&self, name: &str) -> Option<Vec<(String, DataType)>> {
        let fields = self.views.get(name)?.schema().fields().iter();
        let columns = fields.map(|field| (field.name().clone(), field.data_type().clone()));
        Some(columns.collect())
    }

    /// The names of all functions, in lower case.
    pub fn function_names(&self) -> BTreeSet<&String> {
        let all = self.scalars.keys().chain(self.aggregates.keys());
        all.chain(self.window_functions.keys()).collect()
    }

    /// The views that a plan reads, directly or through other views: the planner keeps their names.
    pub fn views_in(&self, plan: &LogicalPlan) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let visited = plan.apply_with_subqueries(|node| {
            if let LogicalPlan::SubqueryAlias(alias) = node
                && self.is_view(alias.alias.table())
            {
                names.insert(alias.alias.table().to_string());
            }
            Ok(TreeNodeRecursion::Continue)
        });
        visited.expect("the closure never fails");
        names
    }

    fn check_new(&self, name: &str) -> Result<()> {
        if self.tables.contains_key(name) || self.views.contains_key(name) {
            return Err(SqlError::new(format!(
                "there is already a table or view '{name}'"
            )));
        }
        Ok(())
    }

    /// The logical plan of a query, without optimization.
    pub fn plan(&self, mut query: Query) -> Result<LogicalPlan> {
        as_of::rewrite(&mut query, &|name| self.joined_table(name))?;
        check::query(&query, self.is_read, &|name| self.is_aggregate(name))?;
        outputs::name(&mut query);
        walk::change(&mut query, &mut FetchAsLimit)?;
        let planner = SqlToRel::new_with_options(self, self.parser_options());
        let plan = planner.sql_statement_to_plan(AstStatement::Query(Box::new(query)));
        for name in self.operators.take_called() {
            self.calls(&name);
        }
        let plan = plan.map_err(|error| self.with_nearest_name(error.into()))?;
        check_filters(&plan)?;
        broadcast::guard(as_of::guard(common_types::unify(plan)?)?)
    }

    /// Adds a suggestion to errors about unknown functions and fields, which the planner reports without one.
    fn with_nearest_name(&self, error: SqlError) -> SqlError {
        let near = match error.unknown_name() {
            None => None,
            Some((Unknown::Function, name)) if self.operators.contains(&name.to_lowercase()) => {
                let hint = format!("it returns a table: FROM {name}(TABLE t)");
                return error.hint(hint);
            }
            Some((Unknown::Function, name)) => {
                let mut names = language::names();
                names.extend(self.functions.keys().cloned());
                nearest(name, &names)
            }
            Some((Unknown::Field, name)) => {
                let mut names = Vec::new();
                for table in self.tables.values() {
                    for field in table.schema.fields() {
                        field_names(field.data_type(), &mut names);
                    }
                }
                nearest(name, &names)
            }
        };
        match near {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None => error,
        }
    }

    /// The table that is joined as of a time.
    fn joined_table(&self, name: &str) -> Result<Arc<Table>> {
        if let Some(table) = self.table(name) {
            return Ok(table.clone());
        }
        if self.is_view(name) {
            let error = format!("FOR SYSTEM_TIME AS OF needs a table, and '{name}' is a view");
            return Err(SqlError::new(error)
                .hint("join with the table of the view, and move the view's conditions to WHERE"));
        }
        let error = SqlError::new(format!("there is no table '{name}'"));
        let tables = self.tables.keys().cloned().collect::<Vec<String>>();
        Err(match nearest(name, &tables) {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None => error.hint("declare it first: CREATE TABLE …"),
        })
    }

    fn is_aggregate(&self, name: &str) -> bool {
        self.aggregates.contains_key(&name.to_lowercase())
    }

    /// Checks an expression of a CREATE TABLE: it is computed from one row.
    pub fn check_row_expression(&self, ast: &AstExpr) -> Result<()> {
        check::row_expression(ast, &|name| self.is_aggregate(name))
    }

    /// A SQL expression over the columns of `schema`.
    pub fn expression(&self, ast: &AstExpr, schema: &DFSchema) -> Result<Expr> {
        let planner = SqlToRel::new_with_options(self, self.parser_options());
        let expression = planner.sql_to_expr(ast.clone(), schema, &mut PlannerContext::new());
        expression.map_err(|error| self.with_nearest_name(error.into()))
    }

    /// The plan after type coercion.
    pub fn analyse(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = common_types::unify(plan)?;
        Ok(Analyzer::new().execute_and_check(plan, &self.options, |_, _| {})?)
    }

    /// The optimized plan. Rules that assume a finite input are left out, because the streaming operators are
    /// made from this plan. The rule that replaces a query whose condition is never true by an empty table is
    /// left out, too: the inputs of such a query are still read, and their bad rows counted.
    pub fn optimise(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = self.analyse(plan)?;
        constants::check(&plan)?;
        let plan = grouping_sets::expand(subqueries::prepare(plan)?)?;
        let optimizer = Optimizer::with_rules(vec![
            // First, because simplifying an expression may duplicate a subquery.
            Arc::new(DecorrelatePredicateSubquery::new()),
            Arc::new(ScalarSubqueryToJoin::new()),
            Arc::new(Simplify),
            Arc::new(ReplaceDistinctWithAggregate::new()),
            Arc::new(EliminateCrossJoin::new()),
            Arc::new(ExtractEquijoinPredicate::new()),
            Arc::new(PushDown::default()),
            Arc::new(ExtractEquijoinPredicate::new()),
            Arc::new(Prune::default()),
        ]);
        let mut options = ConfigOptions::default();
        // There is no operator for scalar subqueries: all of them become joins.
        let optimizer_options = &mut options.optimizer;
        optimizer_options.enable_physical_uncorrelated_scalar_subquery = false;
        let context = OptimizerContext::new_with_config_options(Arc::new(options));
        let plan = optimizer.optimize(plan, &context, |_, _| {})?;
        as_of::without_copies(plan)
    }

    fn parser_options(&self) -> ParserOptions {
        // Names are case-sensitive, as in Flink.
        ParserOptions::new()
            .with_enable_ident_normalization(false)
            // NULL is less than all other values, as in Flink.
            .with_default_null_ordering(NullOrdering::NullsMin)
            .with_collect_spans(true)
    }
}

/// Rewrites FETCH FIRST n ROWS ONLY to LIMIT n, which the planner supports.
struct FetchAsLimit;

impl Change for FetchAsLimit {
    fn query(&mut self, query: &mut Query) -> Next {
        let Some(fetch) = query.fetch.take() else {
            return ON;
        };
        let one = || AstExpr::value(Value::Number("1".to_string(), false));
        let first = Some(fetch.quantity.unwrap_or_else(one));
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, .. }) => *limit = first,
            clause => {
                *clause = Some(LimitClause::LimitOffset {
                    limit: first,
                    offset: None,
                    limit_by: Vec::new(),
                });
            }
        }
        ON
    }
}

/// The names of the fields of rows, and of rows in rows.
fn field_names(data_type: &DataType, names: &mut Vec<String>) {
    match data_type {
        DataType::Struct(fields) => {
            for field in fields {
                names.push(field.name().clone());
                field_names(field.data_type(), names);
            }
        }
        DataType::List(item) => field_names(item.data_type(), names),
        _ => {}
    }
}

impl ContextProvider for Session {
    fn get_table_source(
        &self,
        name: TableReference,
    ) -> datafusion_common::Result<Arc<dyn TableSource>> {
        self.uses(name.table());
        if let Some(table) = self.table(name.table()) {
            return Ok(Arc::new(TableHandle(table.clone())));
        }
        if let Some(plan) = self.views.get(name.table()) {
            return Ok(Arc::new(ViewHandle(plan.clone())));
        }
        let mut names = self
            .tables
            .keys()
            .chain(self.views.keys())
            .cloned()
            .collect::<Vec<_>>();
        names.sort();
        let error = SqlError::new(format!("there is no table or view '{name}'"));
        let error = match nearest(name.table(), &names) {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None if names.is_empty() => error.hint("declare it first: CREATE TABLE …"),
            None => error.hint(format!("the tables and views are: {}", names.join(", "))),
        };
        Err(DataFusionError::External(Box::new(error)))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expression_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(Types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let found = self
            .scalars
            .get(name)
            .or_else(|| self.scalars.get(&name.to_lowercase()));
        let found = found?;
        self.calls(found.name());
        Some(Arc::clone(found))
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let found = self.aggregates.get(&name.to_lowercase())?;
        self.calls(found.name());
        Some(Arc::clone(found))
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.window_functions.get(&name.to_lowercase()).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        self.scalars.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.aggregates.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.window_functions.keys().cloned().collect()
    }
}
