//! `slackwater checkpoints`: lists the checkpoints of a store.

use std::fmt::Write;
use std::path::Path;

use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
use slackwater_checkpoint::manifest::{Manifest, NodeKind};
use slackwater_checkpoint::{Runner, Store};

use crate::report::count;

/// A table of the checkpoints at `place`, oldest first.
///
/// # Errors
///
/// If there are no checkpoints or they can't be read.
pub fn list(place: &str) -> Result<String, String> {
    // Opening a store would create the directory.
    if !place.contains("://") && !Path::new(place).is_dir() {
        return Err(format!("{place}: there is no such directory"));
    }
    let runner = Runner::new().map_err(|error| error.to_string())?;
    let store = Store::open(place).map_err(|error| error.to_string())?;
    let kept = runner
        .run(store.kept())
        .map_err(|error| error.to_string())?;
    if kept.is_empty() {
        return Err(format!(
            "{place}: there are no checkpoints (a query that runs with --state saves them)"
        ));
    }
    let mut text = String::from("checkpoint  taken (UTC)          run      state  what was read\n");
    for (number, manifest) in kept {
        match manifest {
            Ok(manifest) => line(&manifest, &mut text),
            Err(error) => {
                let _ = writeln!(text, "{number:>10}  can't be used: {error}");
            }
        }
    }
    Ok(text)
}

fn line(manifest: &Manifest, text: &mut String) {
    let taken = i64::try_from(manifest.time_ms)
        .ok()
        .and_then(timestamp_ms_to_datetime);
    let taken = taken.map(|time| time.format("%Y-%m-%d %H:%M:%S").to_string());
    let sources = manifest.nodes.iter();
    let sources = sources.filter(|node| node.identity.kind == NodeKind::Source);
    let read = sources.map(|node| {
        let partitions = node.partitions.iter();
        let ended = partitions
            .clone()
            .filter(|partition| partition.ended)
            .count();
        let name = node.identity.key.trim_start_matches("source ");
        match &node.partitions[..] {
            [only] => format!("{name} resumes at {}", count(only.position)),
            all => format!(
                "{name}: {} partitions, {ended} of them read to the end",
                all.len()
            ),
        }
    });
    let mut read = read.collect::<Vec<String>>().join("; ");
    if manifest.finished {
        read.push_str("; the query has finished");
    }
    let _ = writeln!(
        text,
        "{:>10}  {:<19}  {:>4}  {:>7.1} KB  {read}",
        manifest.number,
        taken.unwrap_or_default(),
        manifest.epoch,
        manifest.bytes() as f64 / 1e3,
    );
}
