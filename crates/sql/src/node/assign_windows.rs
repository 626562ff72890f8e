//! Tumbling, sliding and cumulating windows: each row gets its own windows. For sessions a row only gets the
//! end of the session that it would make alone, before the other rows are known.

use arrow_schema::SchemaRef;
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::late_rows::Lateness;
use slackwater_engine::operator::window::{AssignWindows, Windows};

use super::facts::{Behind, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State};
use super::stream::Stream;
use super::translator::Translator;
use super::windowed::Ready;
use crate::error::Result;
use crate::window::WindowNode;

/// Adds windows to rows.
pub struct AssignWindowsNode {
    /// The index of the event-time column.
    pub time_column: usize,
    /// The kind and size of the windows.
    pub windows: Windows,
    /// How long after its end a window accepts rows, in microseconds.
    pub lateness_us: i64,
    /// The columns of the input, then those of the windows.
    pub schema: SchemaRef,
}

impl Node for AssignWindowsNode {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        Exchange::Forward
    }

    fn state(&self) -> Option<State> {
        None
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        Vec::new()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            order: Order::AsOutput,
            sorted: Sorted::No,
            orders_by_origin: false,
            may_be_dealt: false,
            first_input: None,
            behind: Behind::ByWindow,
            rejects_input_rows: true,
            emission: Emission::OnInput,
            judges: Some(Lateness::Windows(self.windows, self.lateness_us)),
            assigns: Some(self.windows),
            retention_us: None,
            combines: None,
            cost: Cost::of(2_000.0, 5.0, 1.0),
        }
    }

    fn operator(&self) -> slackwater_engine::Result<Operator> {
        let schema = self.schema.clone();
        let assign = AssignWindows::new(self.time_column, self.windows, schema);
        Ok(Operator::stateless(assign.with_lateness(self.lateness_us)))
    }
}

impl Translator<'_> {
    /// The rows of `ready` with their windows, which accept rows for `lateness_us` after their end.
    pub(super) fn assign_windows(
        &mut self,
        window: &WindowNode,
        ready: Ready,
        lateness_us: i64,
    ) -> Result<Stream> {
        let windows = window.windows;
        let of_edge = windows.data_type();
        let own = [("window_start", of_edge.clone()), ("window_end", of_edge)];
        let time_column = ready.time_column;
        let assign = AssignWindowsNode {
            time_column,
            windows,
            lateness_us,
            schema: self.with_fields(&ready.stream, &own),
        };
        let key = format!("window {windows:?} {time_column} {lateness_us}");
        let detail = self.windows_detail(&windows, &ready);
        let node = self.operator("window", detail, &[ready.stream.node], assign, &key);
        self.windowed(window, ready, node)
    }

    /// The rows of `ready` with the end of the session that each would make alone: a node with one more
    /// column.
    pub(super) fn assign_reach(&mut self, windows: Windows, ready: &Ready) -> usize {
        let time_column = ready.time_column;
        let own = [("session_reach", windows.data_type())];
        let assign = AssignWindowsNode {
            time_column,
            windows,
            lateness_us: 0,
            schema: self.with_fields(&ready.stream, &own),
        };
        let detail = self.windows_detail(&windows, ready);
        let key = format!("reach {windows:?} {time_column}");
        self.operator("window", detail, &[ready.stream.node], assign, &key)
    }
}
