//! Code that the mqtt source and sink share: a client of MQTT 5 and 3.1.1.
//!
//! ```text
//! settings       options
//! packet         bytes and what they mean
//! session        what is done with a packet: subscriber (source), publisher (sink)
//! refusals       what a broker's reasons to refuse something mean
//! connection     a thread with a socket, which reconnects to the broker
//! ```
//!
//! The client is our own (docs/decisions/0014-own-mqtt-client.md): a dozen kinds of packets, whose
//! acknowledgements must wait for checkpoints. Its thread sleeps in the kernel until the broker or the
//! worker has something to say; the worker never waits for it. Both sides' queues are bounded.

pub(crate) mod connection;
pub(crate) mod packet;
pub(crate) mod publisher;
pub(crate) mod refusals;
pub(crate) mod settings;
pub(crate) mod subscriber;

#[cfg(test)]
mod broker_tests;
#[cfg(test)]
mod options_tests;
#[cfg(test)]
mod tests;
