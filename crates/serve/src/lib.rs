//! The front doors of a running query and of the server: HTTP, metrics, the page, and the protocols of
//! PostgreSQL and Redis.
//!
//! Nothing here runs a query or reads SQL: what a door needs it asks of the program that opens it.

pub mod api;
pub mod backend;
pub mod client;
pub mod http;
mod lock;
pub mod page;
pub mod postgres;
pub mod prometheus;
pub mod redis;
