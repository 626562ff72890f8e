//! From CREATE to the first row.

use std::time::{Duration, Instant};

use super::Plan;
use super::figures::Create;
use super::server::{PATIENCE, Server, quantile, refused};

const TABLE: &str = "CREATE TABLE visits (ts_ms BIGINT, ip STRING, \
    ts AS TO_TIMESTAMP_LTZ(ts_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) \
    WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '1000/s')";

/// Creates views, one after the other.
pub fn measure(plan: &Plan) -> Result<Create, String> {
    let server = Server::start(&plan.folder, "create")?;
    server.run(&[TABLE])?;
    let mut client = server.client()?;
    let (mut created_ms, mut first_row_ms) = (Vec::new(), Vec::new());
    for number in 0..plan.creations {
        let view = format!("v{number}");
        let create = format!(
            "CREATE MATERIALIZED VIEW {view} AS SELECT ip, COUNT(*) AS n FROM visits GROUP BY ip"
        );
        let read = format!("SELECT ip FROM {view} LIMIT 1");
        let begun = Instant::now();
        let ran = client.batch_execute(&create);
        ran.map_err(|error| refused(&create, &error))?;
        created_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        loop {
            let rows = client.query(&read, &[]);
            if !rows.map_err(|error| refused(&read, &error))?.is_empty() {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{view} has no rows after {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        first_row_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        let drop = format!("DROP MATERIALIZED VIEW {view}");
        let dropped = client.batch_execute(&drop);
        dropped.map_err(|error| refused(&drop, &error))?;
    }
    Ok(Create {
        views: plan.creations,
        created_p50_ms: quantile(&mut created_ms, 0.5),
        first_row_p50_ms: quantile(&mut first_row_ms, 0.5),
        first_row_max_ms: quantile(&mut first_row_ms, 1.0),
    })
}
