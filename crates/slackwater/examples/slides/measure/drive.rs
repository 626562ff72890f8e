//! A query that is measured, and the clients that ask it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::super::hub::{Hub, Kind, Request, Update};
use super::super::query::{self, Query};
use super::{HEIGHT, Lab, WIDTH, Way};

/// How long the query may take to start and to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The fewest complete updates that a rate is computed from.
const LEAST: usize = 4;

/// The pixels of a partial update: 2 KiB, as P4's, of one block or up to four.
const PART: i64 = 26;

/// The query: that of `slides.sql` without the pixels in the result, and one row for each update.
const TEXT: &str = "
SET 'order' = 'none'; SET 'linger' = '0 ms'; SET 'rebalance' = 'off'; SET 'message_bytes' = 'none';
SET 'parallelism' = '2'; SET 'workers' = '2'; SET 'processes' = '2'; SET 'link' = '${LINK}'; ${SETTINGS}
CREATE TABLE complete (viewer STRING, request BIGINT, level INT, x INT, y INT, width INT, height INT,
  blocks INT)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:7491', 'format' = 'json');
CREATE TABLE partial (viewer STRING, request BIGINT, level INT, x INT, y INT, width INT, height INT,
  blocks INT)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:7492', 'format' = 'json');
CREATE TABLE updates (viewer STRING, request BIGINT, block INT, blocks INT, made BIGINT, error STRING)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:7493', 'format' = 'json');
CREATE VIEW timed AS SELECT *, CAST(CURRENT_TIMESTAMP AS BIGINT) AS made FROM complete;
CREATE VIEW timed_parts AS SELECT *, CAST(CURRENT_TIMESTAMP AS BIGINT) AS made FROM partial;
CREATE VIEW blocks AS SELECT * FROM clip(TABLE timed, 'slide.tif') UNION ALL
SELECT * FROM clip(TABLE timed_parts, 'slide.tif');
CREATE VIEW pixels AS SELECT * FROM tiles(TABLE blocks, 'slide.tif');
CREATE VIEW halved AS SELECT * FROM subsample(TABLE pixels${WORK});
INSERT INTO updates SELECT viewer, request, 0 AS block, 1 AS blocks, made, error
FROM view(TABLE halved PARTITION BY (viewer, request, made)) WHERE done = blocks;";

/// A query that runs.
pub struct Drive {
    pub hub: Arc<Hub>,
    pub query: Query,
    next: i64,
    seed: u64,
}

/// A request that was asked, and when.
pub struct Asked {
    pub due: Instant,
    pub row: Receiver<Update>,
}

/// What a load brought about.
pub struct Loaded {
    /// The complete updates per second.
    pub rate: f64,
    /// Whether those that were due came.
    pub is_kept: bool,
    /// How long partial ones took, in milliseconds.
    pub partial_ms: Vec<f64>,
}

impl Drive {
    /// Starts the query, and waits until it answers. `work` are further arguments of `subsample`.
    pub fn start(lab: &Lab, way: Way, settings: &str, work: &str) -> Result<Drive, String> {
        let text = TEXT
            .replace("${LINK}", way.link)
            .replace("${SETTINGS}", settings)
            .replace("${WORK}", work);
        let file = lab.folder.path().join("measured.sql");
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        let hub = Hub::listen(0)?;
        let slide = lab.slide(way.side);
        let text = query::text(Some(Path::new(&file)), &slide.display().to_string(), &hub)?;
        let query = Query::start(&lab.program, &text, &[])?;
        let mut drive = Drive {
            hub,
            query,
            next: 0,
            seed: 1,
        };
        for kind in [Kind::Complete, Kind::Partial] {
            let asked = match kind {
                Kind::Complete => drive.complete()?,
                Kind::Partial => drive.partial()?,
            };
            asked.wait(PATIENCE)?.ok_or("the query does not answer")?;
        }
        Ok(drive)
    }

    /// Asks for a rectangle.
    pub fn ask(&mut self, kind: Kind, [x, y, width, height]: [i64; 4]) -> Result<Asked, String> {
        self.next += 1;
        let (viewer, request) = ("m".to_string(), self.next);
        let due = Instant::now();
        let request = Request {
            viewer,
            request,
            level: 0,
            x,
            y,
            width,
            height,
            blocks: None,
        };
        Ok(Asked {
            due,
            row: self.hub.ask(kind, &request)?,
        })
    }

