//! Views in memory, for reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt32Array,
};
use slackwater::reads::{AtCut, Failed, Limits, Readable, Reads, Rows, Scan};
use slackwater_engine::expression::row_text;

use crate::support::Seeded;

/// A view in memory, and how often it was scanned and looked up in.
pub struct Kept {
    pub views: BTreeMap<String, (RecordBatch, Vec<usize>)>,
    pub scans: AtomicUsize,
    pub gets: AtomicUsize,
    pub batch_rows: usize,
    /// What the scans wait for before their next batch.
    pub wait: Option<Duration>,
}

struct KeptCut {
    views: BTreeMap<String, RecordBatch>,
    batch_rows: usize,
    wait: Option<Duration>,
    limits: Limits,
}

impl Kept {
    fn new(views: Vec<(&str, RecordBatch, Vec<usize>)>) -> Kept {
        let views = views.into_iter();
        Kept {
            views: views
                .map(|(name, rows, key)| (name.to_string(), (rows, key)))
                .collect(),
            scans: AtomicUsize::new(0),
            gets: AtomicUsize::new(0),
            batch_rows: 100,
            wait: None,
        }
    }

    pub fn reads(&self) -> Reads {
        let views = self.views.iter();
        let views = views.map(|(name, (rows, key))| Readable {
            name: name.clone(),
            schema: rows.schema(),
            key: Some(key.clone()),
        });
        Reads::new(views.collect()).unwrap()
    }
}

impl Rows for Kept {
    fn at(&self, views: &[String], limits: &Limits) -> Result<Box<dyn AtCut>, Failed> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        let views = views.iter();
        Ok(Box::new(KeptCut {
            views: views
                .map(|name| (name.clone(), self.views[name].0.clone()))
                .collect(),
            batch_rows: self.batch_rows,
            wait: self.wait,
            limits: limits.clone(),
        }))
    }

    fn get(&self, view: &str, key: Vec<ArrayRef>, _: &Limits) -> Result<RecordBatch, Failed> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let (rows, of_key) = &self.views[view];
        let is_it = |row: &u32| {
            let mut parts = of_key.iter().zip(&key);
            parts.all(|(column, part)| {
                assert_eq!(part.data_type(), rows.column(*column).data_type());
                text(rows.column(*column), *row as usize) == text(part, 0)
            })
        };
        let found = (0..rows.num_rows() as u32).filter(is_it);
        let found = UInt32Array::from_iter_values(found);
        let columns = rows.columns().iter();
        let columns = columns.map(|column| arrow_select_take(column, &found));
        Ok(RecordBatch::try_new(rows.schema(), columns.collect()).unwrap())
    }
}

/// The rows of a column, one by one.
fn arrow_select_take(column: &ArrayRef, rows: &UInt32Array) -> ArrayRef {
    let at = |row: &u32| column.slice(*row as usize, 1);
    let parts = rows.values().iter().map(at).collect::<Vec<ArrayRef>>();
    match parts.as_slice() {
        [] => column.slice(0, 0),
        [one] => one.clone(),
        _ => panic!("a key has one row"),
    }
}

impl AtCut for KeptCut {
    fn scan(&self, view: &str, columns: &[usize]) -> Result<Scan, Failed> {
        let rows = self.views[view].project(columns).unwrap();
        let (mut next, size) = (0, self.batch_rows);
        let (wait, limits) = (self.wait, self.limits.clone());
        Ok(Box::new(std::iter::from_fn(move || {
            if let Some(wait) = wait {
                std::thread::sleep(wait);
                if let Err(failed) = limits.check() {
                    return Some(Err(failed));
                }
            }
            let length = size.min(rows.num_rows() - next);
            let batch = rows.slice(next, length);
            next += length;
            (length > 0).then_some(Ok(batch))
        })))
    }
}

pub fn text(column: &ArrayRef, row: usize) -> Option<String> {
    let value = column.slice(row, 1);
    let batch = RecordBatch::try_from_iter_with_nullable([("v", value, true)]).unwrap();
    let text = row_text(&batch, 0);
    column.is_valid(row).then(|| text[2..].to_string())
}

/// Id, customer, price.
type Order = (i64, Option<i64>, i64);

/// `orders` by id: customer (sometimes NULL), price; `customers` by id: name, city.
pub fn shop(orders: &[Order], customers: &[(i64, String, f64)]) -> Kept {
    let of = |part: fn(&Order) -> Option<i64>| {
        Arc::new(Int64Array::from_iter(orders.iter().map(part))) as ArrayRef
    };
    let orders = [
        ("id", of(|order| Some(order.0)), true),
        ("customer", of(|order| order.1), true),
        ("price", of(|order| Some(order.2)), true),
    ];
    let ids = Int64Array::from_iter_values(customers.iter().map(|customer| customer.0));
    let names = StringViewArray::from_iter_values(customers.iter().map(|customer| &customer.1));
    let scores = Float64Array::from_iter_values(customers.iter().map(|customer| customer.2));
    let customers = [
        ("id", Arc::new(ids) as ArrayRef, true),
        ("name", Arc::new(names) as ArrayRef, true),
        ("score", Arc::new(scores) as ArrayRef, true),
    ];
    Kept::new(vec![
        (
            "orders",
            RecordBatch::try_from_iter_with_nullable(orders).unwrap(),
            vec![0],
        ),
        (
            "customers",
            RecordBatch::try_from_iter_with_nullable(customers).unwrap(),
            vec![0],
        ),
    ])
}

pub fn random_shop(seed: u64, orders: u64) -> Kept {
    let mut seeded = Seeded(seed);
    let orders = (0..orders).map(|id| {
        let customer = seeded.below(12);
        let customer = (customer < 11).then_some(customer as i64);
        (id as i64, customer, seeded.below(100) as i64 - 20)
    });
    let orders = orders.collect::<Vec<_>>();
    let customers = (0..9).map(|id| (id, format!("c{}", id % 4), id as f64 / 2.0));
    shop(&orders, &customers.collect::<Vec<_>>())
}
