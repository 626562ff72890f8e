//! Tables and verdicts, from measured figures to text. Pure.

use super::{Case, Figures, LARGE_BYTES, SMALL_BYTES, Way};
use crate::lab::{Table, Verdict, median};

/// The largest ratio of demand's time to the ideal.
const IDEAL_RATIO_MAX: f64 = 1.1;

/// How many times faster the reaction must be than that of round robin with large chunks.
const REACTION_RATIO_MIN: f64 = 8.0;

/// All figures, as text.
pub fn text(figures: &Figures) -> String {
    format!(
        "{} copies take {} ns a byte, one of them slow; chunks of {LARGE_BYTES} and {SMALL_BYTES} \
         bytes, planned {}\n\nTime for all rows / ideal time (all work / sum of speeds), medians\n\n{}\n\
         Reaction to a copy that becomes slow for good: time until the copy had processed\n\
         the last row created before that\n\n{}",
        figures.copies,
        figures.ns_per_byte,
        figures.planned_bytes,
        times(figures).markdown(),
        reactions(figures).markdown(),
    )
}

fn times(figures: &Figures) -> Table {
    let head = ["way", "chunk", "slow", "share of chunks", "time / ideal"];
    let mut table = Table::new(head.into_iter().chain(["buckets moved"]));
    for case in figures.cases.iter().filter(|case| !case.reaction) {
        let moved = match case.way {
            Way::KeyedMoving => median(&case.moved, |&moved| moved as f64),
            _ => 0.0,
        };
        table.line([
            case.way.name().to_string(),
            case.chunk_bytes.to_string(),
            format!("{} x", case.factor),
            format!("{} %", case.probability_percent),
            format!("{:.2}", over_ideal(case)),
            format!("{moved:.0}"),
        ]);
    }
    table
}

fn reactions(figures: &Figures) -> Table {
    let head = ["way", "chunk", "slow", "reaction"];
    let mut table = Table::new(
        head.into_iter()
            .chain(["faster than round robin with large chunks"]),
    );
    for case in figures.cases.iter().filter(|case| case.reaction) {
        let reaction_s = reaction_s(case);
        table.line([
            case.way.name().to_string(),
            case.chunk_bytes.to_string(),
            format!("{} x", case.factor),
            format!("{:.1} ms", reaction_s * 1e3),
            format!(
                "{:.1} x",
                plain_reaction_s(figures, case.factor) / reaction_s
            ),
        ]);
    }
    table
}

/// The goals of demand with planned chunks.
pub fn verdicts(figures: &Figures) -> Vec<Verdict> {
    let demand = figures.cases.iter().filter(|case| case.way == Way::Demand);
    let planned = demand.filter(|case| case.chunk_bytes == figures.planned_bytes);
    let (reactions, times) = planned.partition::<Vec<&Case>, _>(|case| case.reaction);
    let times = times.into_iter().map(|case| (over_ideal(case), case));
    let slowest = times.max_by(|one, other| one.0.total_cmp(&other.0));
    let ratios = reactions.into_iter().map(|case| {
        let ratio = plain_reaction_s(figures, case.factor) / reaction_s(case);
        (ratio, case)
    });
    let latest = ratios.min_by(|one, other| one.0.total_cmp(&other.0));
    let time = Verdict::at_most(
        "time of demand with planned chunks, compared with the ideal",
        slowest.map(|(ratio, _)| ratio),
        IDEAL_RATIO_MAX,
    );
    let reaction = Verdict::at_least(
        "reaction of demand with planned chunks, times faster than round robin with large ones",
        latest.map(|(ratio, _)| ratio),
        REACTION_RATIO_MIN,
    );
    vec![
        time.details(slowest.map_or(String::new(), |(_, case)| {
            let percent = case.probability_percent;
            format!("{} x slow for {percent} % of its chunks", case.factor)
        })),
        reaction
            .details(latest.map_or(String::new(), |(_, case)| format!("{} x slow", case.factor))),
    ]
}

/// The reaction of round robin with large chunks.
fn plain_reaction_s(figures: &Figures, factor: u32) -> f64 {
    let mut cases = figures.cases.iter();
    let plain = cases.find(|case| {
        case.reaction
            && case.way == Way::RoundRobin
            && case.chunk_bytes == LARGE_BYTES
            && case.factor == factor
    });
    plain.map_or(f64::NAN, reaction_s)
}

fn reaction_s(case: &Case) -> f64 {
    median(&case.reaction_s, |&seconds| seconds)
}

fn over_ideal(case: &Case) -> f64 {
    median(&case.seconds, |&seconds| seconds) / case.ideal_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(way: Way, bytes: usize, seconds: f64, reaction: Option<f64>) -> Case {
        Case {
            way,
            chunk_bytes: bytes,
            factor: 4,
            probability_percent: 50,
            reaction: reaction.is_some(),
            seconds: vec![seconds, 9.0, 0.1],
            ideal_s: 1.0,
            reaction_s: reaction.into_iter().collect(),
            moved: vec![0],
        }
    }

    #[test]
    fn goals_are_met_or_missed_by_the_medians() {
        let figures = |seconds, reaction| Figures {
            ns_per_byte: 90,
            copies: 3,
            planned_bytes: 4096,
            cases: vec![
                case(Way::RoundRobin, LARGE_BYTES, 1.0, Some(0.8)),
                case(Way::Demand, 4096, seconds, None),
                case(Way::Demand, 4096, 1.0, Some(reaction)),
            ],
        };
        let met = |seconds, reaction| {
            let verdicts = verdicts(&figures(seconds, reaction)).into_iter();
            verdicts.map(|verdict| verdict.met).collect::<Vec<_>>()
        };
        assert_eq!(met(1.05, 0.05), [Some(true); 2]);
        assert_eq!(met(1.2, 0.2), [Some(false); 2]);
        let text = text(&figures(1.2, 0.2));
        assert!(
            text.contains("| demand | 4096 | 4 x | 200.0 ms | 4.0 x |"),
            "{text}"
        );
    }
}
