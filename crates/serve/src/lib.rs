//! The front doors of a running query: HTTP, metrics, and the page.
//!
//! Nothing here runs a query or reads SQL: what a door needs it asks of the program that opens it.

pub mod http;
pub mod page;
pub mod prometheus;
