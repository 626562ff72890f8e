//! What was measured, its table and its goals.

use serde::Serialize;
use slackwater::measure::Spread;

use crate::lab::{Table, Verdict, number};

/// All figures; `None` for a part that was left out.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub create: Option<Create>,
    pub push: Option<Push>,
    pub reads: Option<Reads>,
    pub idle: Option<Idle>,
}

/// From CREATE to the first row.
#[derive(Debug, Serialize)]
pub struct Create {
    pub views: u32,
    /// Until CREATE returns.
    pub created_p50_ms: f64,
    /// Until a SELECT returns a row.
    pub first_row_p50_ms: f64,
    pub first_row_max_ms: f64,
}

/// From a push over HTTP to the row of a SUBSCRIBE.
#[derive(Debug, Serialize)]
pub struct Push {
    pub rows_per_s: f64,
    /// Rows that were counted.
    pub rows: u64,
    pub target_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Until the server has answered the request.
    pub accepted_p99_ms: f64,
    /// CPU time of the server and its job, in percent of a core.
    pub cpu_percent: f64,
}

/// Reads by key while rows come in.
#[derive(Debug, Serialize)]
pub struct Reads {
    pub rows_per_s: f64,
    /// CPU time that reads add, in percent of that without them, round by round.
    pub more_percent: Spread,
    /// Until a read has its row.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub rounds: Vec<ReadsRound>,
}

/// CPU time of the server and its job, in percent of a core.
#[derive(Debug, Serialize)]
pub struct ReadsRound {
    pub without_percent: f64,
    pub with_percent: f64,
    /// Reads that were answered.
    pub reads_per_s: f64,
}

/// Jobs to which nothing comes.
#[derive(Debug, Serialize)]
pub struct Idle {
    pub jobs: u32,
    /// Their processes.
    pub processes: u32,
    /// How long it took to create them.
    pub created_s: f64,
    /// Memory of the server and its jobs; a page that several have counts once.
    pub pss_mb: f64,
    /// The same; a page that several have counts for each of them.
    pub rss_mb: f64,
    pub watched_s: f64,
    /// How often threads of the server and its jobs went to sleep.
    pub wake_ups: u64,
    pub cpu_ms: f64,
}

impl ReadsRound {
    /// CPU time that reads add, in percent of that without them.
    pub fn more_percent(&self) -> f64 {
        (self.with_percent / self.without_percent - 1.0) * 100.0
    }

    /// The round as a line.
    pub fn line(&self) -> String {
        format!(
            "{:.1} % of a core without, {:.1} % with {:.0} reads/s: {:+.1} %",
            self.without_percent,
            self.with_percent,
            self.reads_per_s,
            self.more_percent()
        )
    }
}

impl Figures {
    /// As a table.
    pub fn text(&self) -> String {
        let mut table = Table::new(["part", "what", "figure"]);
        let mut line = |part: &str, what: &str, figure: String| {
            table.line([part.to_string(), what.to_string(), figure]);
        };
        if let Some(create) = &self.create {
            let part = format!("create, {} times", create.views);
            line(&part, "CREATE returns, median", ms(create.created_p50_ms));
            line("", "first row, median", ms(create.first_row_p50_ms));
            line("", "first row, longest", ms(create.first_row_max_ms));
        }
        if let Some(push) = &self.push {
            let part = format!("push, {} rows/s", number(push.rows_per_s));
            line(&part, "HTTP to SUBSCRIBE, median", ms(push.p50_ms));
            line("", "p99", ms(push.p99_ms));
            line("", "longest", ms(push.max_ms));
            line("", "request answered, p99", ms(push.accepted_p99_ms));
            line("", "CPU, % of a core", number(push.cpu_percent));
        }
        if let Some(reads) = &self.reads {
            let part = format!("reads, {} rows/s", number(reads.rows_per_s));
            let Spread { median, min, max } = reads.more_percent;
            line(&part, "more CPU, median", format!("{median:+.1} %"));
            line("", "least and most", format!("{min:+.1} to {max:+.1} %"));
            line("", "read, median", ms(reads.p50_ms));
            line("", "read, p99", ms(reads.p99_ms));
            for round in &reads.rounds {
                line("", "round", round.line());
            }
        }
        if let Some(idle) = &self.idle {
            let part = format!("idle, {} jobs", idle.jobs);
            line(&part, "created in", format!("{:.1} s", idle.created_s));
            line("", "memory (PSS)", format!("{:.0} MB", idle.pss_mb));
            line("", "memory (RSS)", format!("{:.0} MB", idle.rss_mb));
            let time = format!("wake-ups in {:.0} s", idle.watched_s);
            line("", &time, idle.wake_ups.to_string());
            line("", "CPU", ms(idle.cpu_ms));
        }
        table.columns()
    }

    /// The goals.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if let Some(create) = &self.create {
            let goal = "CREATE until the first row, median, ms";
            verdicts.push(Verdict::at_most(goal, Some(create.first_row_p50_ms), 150.0));
        }
        if let Some(push) = &self.push {
            let goal = "push over HTTP until SUBSCRIBE has the row, p99, ms";
            verdicts.push(Verdict::at_most(goal, Some(push.p99_ms), push.target_ms));
        }
        if let Some(reads) = &self.reads {
            let goal = "CPU time that reads by key add, median, %";
            verdicts.push(Verdict::at_most(
                goal,
                Some(reads.more_percent.median),
                20.0,
            ));
        }
        if let Some(idle) = &self.idle {
            // 10 GB for 200 jobs.
            let limit = f64::from(idle.jobs) * 50.0;
            verdicts.push(Verdict::at_most(
                "memory of idle jobs, MB",
                Some(idle.pss_mb),
                limit,
            ));
            let goal = "wake-ups of idle jobs";
            verdicts.push(Verdict::at_most(goal, Some(idle.wake_ups as f64), 0.0));
        }
        verdicts
    }
}

/// Milliseconds, with three digits.
fn ms(ms: f64) -> String {
    format!("{} ms", number(ms))
}
