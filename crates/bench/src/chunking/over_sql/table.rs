//! The figures as tables.

use super::{COMPLETE_TILES, Figures, Load, QueryWay, Summary, TARGET};
use crate::lab::{Table, bytes, number};

/// The figures as text.
pub fn text(figures: &Figures) -> String {
    let mut text = format!(
        "{} round(s) of {} s a point, medians; in {} of {} points other processes held a core that a \
         worker needed for more than 1 % of the time\n\nAs many complete updates (16 MiB) as possible, per \
         second, by size of block\n\n",
        figures.rounds,
        figures.seconds,
        figures.disturbed,
        figures.points.len()
    );
    let mut table = Table::new(["blocks of", "TCP", "shared memory"]);
    for sweep in &figures.sweep {
        let updates = |tiles_per_s: f64| number(tiles_per_s / COMPLETE_TILES);
        table.line([
            bytes(sweep.block_bytes),
            updates(sweep.tcp_tiles_per_s),
            updates(sweep.shm_tiles_per_s),
        ]);
    }
    text += &table.markdown();
    let block = bytes(figures.block_bytes);
    text += &format!(
        "\nTCP's best block is {block}. The planned way has a target of {TARGET} for partial updates.\n\n\
         Latency of partial updates (p50, p99) under a guaranteed rate of complete ones; CPU time of both \
         processes; mean message. ! rate not kept\n\n"
    );
    text += &ways(figures, false, "rate of complete updates", |load| {
        let updates = number(load.tiles_per_s / COMPLETE_TILES);
        format!(
            "{updates}/s ({:.2})",
            load.tiles_per_s / figures.tiles_per_s
        )
    });
    text += "\nMixed queries, by share of complete updates: p50 and p99 of partial ones; CPU time; mean \
             message\n\n";
    text += &ways(figures, true, "complete", |load| {
        format!("{}", load.mixed.unwrap_or_default())
    });
    text
}

fn ways(figures: &Figures, mixed: bool, first: &str, name: impl Fn(Load) -> String) -> String {
    let block = bytes(figures.block_bytes);
    let head = [
        first.to_string(),
        format!("TCP, {block}"),
        format!("shared memory, {block}"),
        "shared memory, planned".to_string(),
    ];
    let mut table = Table::new(head);
    for load in figures.loads(mixed) {
        let cells = QueryWay::ALL.map(|way| cell(figures.summary(way, load)));
        table.line([name(load)].into_iter().chain(cells));
    }
    table.markdown()
}

fn cell(summary: Option<Summary>) -> String {
    let Some(summary) = summary else {
        return String::new();
    };
    let (p50_ms, p99_ms) = summary.partial_ms;
    let kept = if summary.is_kept { "" } else { " !" };
    format!(
        "{} ms, {} ms; {:.0} %; {}{kept}",
        number(p50_ms),
        number(p99_ms),
        summary.cpu_percent,
        bytes(summary.message_bytes_mean as usize)
    )
}