    /// Asks for the whole picture.
    pub fn complete(&mut self) -> Result<Asked, String> {
        self.ask(Kind::Complete, [0, 0, WIDTH as i64, HEIGHT as i64])
    }

    /// A random number from 0 to 1.
    pub fn random(&mut self) -> f64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Asks for a small part at a random place.
    pub fn partial(&mut self) -> Result<Asked, String> {
        let x = (self.random() * (WIDTH as f64 - PART as f64)) as i64;
        let y = (self.random() * (HEIGHT as f64 - PART as f64)) as i64;
        self.ask(Kind::Partial, [x, y, PART, PART])
    }

    /// How long partial updates take alone, one after the other, in milliseconds.
    pub fn alone_ms(&mut self, time: Duration) -> Result<Vec<f64>, String> {
        let until = Instant::now() + time;
        let mut all = Vec::new();
        while Instant::now() < until || all.is_empty() {
            let asked = self.partial()?;
            all.push(
                asked
                    .wait(PATIENCE)?
                    .ok_or("a partial update does not come")?,
            );
        }
        Ok(all)
    }

    /// Asks for complete updates, at regular times or (`None`) whenever fewer than two are on their way, and
    /// for partial ones at random times, on average one in `partial_ms`, whether or not earlier ones came.
    pub fn load(
        &mut self,
        rate: Option<f64>,
        partial_ms: f64,
        time: Duration,
    ) -> Result<Loaded, String> {
        let begin = Instant::now();
        let end = begin + time;
        let (mut complete, mut partial) = (Vec::<Asked>::new(), Vec::new());
        let (mut done, mut due) = (0_usize, 0_usize);
        let mut next_complete = rate.filter(|rate| *rate > 0.0).map(|_| begin);
        let mut next_partial = begin + self.pause(partial_ms);
        loop {
            complete.retain(|asked| {
                let came = asked.row.try_recv().is_ok();
                done += usize::from(came);
                !came
            });
            let now = Instant::now();
            // The highest rate follows from several updates, however long they take.
            let is_enough = rate.is_some() || done >= LEAST || now >= end + PATIENCE;
            if now >= end && is_enough {
                break;
            }
            if now >= next_partial {
                let mut asked = self.partial()?;
                asked.due = next_partial;
                partial.push(asked);
                next_partial += self.pause(partial_ms);
            }
            match (rate, next_complete) {
                (None, _) if complete.len() < 2 => complete.push(self.complete()?),
                (Some(rate), Some(at)) if now >= at => {
                    complete.push(self.complete()?);
                    due += 1;
                    next_complete = Some(at + Duration::from_secs_f64(1.0 / rate));
                }
                _ => std::thread::sleep(Duration::from_micros(200)),
            }
        }
        let taken = begin.elapsed().as_secs_f64();
        // What is on its way counts for latency, and keeps the next point from beginning too early.
        let mut partial_ms = Vec::new();
        for asked in &partial {
            partial_ms.push(
                asked
                    .wait(PATIENCE)?
                    .ok_or("a partial update does not come")?,
            );
        }
        for asked in &complete {
            asked
                .wait(PATIENCE)?
                .ok_or("a complete update does not come")?;
        }
        // One may be on its way at the end, and a twentieth may be missing.
        let is_kept = done as f64 + 1.0 >= due as f64 * 0.95;
        Ok(Loaded {
            rate: done as f64 / taken,
            is_kept,
            partial_ms,
        })
    }

    /// A random pause with this mean.
    fn pause(&mut self, mean_ms: f64) -> Duration {
        let random = (1.0 - self.random()).max(1e-9);
        Duration::from_secs_f64(-random.ln() * mean_ms / 1e3)
    }
}

impl Asked {
    /// How many milliseconds the update took; `None` if it does not come.
    pub fn wait(&self, patience: Duration) -> Result<Option<f64>, String> {
        match self.row.recv_timeout(patience) {
            Ok(update) if update.line.contains(r#""error":null"#) => {
                Ok(Some(update.at.duration_since(self.due).as_secs_f64() * 1e3))
            }
            Ok(update) => Err(format!("an update failed: {}", update.line)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }
}
