//! A power manager for replicated servers: whoever only follows needs no fast core, and need not be woken for
//! each write.
//!
//! ```text
//!  servers ──RESP──► head ──requests──► hand ──► cpufreq, affinity, low-water marks
//!                     │ ▲                │
//!     slackwater_control::power     the journal: what was found
//! ```
//!
//! Two processes of one program ([`run`]). The *hand* has the permissions and changes things; before each
//! change the [`journal`] says what was found. The *head* has the network and no permissions; it finds
//! servers, asks them, and decides by the pure rules of `slackwater_control::power`. Each undoes the other's
//! death.
//!
//! Shutdown: whoever ends first, everything is as it was found when both are gone; if both are killed at
//! once, after `slackwater-power restore` or the next start.

pub mod error;
pub mod units;

pub mod system;

pub mod cores;
pub mod journal;
pub mod message;
pub mod process;
pub mod value;

pub mod undo;

pub mod client;
pub mod config;
pub mod facts;
pub mod resp;
pub mod seed;

pub mod hand;
pub mod status;

pub mod head;

pub mod host;
pub mod unit;
pub mod user;

pub mod run;

pub mod ask;

pub mod cli;
