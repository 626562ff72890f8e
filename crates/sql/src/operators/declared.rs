//! The operators that a program declares, and those of the build.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::functions::operator::OperatorFunction;
use crate::functions::operators;

/// The operators that a program declares: CREATE FUNCTION … RETURNS TABLE. The planner of calls and the
/// session share them.
#[derive(Debug, Default)]
pub struct DeclaredOperators(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<String, Arc<OperatorFunction>>,
    /// The names of those that were called, since they were taken last.
    called: BTreeSet<String>,
}

impl DeclaredOperators {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operator.
    pub fn add(&self, operator: Arc<OperatorFunction>) {
        let name = operator.name.clone();
        self.inner().by_name.insert(name, operator);
    }

    /// Whether the program declares an operator with this name in lower case.
    pub fn contains(&self, name: &str) -> bool {
        self.inner().by_name.contains_key(name)
    }

    /// The operator that is called by a name in lower case. Notes the call of one that is declared.
    pub fn find(&self, name: &str) -> Option<Arc<OperatorFunction>> {
        let mut inner = self.inner();
        if let Some(found) = inner.by_name.get(name).cloned() {
            inner.called.insert(name.to_string());
            return Some(found);
        }
        operators().into_iter().find(|known| known.name == name)
    }

    /// The names of the declared operators that were called since the last time.
    pub fn take_called(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.inner().called)
    }

    /// The names of all operators, as messages show them.
    pub fn names(&self) -> Vec<String> {
        let added = operators().into_iter();
        let added = added.map(|operator| operator.name.clone());
        added.chain(self.inner().by_name.keys().cloned()).collect()
    }
}
