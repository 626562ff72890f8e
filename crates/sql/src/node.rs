//! The operators of SQL, a file for each: how a part of a logical plan becomes a node of the query graph,
//! what the rest of the program needs to know about the node ([`Node`], [`Facts`]), and how the engine's
//! operator is made.
//!
//! ```text
//! facts.rs spec.rs   the facts about a node; sources, operators and sinks
//! stream.rs          the output of a plan while it is translated
//! translator.rs      the graph under construction; applies TRANSLATIONS to each part of a plan
//! map.rs …           one operator each
//! ```
//!
//! Imports go one way: the file of an operator uses those above it in this list, and helpers (`columns`,
//! `pair`, …). Only [`TRANSLATIONS`] and operators that are built from another use the file of an operator.

mod facts;
mod identity;
mod saved;
mod spec;
mod stream;
mod translator;

mod columns;
mod fields;

mod map;

mod drop_late;
mod filter;
mod late_rows;
mod source;
mod union;

mod assign_windows;
mod count_window;
mod session_rows;
mod window;
mod windowed;

mod aggregate;
mod groups;
mod session_aggregate;

mod custom;
mod custom_rows;
mod over;
mod over_functions;
mod ranks;
mod top_n;

mod subquery;

mod beside_table;
mod changelog_join;
mod interval_join;
mod intervals;
mod join;
mod lookup_join;
mod pair;
mod semi_join;
mod table_join;
mod temporal_join;
mod window_join;

mod by_primary_key;
mod final_rows;
mod materialized_view;
mod sink;
mod to_rows;

use datafusion_expr::LogicalPlan;

use crate::connectors::Connectors;
use crate::error::Result;
use crate::session::Session;

pub use facts::{
    Behind, Bound, Changelog, ChangelogMode, Combines, Cost, Emission, Emits, Facts, Growth,
    NeedsBefore, Node, Order, Sorted, State,
};
pub use materialized_view::{Materialized, MaterializedView};
pub use saved::Saved;
pub use spec::{Changes, NodeSpec, SinkSpec, SourceSpec};
pub use translator::{Needs, Translation, Translator};

/// How the parts of a logical plan become nodes: the first translation that returns a stream is used.
const TRANSLATIONS: &[Translation] = &[
    source::TRANSLATION,
    // Before filters: its mark is a condition.
    subquery::TRANSLATION,
    // Before filters and projections: it matches a condition together with the projection above it.
    top_n::TRANSLATION,
    map::TRANSLATION,
    filter::TRANSLATION,
    drop_late::TRANSLATION,
    window::TRANSLATION,
    aggregate::TRANSLATION,
    join::TRANSLATION,
    union::TRANSLATION,
    over::TRANSLATION,
    custom::TRANSLATION,
    custom_rows::TRANSLATION,
    final_rows::TRANSLATION,
];

/// A translator for all `plans` of one program.
pub fn translator<'a>(
    session: &'a Session,
    connectors: &'a dyn Connectors,
    plans: &[&LogicalPlan],
) -> Result<Translator<'a>> {
    Translator::new(session, connectors, TRANSLATIONS, plans)
}
