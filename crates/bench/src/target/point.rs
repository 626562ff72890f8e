//! One point: the generator, the query between its two connections, and what the query used.

use super::child::{Programs, Running};
use super::order::{Generated, Order, Own, Point, Spec};
use super::part::Generator;
use crate::usage::{self, Used};

/// Measures a point; `order` is the generator's.
pub fn measure(
    programs: &Programs,
    spec: Spec,
    order: &Order,
    round: u32,
) -> Result<Point, String> {
    measure_while(programs, spec, order, round, |_| ())
}

/// Measures a point while what `start` returns for the query's process exists.
pub fn measure_while<D>(
    programs: &Programs,
    spec: Spec,
    order: &Order,
    round: u32,
    start: impl FnOnce(u32) -> D,
) -> Result<Point, String> {
    let (generator, addresses) = Generator::start(order)?;
    let running = programs.start(&spec, &addresses)?;
    let at = |error: String| {
        let Spec {
            setting,
            query,
            rate_per_s,
        } = spec;
        format!("{setting}, {query} at {rate_per_s}/s: {error}")
    };
    let disturber = start(running.child().id());
    let followed = follow(&generator, &running);
    drop(disturber);
    let (used, generated) = match followed {
        Ok(Some(measured)) => measured,
        // One of the two failed, and the other one because of it.
        Ok(None) => {
            let said = running.failure();
            return Err(at(format!(
                "the measurement failed; see above for messages of the sender and receiver; {said}"
            )));
        }
        Err(error) => return Err(at(format!("{error}\n{}", running.failure()))),
    };
    let own: Option<Own> = running.finish().map_err(at)?;
    Ok(Point {
        spec,
        round,
        usage: used.query,
        others_percent: used.others_percent,
        generated,
        own,
    })
}

fn follow(generator: &Generator, running: &Running) -> Result<Option<(Used, Generated)>, String> {
    let Some(interval) = generator.interval(running.child())? else {
        return Ok(None);
    };
    let used = usage::over(running.child().id(), generator.pid(), interval)?;
    let generated = generator.finish()?;
    Ok(generated.map(|generated| (used, generated)))
}
