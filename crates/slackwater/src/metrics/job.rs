//! What a page has to know of a query besides its counts: its name and its plan.

use std::path::PathBuf;

use serde::Serialize;
use slackwater_sql::program::Program;

use crate::catalog::ProgramCatalog;
use crate::explain::Explained;
use crate::plan::Plan;

/// A query, for those who look at it.
#[derive(Default)]
pub struct Job {
    /// The description as one line of JSON; empty if nobody can ask for it.
    pub json: String,
    /// The nodes of the sinks, with the names of their tables.
    pub sinks: Vec<(usize, String)>,
    /// The dead-letter file of each source's table.
    pub dead_letters: Vec<(String, PathBuf)>,
}

#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    version: &'static str,
    plan: Explained,
}

impl Job {
    /// Describes a query.
    pub fn of(name: &str, program: &Program, plan: &Plan, catalog: &ProgramCatalog<'_>) -> Job {
        let described = Described {
            name,
            version: env!("CARGO_PKG_VERSION"),
            plan: Explained::of(program, plan),
        };
        let sinks = program.sinks();
        let sinks = sinks.map(|(node, sink)| (node, super::name_of(sink).to_string()));
        Job {
            // Numbers and strings: it can't fail.
            json: serde_json::to_string(&described).unwrap_or_default(),
            sinks: sinks.collect(),
            dead_letters: catalog.dead_letter_paths(),
        }
    }
}
