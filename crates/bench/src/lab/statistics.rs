//! What is said of several measurements of the same.

use slackwater::measure::Spread;

/// Median, least and most of a figure; zeros where there is nothing.
pub fn spread<T>(items: impl IntoIterator<Item = T>, figure: impl Fn(T) -> f64) -> Spread {
    Spread::of(items.into_iter().map(figure).collect())
}

/// The median of a figure; 0 where there is nothing.
pub fn median<T>(items: impl IntoIterator<Item = T>, figure: impl Fn(T) -> f64) -> f64 {
    spread(items, figure).median
}

/// The geometric mean of at least one value, all above zero.
pub fn geometric_mean(values: &[f64]) -> f64 {
    let sum = values.iter().map(|value| value.ln()).sum::<f64>();
    (sum / values.len() as f64).exp()
}

/// Values of which each stands once, in the order in which they come first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_of_a_half_and_two_is_one() {
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn values_stand_once_in_the_order_in_which_they_come() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(median(["aaa", "b"], |text| text.len() as f64), 2.0);
    }
}
