//! The hosts of a query: waited for, and asked for files that this one does not have.

use std::collections::BTreeMap;
use std::sync::Arc;

use slackwater_sql::SqlError;
use slackwater_sql::program::{Compiled, Program, compile};

use super::{Failure, RunOptions};
use crate::bound::needed;
use crate::catalog::{Informed, ProgramCatalog};
use crate::cluster::{Gathered, Led, Orchestrator, find_elsewhere};
use crate::machine::Machine;
use crate::script::Script;

/// Compiles a program that is told `findings` of its files. With several hosts, the files that others have
/// are left for later if nothing is told of them.
///
/// # Errors
///
/// If the SQL is wrong.
pub fn compile_with(
    script: &Script,
    options: &RunOptions,
    findings: &BTreeMap<String, String>,
) -> Result<Compiled, SqlError> {
    let cluster = options.cluster.as_ref();
    let connectors = Informed {
        findings,
        home: cluster.map(|cluster| &*cluster.name),
    };
    let mut compiled = compile(script.text(), &options.settings, &connectors)?;
    script.warn(&mut compiled.run);
    script.warn(&mut compiled.explain);
    Ok(compiled)
}

/// Waits for the hosts of a query, if there are to be several, and makes its program know the files that
/// they have.
///
/// # Errors
///
/// If too few hosts come, or files can't be found.
pub fn gather(
    script: &Script,
    options: &RunOptions,
    program: &mut Program,
    machine: &Machine,
    led: Led,
) -> Result<Option<(Orchestrator, Gathered)>, Failure> {
    let Some(cluster) = &options.cluster else {
        return Ok(None);
    };
    let usage = |error: SqlError| Failure::Usage(script.render(&error));
    // Nobody waits for hosts to hear that the program is wrong.
    ProgramCatalog::new(program).map_err(usage)?;
    let signals = &options.asker.signals;
    let told = Arc::clone(signals);
    let orchestrator = Orchestrator::new(
        cluster,
        script.name(),
        &program.settings,
        (machine, options.program.as_deref()),
        led,
        move || told.hosts(),
    );
    let failed = |error| Failure::Query(error, None);
    let orchestrator = orchestrator.map_err(failed)?;
    signals.listens(orchestrator.address());
    orchestrator.need(needed(program));
    let gathered = orchestrator.gather(&|| signals.is_raised());
    let gathered = gathered.map_err(failed)?;
    let found = find_elsewhere(program, &gathered).map_err(usage)?;
    if !found.findings.is_empty() {
        let compiled = compile_with(script, options, &found.findings).map_err(usage)?;
        *program = compiled.run;
        orchestrator.need(needed(program));
    }
    for note in found.notes {
        eprintln!("warning: {note}");
    }
    Ok(Some((orchestrator, gathered)))
}
