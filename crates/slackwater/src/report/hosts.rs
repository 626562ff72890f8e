//! The hosts of a query, and what was refused.

use serde::{Deserialize, Serialize};

use super::{Report, SinkReport, count};

/// A host.
#[derive(Debug, Clone, Serialize)]
pub struct HostReport {
    /// The host's name.
    pub name: String,
    /// The address at which its processes listened for links.
    pub address: String,
    /// The numbers of its processes.
    pub processes: Vec<usize>,
    /// How far the clock of the host where the query was started is ahead of its clock.
    pub clock_offset_ms: f64,
    /// The truth is at most so far from it.
    pub clock_error_ms: f64,
    /// Bytes of the session to its agent that were sent, before encryption; 0 for the host of the query.
    pub control_bytes_sent: u64,
    /// Bytes of that session that were received.
    pub control_bytes_received: u64,
}

/// What earlier incarnations of a query were not allowed to do, as far as it was noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedReport {
    /// Connections of their processes to links.
    pub links: u64,
    /// Messages of their agents.
    pub messages: u64,
}

/// Connections of strangers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedReport {
    /// To the address where agents join.
    pub sessions: u64,
    /// To the addresses where processes listen for links.
    pub links: u64,
}

impl Report {
    /// Adds the hosts of the query. `errors_ms` says by how much latencies may be wrong, for each sink in
    /// their order: a target is met only if it would be with that added.
    pub fn add_hosts(
        &mut self,
        hosts: Vec<HostReport>,
        errors_ms: &[f64],
        fenced: FencedReport,
        refused: RefusedReport,
    ) {
        judge(&mut self.sinks, errors_ms);
        let met = self.sinks.iter().filter_map(|sink| sink.target_met);
        self.target_met = met.reduce(|all, one| all && one);
        self.hosts = hosts;
        self.fenced = Some(fenced);
        self.refused = Some(refused);
        self.latency_error_ms = errors_ms.iter().copied().reduce(f64::max);
    }

    /// The line of the summary about hosts, if there are several.
    pub(super) fn hosts_line(&self) -> Option<String> {
        let error_ms = self.latency_error_ms?;
        let used = self.hosts.iter().filter(|host| !host.processes.is_empty());
        let used = used.map(|host| match host.processes.len() {
            1 => host.name.clone(),
            processes => format!("{} ({processes} processes)", host.name),
        });
        let used = used.collect::<Vec<String>>().join(", ");
        let mut line = format!("{used}; latencies known to within {error_ms:.2} ms");
        let fenced = self
            .fenced
            .map_or(0, |fenced| fenced.links + fenced.messages);
        if fenced > 0 {
            line += &format!("; {} times fenced off", count(fenced));
        }
        let refused = self.refused;
        let refused = refused.map_or(0, |refused| refused.sessions + refused.links);
        if refused > 0 {
            let strangers = if refused == 1 {
                "stranger"
            } else {
                "strangers"
            };
            line += &format!("; {} {strangers} turned away", count(refused));
        }
        Some(line)
    }
}

/// Takes back that a target was met if it may have been missed.
fn judge(sinks: &mut [SinkReport], errors_ms: &[f64]) {
    for (sink, error_ms) in sinks.iter_mut().zip(errors_ms) {
        if let (Some(target_ms), Some(p99)) = (sink.latency_target_ms, sink.latency_ms.p99)
            && p99 + error_ms > target_ms
        {
            sink.target_met = sink.target_met.map(|_| false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latency;

    #[test]
    fn a_target_is_met_only_with_the_error_of_the_clocks() {
        let met = |error: f64, was_met| {
            let mut sinks = [SinkReport {
                table: None,
                connector: "print".to_string(),
                rows_out: 5,
                connections_lost: 0,
                latency_target_ms: Some(20.0),
                latency_target_changes: 0,
                target_met: was_met,
                active_s: Some(1.0),
                violated_s: Some(0.0),
                latency_ms: Latency {
                    p50: Some(1.0),
                    p99: Some(19.0),
                    p999: Some(19.0),
                    max: Some(19.0),
                    count: 5,
                },
            }];
            judge(&mut sinks, &[error]);
            sinks[0].target_met
        };
        assert_eq!(met(0.75, Some(true)), Some(true));
        assert_eq!(met(1.05, Some(true)), Some(false));
        // It had no rows, or was changed.
        assert_eq!(met(1.05, None), None);
    }
}
