//! From optimized plans to the query graph of a program.

use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use sqlparser::tokenizer::TokenWithSpan;

use super::{Job, Output, Program};
use crate::changelog;
use crate::connectors::Connectors;
use crate::error::Result;
use crate::late_rows;
use crate::node;
use crate::order;
use crate::session::Session;
use crate::settings::{Balancer, Parallelism};
use crate::table::Table;
use crate::warnings::{SetAt, Target, conflicts_with_targets};

/// The program of a read, whose plan is optimized.
pub fn of_read(
    session: &Session,
    connectors: &dyn Connectors,
    plan: LogicalPlan,
    tokens: Arc<[TokenWithSpan]>,
) -> Result<Program> {
    let job = Job {
        views: session.views_in(&plan),
        plan,
        table: None,
        view: None,
        explain: false,
        parallelism: session.settings.parallelism,
        tokens,
    };
    program(session, connectors, &SetAt::new(), vec![job])
}

/// The program of statements.
pub(super) fn program(
    session: &Session,
    connectors: &dyn Connectors,
    set_at: &SetAt,
    jobs: Vec<Job>,
) -> Result<Program> {
    let settings = &session.settings;
    let plans = jobs.iter().map(|job| &job.plan).collect::<Vec<_>>();
    let mut translator = node::translator(session, connectors, &plans)?;
    let (mut outputs, mut targets, mut views) = (Vec::new(), Vec::new(), Vec::new());
    for job in &jobs {
        let table = job.table.as_deref();
        let table = table.map(|table| (table.name.as_str(), latency_target(table)));
        let view = job.view.as_ref();
        let table = table.or_else(|| view.map(|view| (view.name.as_str(), None)));
        let target_ns = settings.target_of_sink(table, &job.views);
        targets.extend(target_ns.map(|target_ns| {
            let (set_at, table) = (set_at, job.table.as_deref());
            Target::of(target_ns, settings, set_at, table, &job.views)
        }));
        let added = match &job.view {
            None => translator.sink(&job.plan, job.table.clone(), target_ns),
            Some(view) => translator
                .materialized_view(&job.plan, view, target_ns)
                .map(|view| views.push(view)),
        };
        added.map_err(|error| error.among(&job.tokens))?;
        outputs.push(Output {
            sink: translator.graph.nodes.len() - 1,
            parallelism: job.parallelism,
        });
    }
    let before = translator.graph.nodes.len();
    translator.late_sinks()?;
    // The sinks of late rows have the parallelism of the widest query.
    let widest = jobs.iter().filter_map(|job| job.parallelism);
    let widest = widest.max_by_key(|parallelism| match parallelism {
        Parallelism::Auto => usize::MAX,
        Parallelism::Fixed(instances) => *instances,
    });
    let late = before..translator.graph.nodes.len();
    let late = late.filter(|&node| translator.specs[node].is_sink());
    outputs.extend(late.map(|sink| Output {
        sink,
        parallelism: widest,
    }));
    let cuts = translator.cuts;
    let (mut graph, mut nodes) = (translator.graph, translator.specs);
    let noted = translator.warnings;
    let modes = changelog::settle(&graph, &mut nodes);
    let mut warnings = changelog::unbounded(&graph, &nodes);
    warnings.extend(noted);
    warnings.extend(changelog::ttl_without_event_time(&graph, &nodes, settings));
    warnings.extend(settings.notes.iter().cloned());
    warnings.extend(late_rows::only_counted(&nodes, session));
    warnings.extend(crate::warnings::gaps(&nodes));
    warnings.extend(crate::warnings::final_state(&nodes, settings));
    warnings.extend(crate::warnings::idle_emit(&nodes, settings));
    let clashes = conflicts_with_targets(&nodes, &targets, settings, set_at);
    if settings.balancer == Balancer::Auto {
        order::deal_if_order_is_unseen(&mut graph, &nodes, settings.keep_order);
    }
    order::deal_into_unions(&mut graph);
    Ok(Program {
        graph,
        nodes,
        settings: settings.clone(),
        outputs,
        modes,
        warnings,
        clashes,
        views,
        cuts,
        functions: session.functions_used(),
    })
}

/// The latency target in the options of a sink, which its connector has checked.
fn latency_target(table: &Table) -> Option<u64> {
    let option = table.options.get("latency_target")?;
    slackwater_engine::time::parse_duration_ns(option)
}
