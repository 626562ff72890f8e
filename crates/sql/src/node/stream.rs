//! The output of a plan: a node of the graph, and for each column of the plan an expression over the node's
//! columns.

use arrow_schema::DataType;
use slackwater_engine::operator::window::Windows;

use super::spec::Changes;
use crate::expression::Physical;

/// The columns of a plan over a node of the graph.
#[derive(Clone)]
pub struct Stream {
    pub node: usize,
    pub columns: Vec<Physical>,
    pub roles: Vec<Role>,
    /// The event time, if the stream has one, also if the plan no longer has that column.
    pub time: Option<Physical>,
    /// Whether rows replace or retract earlier rows.
    pub updates: bool,
    /// If `updates`: the columns that identify the row that is replaced; `None` if only the whole row does.
    pub key: Option<Vec<Physical>>,
    /// If `updates`: whether rows may be deleted.
    pub deletes: bool,
    /// If rows are only added: choices of columns of which no two rows have the same values, as far as they
    /// are known.
    pub unique: Vec<Vec<Physical>>,
}

impl Stream {
    /// The places of the columns that identify a row; `None` if nothing less than the whole row does.
    pub fn identified_by(&self) -> Option<Vec<usize>> {
        let place = |part: &Physical| self.columns.iter().position(|column| column == part);
        let places = |key: &Vec<Physical>| key.iter().map(place).collect();
        match self.updates {
            true => places(self.key.as_ref()?),
            false => self.unique.iter().find_map(places),
        }
    }

    /// How the rows change earlier ones.
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

/// The special meaning of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// The event time, by which windows can be made.
    Time,
    WindowStart(Windows),
    WindowEnd(Windows),
    /// The number of the count window within its key.
    WindowNumber,
}

impl Role {
    /// The role of a column after a cast. A time in another unit is the same time unless the unit is coarser:
    /// the planner adds such casts where two units meet.
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
