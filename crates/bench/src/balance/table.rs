//! Tables and verdicts. Pure: from what was measured to text.

use slackwater::measure::median;

use super::{Case, Figures, LARGE_BYTES, SMALL_BYTES, Way};

/// How much longer than the ideal demand may take.
const IDEAL_RATIO_MAX: f64 = 1.1;

/// How many times faster the reaction is to be than that of round robin with large chunks.
const REACTION_RATIO_MIN: f64 = 8.0;

/// Everything, as text.
pub fn table(figures: &Figures) -> String {
    let mut text = format!(
        "{} copies that take {} ns a byte, one of them slow; chunks of {} and {} bytes, planned {}\n\n",
        figures.copies, figures.ns_per_byte, LARGE_BYTES, SMALL_BYTES, figures.planned_bytes
    );
    text.push_str(
        "Time for all rows, over the ideal (all work over the sum of speeds), medians\n\n",
    );
    text.push_str("| way | chunk | slow | share of chunks | time / ideal | buckets moved |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for case in figures.cases.iter().filter(|case| !case.reaction) {
        let moved = match case.way {
            Way::KeyedMoving => median(case.moved.iter().map(|&m| m as f64).collect()),
            _ => 0.0,
        };
        text.push_str(&format!(
            "| {} | {} | {} x | {} % | {:.2} | {moved:.0} |\n",
            case.way.name(),
            case.chunk_bytes,
            case.factor,
            case.probability_percent,
            over_ideal(case),
        ));
    }
    text.push_str(
        "\nReaction to a copy that becomes slow for good: how long after it the copy had done\n",
    );
    text.push_str("the last row that was made before\n\n");
    text.push_str(
        "| way | chunk | slow | reaction | faster than round robin with large chunks |\n",
    );
    text.push_str("|---|---|---|---|---|\n");
    for case in figures.cases.iter().filter(|case| case.reaction) {
        let reaction = median(case.reaction_s.clone());
        text.push_str(&format!(
            "| {} | {} | {} x | {:.1} ms | {:.1} x |\n",
            case.way.name(),
            case.chunk_bytes,
            case.factor,
            reaction * 1e3,
            plain_reaction(figures, case.factor) / reaction,
        ));
    }
    text.push_str("\nGoals\n\n");
    for line in verdicts(figures) {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

fn verdicts(figures: &Figures) -> Vec<String> {
    let said = |met: bool| if met { "met" } else { "MISSED" };
    let mut lines = Vec::new();
    let demand = |case: &&Case| case.way == Way::Demand;
    let times = figures.cases.iter().filter(demand).filter(|c| !c.reaction);
    let planned = times.filter(|case| case.chunk_bytes == figures.planned_bytes);
    if let Some(worst) = planned.max_by(|one, other| over_ideal(one).total_cmp(&over_ideal(other)))
    {
        let ratio = over_ideal(worst);
        lines.push(format!(
            "{}: demand with planned chunks against the ideal: at most {ratio:.2}, at most \
             {IDEAL_RATIO_MAX}; {} x slow for {} % of its chunks",
            said(ratio <= IDEAL_RATIO_MAX),
            worst.factor,
            worst.probability_percent
        ));
    }
    let reactions = figures.cases.iter().filter(demand).filter(|c| c.reaction);
    let planned = reactions.filter(|case| case.chunk_bytes == figures.planned_bytes);
    let ratios = planned.map(|case| {
        let ratio = plain_reaction(figures, case.factor) / median(case.reaction_s.clone());
        (ratio, case.factor)
    });
    if let Some((ratio, factor)) = ratios.min_by(|one, other| one.0.total_cmp(&other.0)) {
        lines.push(format!(
            "{}: reaction of demand with planned chunks against round robin with large ones: at least \
             {ratio:.1} x faster, at least {REACTION_RATIO_MIN}; {factor} x slow",
            said(ratio >= REACTION_RATIO_MIN)
        ));
    }
    lines
}

/// The reaction of round robin with large chunks.
fn plain_reaction(figures: &Figures, factor: u32) -> f64 {
    let mut cases = figures.cases.iter();
    let plain = cases.find(|case| {
        case.reaction
            && case.way == Way::RoundRobin
            && case.chunk_bytes == LARGE_BYTES
            && case.factor == factor
    });
    plain.map_or(f64::NAN, |case| median(case.reaction_s.clone()))
}

fn over_ideal(case: &Case) -> f64 {
    median(case.seconds.clone()) / case.ideal_s
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
        let lines = verdicts(&figures(1.05, 0.05));
        assert!(
            lines.iter().all(|line| line.starts_with("met")),
            "{lines:?}"
        );
        let lines = verdicts(&figures(1.2, 0.2));
        assert!(
            lines.iter().all(|line| line.starts_with("MISSED")),
            "{lines:?}"
        );
        assert!(table(&figures(1.2, 0.2)).contains("| demand | 4096 | 4 x | 200.0 ms | 4.0 x |"));
    }
}
