//! Which record an operation meets: the generators of YCSB 0.17, by their formulas.
//!
//! - **Zipfian** (Gray et al., "Quickly Generating Billion-Record Synthetic Databases"): item k with a
//!   probability proportional to `1 / (k + 1)^0.99`.
//! - **Scrambled**: zipfian over ten billion items, spread over the records by a hash, so that popular
//!   records don't lie next to each other.
//! - **Latest**: zipfian counted back from the newest record.

use fastrand::Rng;

/// The exponent of all distributions.
const THETA: f64 = 0.99;

/// The items over which the scrambled distribution is zipfian, and their zeta, both constants of YCSB.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// A zipfian distribution over the items 0 to n − 1.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
}

impl Zipfian {
    /// Over so many items, at least two.
    pub fn new(items: u64) -> Zipfian {
        let items = items.max(2);
        let zeta = (1..=items).map(|item| (item as f64).powf(-THETA)).sum();
        Zipfian { items, zeta }
    }

    /// The distribution that [`scrambled`] uses.
    pub fn for_scrambling() -> Zipfian {
        Zipfian {
            items: SCRAMBLED_ITEMS,
            zeta: SCRAMBLED_ZETA,
        }
    }

    /// One more item.
    pub fn grow(&mut self) {
        self.items += 1;
        self.zeta += (self.items as f64).powf(-THETA);
    }

    /// The next item.
    pub fn next(&self, random: &mut Rng) -> u64 {
        let zeta_of_two = 1.0 + 0.5f64.powf(THETA);
        let at = random.f64();
        let scaled = at * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < zeta_of_two {
            return 1;
        }
        let items = self.items as f64;
        let eta = (1.0 - (2.0 / items).powf(1.0 - THETA)) / (1.0 - zeta_of_two / self.zeta);
        let item = items * (eta * at - eta + 1.0).powf(1.0 / (1.0 - THETA));
        (item as u64).min(self.items - 1)
    }
}

/// The next of so many records by the scrambled distribution.
pub fn scrambled(zipfian: &Zipfian, records: u64, random: &mut Rng) -> u64 {
    hash(zipfian.next(random)) % records
}

/// The next of so many records by the latest distribution, whose items are the records.
pub fn latest(zipfian: &Zipfian, records: u64, random: &mut Rng) -> u64 {
    (records - 1).saturating_sub(zipfian.next(random))
}

/// The hash that YCSB makes keys of (FNV-1a, of which it takes the absolute value).
pub fn hash(number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    fn shares(items: usize, mut next: impl FnMut(&mut Rng) -> u64) -> Vec<f64> {
        let mut random = Rng::with_seed(3);
        let mut counts = vec![0u64; items];
        for _ in 0..DRAWS {
            counts[next(&mut random) as usize] += 1;
        }
        counts
            .into_iter()
            .map(|count| count as f64 / DRAWS as f64)
            .collect()
    }

    #[test]
    fn the_first_items_have_the_known_probabilities() {
        let zipfian = Zipfian::new(1_000);
        let shares = shares(1_000, |random| zipfian.next(random));
        // The formula is exact for the first two, and an approximation for the others.
        for (item, tolerance) in [(0, 0.02), (1, 0.03), (9, 0.25), (99, 0.25)] {
            let expected = f64::from(item + 1).powf(-THETA) / zipfian.zeta;
            let share = shares[item as usize];
            assert!(
                (share / expected - 1.0).abs() < tolerance,
                "{item}: {share} {expected}"
            );
        }
        let total = shares.iter().sum::<f64>();
        assert!((total - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_constant_of_ycsb_is_the_zeta_of_its_items() {
        // The sum over 10^10 items, by an integral behind the first million.
        let first = Zipfian::new(1_000_000);
        let power = 1.0 - THETA;
        let integral = |from: f64, to: f64| (to.powf(power) - from.powf(power)) / power;
        let zeta = first.zeta + integral(1_000_000.5, 1e10 + 0.5);
        assert!((zeta - SCRAMBLED_ZETA).abs() < 1e-3, "{zeta}");
    }

    #[test]
    fn scrambling_spreads_the_most_popular_records() {
        let zipfian = Zipfian::for_scrambling();
        let shares = shares(1_000, |random| scrambled(&zipfian, 1_000, random));
        let top = (hash(0) % 1_000) as usize;
        // 1 / 26.469, and what other items of the ten billion add to this record.
        assert!((0.037..0.042).contains(&shares[top]), "{}", shares[top]);
        assert!(
            shares.iter().all(|share| *share > 0.0),
            "each record is met"
        );
    }

    #[test]
    fn the_latest_record_is_the_most_popular_one_while_records_are_added() {
        let mut zipfian = Zipfian::new(500);
        (0..500).for_each(|_| zipfian.grow());
        assert!((zipfian.zeta - Zipfian::new(1_000).zeta).abs() < 1e-9);
        let shares = shares(1_000, |random| latest(&zipfian, 1_000, random));
        assert!(shares[999] > shares[998] && shares[998] > shares[900]);
    }
}
