//! The output of a plan: a node of the graph, and for each column of the plan an expression over
//! the node's columns.

use arrow_schema::DataType;
use slackwater_engine::operator::window::Windows;

use super::spec::Changes;
use crate::expression::Physical;

/// What the columns of a plan are over a node of the graph.
#[derive(Clone)]
pub struct Stream {
    pub node: usize,
    pub columns: Vec<Physical>,
    pub roles: Vec<Role>,
    /// Event time, where the stream has it, also when the plan has no such column any more.
    pub time: Option<Physical>,
    /// Rows replace earlier rows, or take them back.
    pub updates: bool,
    /// Where `updates`: the columns that tell which row is replaced; `None` where only the whole row
    /// says it.
    pub key: Option<Vec<Physical>>,
    /// Where `updates`: rows may go for good.
    pub deletes: bool,
}

impl Stream {
    /// What its rows may do to those before them.
    pub fn changes(&self) -> Changes {
        let place = |part| self.columns.iter().position(|column| column == part);
        match &self.key {
            _ if !self.updates => Changes::None,
            None => Changes::ByRow,
            Some(key) => match key.iter().map(place).collect() {
                Some(columns) => Changes::ByKey(columns),
                None => Changes::HiddenKey,
            },
        }
    }
}

/// What is special about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// Event time: windows can be made by it.
    Time,
    WindowStart(Windows),
    WindowEnd(Windows),
    /// Which of the count windows of its key it is.
    WindowNumber,
}

impl Role {
    /// The role of a column that is cast. Times of another unit are the same times if the unit is not
    /// coarser: the planner casts where two units meet.
    pub fn cast(self, from: &DataType, to: &DataType) -> Role {
        let (DataType::Timestamp(from, None), DataType::Timestamp(to, None)) = (from, to) else {
            return Role::Plain;
        };
        if to < from {
            return Role::Plain;
        }
        match self {
            Role::Time => Role::Time,
            Role::WindowStart(windows) => {
                windows.in_unit(*to).map_or(Role::Plain, Role::WindowStart)
            }
            Role::WindowEnd(windows) => windows.in_unit(*to).map_or(Role::Plain, Role::WindowEnd),
            Role::Plain | Role::WindowNumber => Role::Plain,
        }
    }
}
