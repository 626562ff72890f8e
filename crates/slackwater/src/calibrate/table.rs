//! The calibration figures as a text table.

use super::Calibration;
use crate::report::count;

/// The table of all figures; `kept` says where they are saved.
pub fn table(calibration: &Calibration, kept: &str) -> String {
    let mut text = format!(
        "slackwater {} on {}\n{}; {kept}\none reading of the clock: {:.0} ns\n",
        calibration.version,
        calibration.host.describe(),
        calibration.date,
        calibration.clock_ns,
    );
    text.push_str(
        "\nwake-up             count   CPU us: waking  woken    both    until awake us: p50     \
                   p99\n",
    );
    for wake in &calibration.wakes {
        let place = match wake.across_cores {
            true => "across cores",
            false => "on one core",
        };
        text.push_str(&format!(
            "{place:<17} {:>7} {:>16.1} {:>6.1} {:>7.1} {:>23.1} {:>7.1}\n",
            wake.count,
            wake.ringing_cpu_ns / 1e3,
            wake.woken_cpu_ns / 1e3,
            (wake.ringing_cpu_ns + wake.woken_cpu_ns) / 1e3,
            wake.until_look_p50_ns / 1e3,
            wake.until_look_p99_ns / 1e3,
        ));
    }
    text.push_str("\nrequested sleep     count      CPU us          overslept us: p50     p99\n");
    for sleep in &calibration.sleeps {
        text.push_str(&format!(
            "{:<17} {:>7} {:>11.1} {:>27.1} {:>7.1}\n",
            format!("{} us", count(sleep.asked_us)),
            sleep.count,
            sleep.cpu_ns / 1e3,
            sleep.oversleep_p50_ns / 1e3,
            sleep.oversleep_p99_ns / 1e3,
        ));
    }
    if !calibration.activations.is_empty() {
        text.push_str("\nactivation of a query, after idle  count   CPU us: woken   slept\n");
    }
    for activated in &calibration.activations {
        text.push_str(&format!(
            "{:<32} {:>7} {:>15.1} {:>7.1}\n",
            format!("{} us", count(activated.idle_us)),
            activated.count,
            activated.woken_cpu_ns / 1e3,
            activated.slept_cpu_ns / 1e3,
        ));
    }
    if let Some(more) = calibration.more {
        text.push_str(&format!(
            "each further arrival in an activation: {:.0} ns of CPU time; each further record: {:.0} ns\n",
            more.arrival_cpu_ns, more.record_cpu_ns
        ));
    }
    text.push_str("\nlink (polling)     bytes  one way us: p50     p99   messages/s     GB/s\n");
    for link in &calibration.links {
        text.push_str(&format!(
            "{:<14} {:>9} {:>16.2} {:>7.2} {:>12} {:>8.3}\n",
            link.kind.name(),
            count(link.size_bytes as u64),
            link.latency_p50_ns / 1e3,
            link.latency_p99_ns / 1e3,
            count(link.messages_per_s as u64),
            link.gb_per_s,
        ));
    }
    let costs = calibration.costs;
    let used = match kept.starts_with("not saved") {
        true => "would use these if they were saved",
        false => "use these",
    };
    text.push_str(&format!(
        "\nA wake-up costs {:.1} us of CPU time and a sleep of 1 ms {:.1} us: queries whose workers \
         choose how to\nwait (SET 'wait' = 'auto') {used}.\n",
        costs.wake_ns as f64 / 1e3,
        costs.sleep_ns as f64 / 1e3,
    ));
    text
}
