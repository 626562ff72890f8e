//! SESSION windows that return their rows one by one.

use arrow_schema::SchemaRef;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::session::{SessionRows, SessionSpec};

use super::facts::{
    Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::saved::Saved;
use super::stream::{Role, Stream};
use super::translator::Translator;
use super::windowed::Ready;
use crate::error::Result;
use crate::expression::{column, column_index};
use crate::window::WindowNode;

/// Adds the edges of their session to rows.
pub struct SessionRowsNode {
    /// The gap and the keys of the sessions.
    pub sessions: SessionSpec,
    /// The columns of the input.
    pub input: SchemaRef,
    /// The columns of the output.
    pub schema: SchemaRef,
}

impl Node for SessionRowsNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.sessions.keys)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::SessionRows,
            identity: identity::session_rows(&self.sessions, &self.input),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        // Rows are put in order here.
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::No,
            orders_by_origin: true,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: false,
            emission: Emission::OnInput,
            judges: None,
            assigns: None,
            retention_us: None,
            combines: None,
            cost: Cost::of(10_000.0, 500.0, Cost::ROWS_OUT_STATE),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let (sessions, schema) = (self.sessions.clone(), self.schema.clone());
        Ok(Operator::stateful(SessionRows::new(
            sessions,
            &self.input,
            schema,
        )?))
    }
}

impl Translator<'_> {
    /// Rows with their sessions. If the aggregation above merges the sessions itself
    /// ([`Translator::merges_sessions`]), their edges are not known here: a column holds the end of the
    /// session that each row would make alone.
    pub(super) fn sessions(
        &mut self,
        window: &WindowNode,
        ready: Ready,
        merges: bool,
    ) -> Result<Stream> {
        let windows = window.windows;
        let node = self.assign_reach(windows, &ready);
        let reach = self.schema(node);
        let reach_column = reach.fields().len() - 1;
        let time_column = ready.time_column;
        if merges {
            let stream = ready.stream;
            let mut time = stream.columns.iter();
            let time = time
                .find(|expression| column_index(expression) == Some(time_column))
                .cloned();
            let (mut columns, mut roles) = (stream.columns.clone(), stream.roles.clone());
            columns.extend(vec![column(reach_column, &reach); 3]);
            roles.extend([
                Role::WindowStart(windows),
                Role::WindowEnd(windows),
                Role::Plain,
            ]);
            return Ok(Stream {
                node,
                columns,
                roles,
                time,
                ..stream
            });
        }
        let sessions = SessionSpec {
            keys: ready.keys.clone(),
            time_column,
            reach_column,
            windows,
        };
        let of_edge = windows.data_type();
        let own = [("window_start", of_edge.clone()), ("window_end", of_edge)];
        let key = format!("sessions {sessions:?}");
        let detail = self.windows_detail(&windows, &ready);
        let session_rows = SessionRowsNode {
            sessions,
            input: reach,
            schema: self.with_fields(&ready.stream, &own),
        };
        let node = self.operator("sessions", detail, &[node], session_rows, &key);
        self.windowed(window, ready, node)
    }
}
