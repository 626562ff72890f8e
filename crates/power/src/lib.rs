//! A power manager for replicated servers: whoever only follows needs no fast core.
pub mod error;
pub mod units;

pub mod system;

pub mod message;
pub mod process;

pub mod cores;
pub mod journal;
pub mod value;

pub mod undo;

pub mod client;
pub mod config;
pub mod facts;
pub mod resp;
pub mod seed;

pub mod hand;
