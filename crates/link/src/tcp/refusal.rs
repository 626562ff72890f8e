//! What the answers to a greeting mean for the writer that is not accepted.

use crate::tcp::hello::{Answer, Reply, VERSION};

/// Why a writer is not accepted.
pub(super) enum Refusal {
    /// It may be accepted later.
    ForNow(String),
    /// It never will be; and what to do.
    ForGood(String, &'static str),
}

impl Reply {
    /// The refusal of a writer at epoch `ours`, in an answer that does not accept it.
    pub(super) fn meaning(&self, ours: u64, link: u64, window: usize) -> Refusal {
        let theirs = self.epoch;
        match self.answer {
            Answer::UnknownLink => Refusal::ForNow(format!("has no reader for link {link}")),
            Answer::NewerEpoch => {
                Refusal::ForNow(format!("is still at epoch {theirs}, this writer at {ours}"))
            }
            Answer::Version => Refusal::ForGood(
                format!("refused version {VERSION} of the protocol"),
                "run the same version of slackwater on every host",
            ),
            Answer::StaleEpoch => Refusal::ForGood(
                format!("refused epoch {ours} as stale: the deployment is at epoch {theirs}"),
                "nothing to do: this process was replaced",
            ),
            Answer::OtherWriter => Refusal::ForGood(
                format!("has received frames of another writer of link {link}"),
                "give each link one writer, and a restarted writer a new epoch",
            ),
            Answer::Position => Refusal::ForGood(
                "expects a frame that this writer no longer has, or never had".to_owned(),
                "restore the deployment from its last checkpoint",
            ),
            Answer::Ended => Refusal::ForGood(
                format!("has already received the end of link {link}"),
                "give each link one writer",
            ),
            Answer::Window => Refusal::ForGood(format!("refused a window of {window} bytes"), ""),
            // Not refusals; the writer has dealt with them.
            Answer::Accepted | Answer::Left => Refusal::ForNow("has answered".to_owned()),
        }
    }
}
