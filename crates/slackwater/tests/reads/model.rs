//! Random reads of one view, and what they return, computed naively.

use std::collections::BTreeMap;

use crate::support::Seeded;

/// A row of the view.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    pub id: i64,
    pub customer: Option<i64>,
    pub price: i64,
}

/// A read: rows that are filtered, perhaps grouped, sorted and cut off.
#[derive(Debug)]
pub struct Asked {
    price_min: i64,
    customer: Option<i64>,
    is_grouped: bool,
    is_descending: bool,
    limit: Option<usize>,
    offset: usize,
}

impl Asked {
    pub fn random(seeded: &mut Seeded) -> Asked {
        let mut maybe = |bound: u64| {
            let number = seeded.below(2 * bound);
            (number < bound).then_some(number)
        };
        Asked {
            price_min: maybe(100).map_or(-100, |price| price as i64 - 20),
            customer: maybe(11).map(|customer| customer as i64),
            is_grouped: maybe(1).is_some(),
            is_descending: maybe(1).is_some(),
            limit: maybe(300).map(|limit| limit as usize),
            offset: maybe(50).unwrap_or(0) as usize,
        }
    }

    /// The read in SQL.
    pub fn text(&self) -> String {
        let mut text = match self.is_grouped {
            true => {
                "SELECT customer, COUNT(*) AS n, SUM(price) AS total, MAX(id) AS last FROM orders"
            }
            false => "SELECT id, customer, price * 2 AS twice FROM orders",
        }
        .to_string();
        text += &format!(" WHERE price >= {}", self.price_min);
        if let Some(customer) = self.customer {
            text += &format!(" AND customer <> {customer}");
        }
        let direction = match self.is_descending {
            true => "DESC NULLS LAST",
            false => "ASC NULLS FIRST",
        };
        text += &match self.is_grouped {
            true => format!(" GROUP BY customer ORDER BY customer {direction}"),
            false => format!(" ORDER BY customer {direction}, id"),
        };
        if let Some(limit) = self.limit {
            text += &format!(" LIMIT {limit}");
        }
        if self.offset > 0 {
            text += &format!(" OFFSET {}", self.offset);
        }
        text
    }

    /// What it returns.
    pub fn answer(&self, orders: &[Order]) -> Vec<String> {
        let is_wanted = |order: &&Order| {
            let differs = |other: i64| order.customer.is_some_and(|customer| customer != other);
            order.price >= self.price_min && self.customer.is_none_or(differs)
        };
        // NULL is less than any number.
        let mut by_customer = BTreeMap::<Option<i64>, Vec<Order>>::new();
        for order in orders.iter().filter(is_wanted) {
            by_customer.entry(order.customer).or_default().push(*order);
        }
        let mut groups = by_customer.into_iter().collect::<Vec<_>>();
        if self.is_descending {
            groups.reverse();
        }
        let mut rows = Vec::new();
        for (customer, mut orders) in groups {
            orders.sort_by_key(|order| order.id);
            let customer = customer.map_or("NULL".to_string(), |customer| customer.to_string());
            if self.is_grouped {
                let total = orders.iter().map(|order| order.price).sum::<i64>();
                let last = orders[orders.len() - 1].id;
                rows.push(format!("{customer}|{}|{total}|{last}", orders.len()));
                continue;
            }
            let rows_of = orders.iter();
            rows.extend(
                rows_of.map(|order| format!("{}|{customer}|{}", order.id, order.price * 2)),
            );
        }
        let rows = rows.into_iter().skip(self.offset);
        rows.take(self.limit.unwrap_or(usize::MAX)).collect()
    }
}
