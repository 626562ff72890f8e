//! COUNT_WINDOW: windows of a number of rows.

use arrow_schema::{DataType, SchemaRef};
use slackwater_control::query::Exchange;
use slackwater_engine::operator::Operator;
use slackwater_engine::operator::count_window::{CountWindow, CountWindowSpec};
use slackwater_engine::operator::drop_late::Late;

use super::facts::{
    Behind, Bound, Changelog, Cost, Emission, Facts, Growth, Node, Order, Sorted, State, by_key,
};
use super::identity;
use super::saved::Saved;
use super::stream::Stream;
use super::translator::Translator;
use super::windowed::Ready;
use crate::error::Result;
use crate::explain::names;
use crate::window::{WINDOW_NUMBER, WindowNode};

/// Adds windows of a number of rows.
pub struct CountWindowNode {
    /// The size, slide and keys of the windows.
    pub spec: CountWindowSpec,
}

impl Node for CountWindowNode {
    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn exchange(&self, _: usize) -> Exchange {
        by_key(&self.spec.keys)
    }

    fn state(&self) -> Option<State> {
        Some(State {
            kind: Saved::CountWindow,
            identity: identity::count_window(&self.spec),
            is_read_whole: false,
        })
    }

    fn changelog(&self, _: bool) -> Changelog {
        Changelog::appends()
    }

    fn settle(&mut self, _: bool) {}

    fn growth(&self, _: &str) -> Vec<Growth> {
        if self.spec.keys.is_empty() {
            return Vec::new();
        }
        vec![Growth {
            input: None,
            keeps: format!(
                "COUNT_WINDOW with PARTITION BY {} keeps the number of rows of every key, and the \
                rows of its last windows, forever",
                names(&self.spec.keys, &self.spec.input)
            ),
            bound: Bound::Other(
                "'state_ttl' does not apply to it; use windows of time (TUMBLE, SESSION)",
            ),
        }]
    }

    fn facts(&self) -> Facts<'_> {
        // The node sorts its rows itself.
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
        Ok(Operator::stateful(CountWindow::new(self.spec.clone())?))
    }
}

impl Translator<'_> {
    /// Adds windows of a number of rows.
    pub(super) fn count_windows(
        &mut self,
        window: &WindowNode,
        mut ready: Ready,
    ) -> Result<Stream> {
        let windows = window.windows;
        let detail = self.windows_detail(&windows, &ready);
        ready.stream.node = self.drop_late(ready.stream.node, ready.time_column, Late::Before);
        let of_edge = windows.data_type();
        let own = [
            ("window_start", of_edge.clone()),
            ("window_end", of_edge),
            (WINDOW_NUMBER, DataType::Int64),
        ];
        let spec = CountWindowSpec {
            keys: ready.keys.clone(),
            time_column: ready.time_column,
            windows,
            input: self.schema(ready.stream.node),
            schema: self.with_fields(&ready.stream, &own),
        };
        let key = format!("count {spec:?}");
        let input = ready.stream.node;
        let count_window = CountWindowNode { spec };
        let node = self.operator("count window", detail, &[input], count_window, &key);
        self.windowed(window, ready, node)
    }
}
