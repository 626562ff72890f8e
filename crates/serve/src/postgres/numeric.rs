//! NUMERIC in the binary format: digits of base 10,000.

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xC000;

/// The bytes of a decimal number such as `-12.50`; `None` if it is not one.
pub fn to_binary(text: &str) -> Option<Vec<u8>> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (NEGATIVE, digits),
        None => (POSITIVE, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let valid = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !valid(whole) || !valid(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    // Groups of four digits on both sides of the point.
    let before = whole.len().div_ceil(4);
    let after = fraction.len().div_ceil(4);
    let padded = format!(
        "{whole:0>before$}{fraction:0<after$}",
        before = before * 4,
        after = after * 4
    );
    let mut groups = Vec::with_capacity(before + after);
    for start in (0..padded.len()).step_by(4) {
        groups.push(padded[start..start + 4].parse::<u16>().ok()?);
    }
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    let weight = before as i64 - 1 - zeros as i64;
    groups.drain(..zeros);
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let (weight, sign) = match groups.is_empty() {
        true => (0, POSITIVE),
        false => (i16::try_from(weight).ok()?, sign),
    };
    let count = u16::try_from(groups.len()).ok()?;
    let scale = u16::try_from(fraction.len()).ok()?;
    let mut bytes = Vec::with_capacity(8 + groups.len() * 2);
    bytes.extend(count.to_be_bytes());
    bytes.extend(weight.to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend(scale.to_be_bytes());
    groups
        .iter()
        .for_each(|group| bytes.extend(group.to_be_bytes()));
    Some(bytes)
}

/// The most digits before or after the point that are read: more than any DECIMAL has.
const DIGITS_MAX: usize = 1_000;

/// The text of a number in the binary format; `None` if it is not one, or too long.
pub fn from_binary(bytes: &[u8]) -> Option<String> {
    let mut words = bytes.chunks(2).map(|two| <[u8; 2]>::try_from(two).ok());
    let mut word = || words.next().flatten();
    let count = usize::from(u16::from_be_bytes(word()?));
    let weight = i16::from_be_bytes(word()?);
    let sign = u16::from_be_bytes(word()?);
    let scale = usize::from(u16::from_be_bytes(word()?));
    if sign == NOT_A_NUMBER {
        return Some("NaN".to_owned());
    }
    let before = usize::try_from(i32::from(weight) + 1).unwrap_or(0);
    if !matches!(sign, POSITIVE | NEGATIVE) || before * 4 > DIGITS_MAX || scale > DIGITS_MAX {
        return None;
    }
    let mut groups = Vec::with_capacity(count.min(DIGITS_MAX));
    for _ in 0..count {
        groups.push(Some(u16::from_be_bytes(word()?)).filter(|group| *group < 10_000)?);
    }
    // The group at a place, counted from the first one before the point; from the point if there is none.
    let group = |place: i32| {
        usize::try_from(place - leading(weight))
            .ok()
            .and_then(|at| groups.get(at))
            .copied()
            .unwrap_or(0)
    };
    let mut whole: String = (0..before as i32)
        .map(|place| format!("{:04}", group(place)))
        .collect();
    let trimmed = whole.trim_start_matches('0').len();
    whole.drain(..whole.len() - trimmed);
    if whole.is_empty() {
        whole.push('0');
    }
    let after = scale.div_ceil(4) as i32;
    let mut fraction: String = (0..after)
        .map(|place| format!("{:04}", group(before as i32 + place)))
        .collect();
    fraction.truncate(scale);
    let sign = if sign == NEGATIVE { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

/// The groups of zeros between the point and the first group that is sent.
fn leading(weight: i16) -> i32 {
    (-1 - i32::from(weight)).max(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_the_bytes_of_postgresql() {
        let words = |text: &str| -> Vec<u16> {
            let bytes = to_binary(text).unwrap();
            bytes
                .chunks(2)
                .map(|two| u16::from_be_bytes([two[0], two[1]]))
                .collect()
        };
        assert_eq!(words("0"), [0, 0, 0, 0]);
        assert_eq!(words("0.00"), [0, 0, 0, 2]);
        assert_eq!(words("12345.678"), [3, 1, 0, 3, 1, 2345, 6780]);
        assert_eq!(words("-10000"), [1, 1, NEGATIVE, 0, 1]);
        assert_eq!(words("0.00001234"), [1, 0xFFFE, 0, 8, 1234]);
        assert_eq!(to_binary("1e5"), None);
        assert_eq!(from_binary(&[0, 1]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in "-?[1-9][0-9]{0,37}(\\.[0-9]{1,38})?|-?0\\.[0-9]{0,37}[1-9]") {
            prop_assert_eq!(from_binary(&to_binary(&text).unwrap()).unwrap(), text);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            from_binary(&bytes);
        }
    }
}
