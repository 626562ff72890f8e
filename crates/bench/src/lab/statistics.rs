//! Statistics of several measurements of the same quantity.

use slackwater::measure::Spread;

/// Median, minimum and maximum of a figure; zeros without any items.
pub fn spread<T>(items: impl IntoIterator<Item = T>, figure: impl Fn(T) -> f64) -> Spread {
    Spread::of(items.into_iter().map(figure).collect())
}

/// The median of a figure; 0 without any items.
pub fn median<T>(items: impl IntoIterator<Item = T>, figure: impl Fn(T) -> f64) -> f64 {
    spread(items, figure).median
}

/// The geometric mean of at least one value, all above zero.
pub fn geometric_mean(values: &[f64]) -> f64 {
    let sum = values.iter().map(|value| value.ln()).sum::<f64>();
    (sum / values.len() as f64).exp()
}

/// The distinct values, in the order in which they first occur.
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
    fn distinct_values_keep_the_order_in_which_they_first_occur() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(median(["aaa", "b"], |text| text.len() as f64), 2.0);
    }
}
