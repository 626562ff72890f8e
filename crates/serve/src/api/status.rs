//! Whether the server is ready, and its metrics.

use crate::backend::Status;
use crate::http::{Answer, Asked, Reply, StatusCode};
use crate::prometheus::{CONTENT_TYPE, Kind, Page, merge};

use super::Api;
use super::query::Query;

/// Ready: no job starts any longer.
pub(super) fn ready(api: &Api, _: Asked, reply: Reply) {
    let jobs = api.backend.jobs();
    let starting = jobs.iter().filter(|job| job.status == Status::Starting);
    let answer = match starting.count() {
        0 => Answer::text(StatusCode::OK, "ready\n"),
        // Anybody may ask, so the jobs are not named.
        count => {
            let text = format!("starting: {count} of {} jobs\n", jobs.len());
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    };
    reply.send(answer.closing());
}

/// The metrics of all jobs.
pub(super) fn metrics(api: &Api, asked: Asked, reply: Reply) {
    let partitions = Query::of(asked.query.as_deref())
        .and_then(|mut query| query.switch("partitions"))
        .unwrap_or(false);
    let mut page = Page::default();
    let jobs = api.backend.jobs();
    let mut family = page.family(
        "slackwater_job_status",
        Kind::Gauge,
        "What the job does; the value is 1.",
    );
    for job in &jobs {
        let status = match job.status {
            Status::Starting => "starting",
            Status::Running => "running",
            Status::Stopped => "stopped",
            Status::Finished => "finished",
            Status::Failed { .. } => "failed",
        };
        family.sample(&[("pipeline", &job.name), ("status", status)], 1.0);
    }
    let mut family = page.family(
        "slackwater_job_starts_total",
        Kind::Counter,
        "How often the job was started.",
    );
    for job in &jobs {
        family.sample(&[("pipeline", &job.name)], job.starts as f64);
    }
    let pages = (api.pages)(partitions);
    let own = page.into_text();
    let all = [own.as_str()].into_iter();
    let text = merge(all.chain(pages.iter().map(String::as_str)));
    reply.send(Answer::new(StatusCode::OK, CONTENT_TYPE, text).closing());
}
