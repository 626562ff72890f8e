//! All figures, as they are stored and printed.

use serde::Serialize;

use super::server::Kind;
use super::{batch, cost, effect, manager, mixes, reads};

/// The figures of the parts that were run; those of the others are empty.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The servers.
    pub servers: Vec<Kind>,
    /// By what servers were slow.
    pub slow: String,
    /// Rounds.
    pub rounds: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Writes per second of the replicas of `cost`.
    pub cost_rate_per_s: f64,
    /// What was not measured, and why.
    pub notes: Vec<String>,
    /// Medians of the part batch.
    pub batch: Vec<batch::Summary>,
    /// All points of the part batch.
    pub batch_points: Vec<batch::Point>,
    /// A saturated master with and without a beat.
    pub effect: Vec<effect::Point>,
    /// The power manager beside real servers.
    pub manager: Vec<manager::Point>,
    /// All points of the part cost.
    pub cost: Vec<cost::Point>,
    /// Medians of memtier and YCSB.
    pub mixes: Vec<mixes::Summary>,
    /// All runs of memtier and YCSB.
    pub mix_points: Vec<mixes::Point>,
    /// Whether the energy of them is printed,
    pub is_energy: bool,
    /// and their throughput.
    pub is_throughput: bool,
    /// Medians of the part lag at full speed,
    pub lag: Vec<batch::Summary>,
    /// and with a slow replica.
    pub lag_slow: Vec<batch::Summary>,
    /// All points of the part lag.
    pub lag_points: Vec<batch::Point>,
    /// All points of the part reads.
    pub reads: Vec<reads::Point>,
}

impl Figures {
    /// The figures as text.
    pub fn text(&self) -> String {
        let servers = self
            .servers
            .iter()
            .map(|kind| format!("{} {}", kind.name, kind.version));
        let servers = servers.collect::<Vec<String>>().join(", ");
        let mut text = format!(
            "{servers}; {} round(s), medians; slow: {}\n",
            self.rounds, self.slow
        );
        for note in &self.notes {
            text.push_str(&format!("not measured: {note}\n"));
        }
        let mut part = |is_there: bool, write: &dyn Fn() -> String| {
            if is_there {
                text.push('\n');
                text.push_str(&write());
            }
        };
        let value_bytes = self.value_bytes;
        part(!self.batch.is_empty(), &|| {
            batch::text(&self.batch, value_bytes)
        });
        part(!self.effect.is_empty(), &|| effect::text(&self.effect));
        part(!self.manager.is_empty(), &|| manager::text(&self.manager));
        part(!self.cost.is_empty(), &|| {
            cost::text(&self.cost, self.cost_rate_per_s)
        });
        part(self.is_throughput, &|| mixes::throughput_text(&self.mixes));
        part(self.is_energy, &|| mixes::energy_text(&self.mixes));
        let lag = |title: &str, summaries: &[batch::Summary]| {
            format!(
                "Allowed lags, replica {title}\n{}",
                batch::text(summaries, value_bytes)
            )
        };
        part(!self.lag.is_empty(), &|| lag("at full speed", &self.lag));
        part(!self.lag_slow.is_empty(), &|| lag("slow", &self.lag_slow));
        part(!self.reads.is_empty(), &|| reads::text(&self.reads));
        text
    }
}
