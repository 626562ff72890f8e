//! The rows of views whose query runs in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch};

use super::{AtCut, Failed, Limits, Readable, Rows, Scan};
use crate::views::{Cut, Views};

/// The most rows of a batch: as many as a chunk has.
const BATCH_ROWS: usize = 8192;

/// How long a reader without a limit of time waits for a cut.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The rows of the views of a run in this process.
pub struct Local {
    views: Arc<Views>,
    max_age: Duration,
}

impl Local {
    /// The rows of these views, at cuts that are at most `max_age` old.
    pub fn new(views: Arc<Views>, max_age: Duration) -> Local {
        Local { views, max_age }
    }

    /// The views.
    pub fn readable(&self) -> Vec<Readable> {
        let views = self.views.described().into_iter();
        let views = views.map(|view| Readable {
            name: view.name,
            schema: view.schema,
            key: view.key,
        });
        views.collect()
    }

    fn cuts(&self, names: &[&str], limits: &Limits) -> Result<Vec<Arc<Cut>>, Failed> {
        let patience = limits.left().unwrap_or(PATIENCE);
        let cuts = self.views.cuts(names, self.max_age, patience);
        // A time-out is the read's own.
        cuts.map_err(|error| limits.check().err().unwrap_or_else(|| error.into()))
    }
}

impl Rows for Local {
    fn at(&self, views: &[String], limits: &Limits) -> Result<Box<dyn AtCut>, Failed> {
        let names = views.iter().map(String::as_str).collect::<Vec<&str>>();
        let cuts = self.cuts(&names, limits)?;
        let cuts = views.iter().cloned().zip(cuts);
        Ok(Box::new(LocalCuts(cuts.collect())))
    }

    fn get(&self, view: &str, key: Vec<ArrayRef>, limits: &Limits) -> Result<RecordBatch, Failed> {
        let cuts = self.cuts(&[view], limits)?;
        Ok(cuts[0].get(key)?)
    }
}

struct LocalCuts(HashMap<String, Arc<Cut>>);

impl AtCut for LocalCuts {
    fn scan(&self, view: &str, columns: &[usize]) -> Result<Scan, Failed> {
        let Some(cut) = self.0.get(view).cloned() else {
            return Err(Failed::NotRead(format!("there is no cut of '{view}'")));
        };
        let columns = columns.to_vec();
        let mut place = 0;
        Ok(Box::new(std::iter::from_fn(move || {
            let batch = cut.next_batch(&mut place, BATCH_ROWS)?;
            let batch = batch.and_then(|batch| Ok(batch.project(&columns)?));
            Some(batch.map_err(Failed::from))
        })))
    }
}
