//! Recovery, before a query runs: fences earlier incarnations, and asks what they have committed.
//!
//! A checkpoint names the transactions to commit once it is stored. They were lost with their process unless
//! they were committed; the [marker](super::marker) says which one was committed last. All transactions up to
//! that one are committed, and none after it, since they are committed in order.

use std::time::Instant;

use rdkafka::producer::Producer as _;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::sink::Recovered;

use super::marker::Marker;
use super::token::Token;
use super::transactions::{PRODUCERS_MAX, Transactions, commit};
use crate::kafka::client::Producer;

/// Starts a query from nothing: whatever an earlier one has committed does not matter.
pub(super) fn begin(transactions: &Transactions) -> Result<()> {
    let producers = transactions.fence(0..PRODUCERS_MAX)?;
    let marker = read(transactions)?;
    mark_none(transactions, &producers[0], &marker)
}

/// Resumes a query from a checkpoint whose newest transaction is `newest`.
pub(super) fn recover(
    transactions: &Transactions,
    newest: Option<Token>,
    exactly_once: bool,
) -> Result<Recovered> {
    if newest.is_none() && !exactly_once {
        return Ok(Recovered::Committed);
    }
    let producers = transactions.fence(0..PRODUCERS_MAX)?;
    let marker = read(transactions)?;
    match (newest, marker.last) {
        (None, None) => {
            mark_none(transactions, &producers[0], &marker)?;
            Ok(Recovered::Committed)
        }
        (None, Some(_)) => Ok(Recovered::Committed),
        (Some(newest), Some(last)) => {
            judge(newest, last, exactly_once).map_err(|error| error.at(&transactions.place()))
        }
        // Duplicate rows are allowed, missing rows are not.
        (Some(_), None) if !exactly_once => Ok(Recovered::Lost),
        (Some(newest), None) => {
            let reason =
                format!("it is no longer known whether transaction {newest} was committed");
            let hint = "brokers forget it with the topic, and offsets.retention.minutes after the \
                        last commit; or 'topic' or 'transactional.id.prefix' is another one now. \
                        With 'at_least_once' the query goes back to a checkpoint without \
                        transactions; or start over";
            Err(Error::new(transactions.place(), reason).hint(hint))
        }
    }
}

fn judge(newest: Token, last: Token, exactly_once: bool) -> Result<Recovered> {
    if last < newest {
        return Ok(Recovered::Lost);
    }
    if last == newest || !exactly_once {
        return Ok(Recovered::Committed);
    }
    let reason = format!(
        "the checkpoint ends with transaction {newest}, and {last} was committed: its rows would be \
         written again"
    );
    let hint = "resume from the newest checkpoint; or with 'delivery' = 'at_least_once'";
    Err(Error::new("", reason).hint(hint))
}

fn read(transactions: &Transactions) -> Result<Marker> {
    Marker::read(
        &transactions.cluster,
        &transactions.presence,
        &transactions.prefix,
    )
}

/// Records that nothing is committed yet: otherwise a missing marker could be one that brokers have
/// discarded.
fn mark_none(transactions: &Transactions, producer: &Producer, marker: &Marker) -> Result<()> {
    let until = Instant::now() + transactions.cluster.transaction_timeout();
    let ends = || Instant::now() > until;
    let topic = &transactions.cluster.topics[0];
    let done = producer
        .begin_transaction()
        .and_then(|()| commit(producer, Token::NONE, topic, &marker.group, ends));
    done.map_err(|error| {
        let reason = format!("can't note that nothing is committed yet: {error}");
        Error::new(transactions.place(), reason)
            .hint("let this user read and write the group and the topic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_decides() {
        let token = |epoch, number| Token { epoch, number };
        let judge_once = |newest, last| judge(newest, last, true);
        assert_eq!(
            judge_once(token(3, 2), token(3, 2)),
            Ok(Recovered::Committed)
        );
        assert_eq!(judge_once(token(3, 2), token(3, 1)), Ok(Recovered::Lost));
        assert_eq!(judge_once(token(3, 2), token(1, 9)), Ok(Recovered::Lost));
        assert_eq!(judge_once(token(3, 2), Token::NONE), Ok(Recovered::Lost));
        for later in [token(3, 3), token(4, 1)] {
            let error = judge_once(token(3, 2), later).unwrap_err().to_string();
            assert!(error.contains("would be written again"), "{error}");
            let twice = judge(token(3, 2), later, false);
            assert_eq!(twice, Ok(Recovered::Committed));
        }
    }
}
