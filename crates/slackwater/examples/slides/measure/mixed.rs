//! Queries that follow each other, of which a share are complete updates and the others need one of 1, 8 or
//! 64 parts of the picture.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::drive::Drive;
use super::{HEIGHT, Lab, WIDTH, Way};
use crate::hub::Kind;

/// How many parts the picture has: columns and rows.
const PARTS: [(i64, i64); 3] = [(1, 1), (4, 2), (8, 8)];

/// The shares of complete updates.
const SHARES: [f64; 5] = [0.0, 0.3, 0.6, 0.9, 1.0];

/// How long a query may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the three ways.
pub fn run(lab: &mut Lab, ways: [Way; 3]) -> Result<(), String> {
    let time = Duration::from_secs_f64(lab.seconds);
    let names = ways.map(Way::name);
    lab.say("\nMixed queries: mean response time, by parts of the picture and share of complete updates\n");
    lab.say(&format!(
        "| parts | complete | {} |\n|---|---|---|---|---|",
        names.join(" | ")
    ));
    let mut drives = Vec::new();
    for way in ways {
        drives.push(Drive::start(lab, way, "", "")?);
    }
    let mut rows = Vec::new();
    for (columns, lines) in PARTS {
        for share in SHARES {
            let mut cells = Vec::new();
            for (name, drive) in names.iter().zip(&mut drives) {
                let mean = point(drive, (columns, lines), share, time)?;
                cells.push(format!("{mean:.1} ms"));
                rows.push(
                    json!({"parts": columns * lines, "share": share, "way": name, "mean_ms": mean}),
                );
            }
            lab.say(&format!(
                "| {} | {share} | {} |",
                columns * lines,
                cells.join(" | ")
            ));
        }
    }
    lab.json.insert(
        "mixed".to_string(),
        rows.into_iter().collect::<Vec<Value>>().into(),
    );
    Ok(())
}

/// The mean response time in milliseconds.
fn point(
    drive: &mut Drive,
    (columns, lines): (i64, i64),
    share: f64,
    time: Duration,
) -> Result<f64, String> {
    let until = Instant::now() + time;
    let (width, height) = (WIDTH as i64 / columns, HEIGHT as i64 / lines);
    let mut all = Vec::new();
    // In turn rather than at random, so that all ways get the same mix; ten queries at least.
    let mut owed = 0.0;
    while Instant::now() < until || all.len() < 10 {
        owed += share;
        let asked = if owed >= 1.0 {
            owed -= 1.0;
            drive.complete()?
        } else {
            let (column, line) = (
                drive.random() * columns as f64,
                drive.random() * lines as f64,
            );
            drive.ask(
                Kind::Partial,
                [column as i64 * width, line as i64 * height, width, height],
            )?
        };
        all.push(asked.wait(PATIENCE)?.ok_or("an update does not come")?);
    }
    Ok(all.iter().sum::<f64>() / all.len() as f64)
}
