//! Both processes over a tree of files, with servers of its own and with real ones where there are any.
//!
//! No test asserts a time: what has to happen is waited for, as long as a busy machine may take.

mod bad;
mod crash;
mod failover;
mod fake;
mod life;
mod manager;
mod measure;
mod redis;
mod tree;
