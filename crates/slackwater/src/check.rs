//! `slackwater check`: what a new version of a query finds in the checkpoints of the old one, before anything
//! is changed.
//!
//! It compiles the program and asks what a run asks: [`Survival`], the checks before a run claims the
//! checkpoints, and the sources, which are made with their positions and not opened.

use std::collections::BTreeMap;
use std::path::Path;

use slackwater_checkpoint::manifest::NodeKind;
use slackwater_checkpoint::{Error, Runner, Store};
use slackwater_engine::deploy::{Catalog, SourcePart};
use slackwater_sql::SqlError;
use slackwater_sql::program::compile;

use crate::catalog::{Informed, ProgramCatalog, is_elsewhere};
use crate::checkpoints::{Members, Restored};
use crate::costs::Learned;
use crate::machine::Machine;
use crate::plan::deployment;
use crate::planner::plan_on;
use crate::script::Script;
use crate::supervisor::checks;

pub use crate::checkpoints::{Fate, NodeSurvival, PartitionSurvival, Survival};

/// A name that no host has: files that a table reads on a host are not looked for here.
const ANY_HOST: &str = "";

/// What a run of `script` with these `settings` would find in the checkpoints at `place`.
///
/// # Errors
///
/// If the program is wrong or can't be run with checkpoints, or if there is none that can be read.
pub fn check(
    script: &Script,
    settings: &[(String, String)],
    place: &str,
) -> Result<Survival, String> {
    let mut settings = settings.to_vec();
    settings.push(("state".to_string(), place.to_string()));
    let rendered = |error: SqlError| script.render(&error);
    let connectors = Informed {
        findings: &BTreeMap::new(),
        home: Some(ANY_HOST),
    };
    let program = compile(script.text(), &settings, &connectors).map_err(rendered)?;
    let program = program.run;
    if program.is_empty() {
        let file = script.name();
        return Err(format!(
            "{file}: there is no query to check\n  = a query starts with SELECT or INSERT INTO"
        ));
    }
    let mut catalog = ProgramCatalog::new(&program).map_err(rendered)?;
    let mut plan = plan_on(&program, &Machine::this(), &Learned::default()).map_err(rendered)?;
    plan.checkpoints = true;
    checks::check_checkpoints(&program, plan.processes).map_err(rendered)?;
    let members = Members::new(&program, &deployment(&program, &plan));

    let failed = |error: Error| format!("--state: {error}");
    // Opening a store would create the directory.
    if !place.contains("://") && !Path::new(place).is_dir() {
        return Err(format!("{place}: there is no such directory"));
    }
    let (store, runner) = (
        Store::open(place).map_err(failed)?,
        Runner::new().map_err(failed)?,
    );
    let found = runner.run(store.newest(None)).map_err(failed)?;
    let Some(manifest) = found.manifest else {
        return Err(match found.warnings.is_empty() {
            true => format!("{place}: there is no checkpoint: a run starts from nothing"),
            false => checks::unreadable(place, &found.warnings),
        });
    };
    let mut survival = Survival::of(&program, &members, &manifest, place);
    if let Some(reason) =
        checks::passed_over(&program, place, &found.warnings, Some(manifest.number))
    {
        survival.refuse(reason);
    }
    survival.warnings = found.warnings;
    // A finished query opens none.
    if manifest.finished {
        return Ok(survival);
    }
    let restored = Restored::new(place, manifest, members.keys()).map_err(failed)?;
    catalog.begin(0, Some(restored));
    let continues = |key: &str| {
        let mut nodes = survival.nodes.iter();
        nodes.any(|node| node.key == key && node.fate == Fate::Continues)
    };
    let nodes = members.nodes.iter().zip(&members.graph_nodes);
    let sources =
        nodes.filter(|(identity, _)| identity.kind == NodeKind::Source && continues(&identity.key));
    // The files of other hosts can't be seen from here.
    let is_here = |node: usize| {
        let table = program.nodes[node].as_source().map(|source| &source.table);
        table.is_none_or(|table| !is_elsewhere(table, ANY_HOST).unwrap_or(false))
    };
    let sources = sources.filter(|(_, node)| is_here(**node));
    let refused = sources.filter_map(|(_, &node)| {
        let part = SourcePart {
            instance: 0,
            instances: 1,
            here: std::sync::Arc::new([0]),
            parsers: 1,
        };
        catalog
            .source(node, part)
            .err()
            .map(|error| error.to_string())
    });
    let refused = refused.collect::<Vec<String>>();
    refused
        .into_iter()
        .for_each(|reason| survival.refuse(reason));
    Ok(survival)
}
