//! Parses numbers: integers eight digits at a time, and decimals.

/// Reads a signed integer from `block[start..end]`; `None` when it is not a number or does not fit.
///
/// Takes the block instead of the field, because it loads whole words that may begin before the field: so 13
/// digits cost a few multiplications instead of 13.
#[inline(always)]
pub(crate) fn parse_i64(block: &[u8], start: usize, end: usize) -> Option<i64> {
    let negative = start < end && block[start] == b'-';
    let signed = negative || (start < end && block[start] == b'+');
    let digits = start + usize::from(signed);
    let magnitude = parse_u64(block, digits, end)?;
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Reads an unsigned integer without a sign from `block[start..end]`.
#[inline(always)]
pub(crate) fn parse_u64(block: &[u8], start: usize, end: usize) -> Option<u64> {
    let length = end - start;
    if end >= 8 {
        if length.wrapping_sub(1) < 8 {
            return last_digits(block, end, length);
        }
        if length.wrapping_sub(9) < 8 {
            let low = last_digits(block, end, 8)?;
            let high = last_digits(block, end - 8, length - 8);
            // The field's beginning may lie within the first 8 bytes of the block.
            let high = if end >= 16 {
                high?
            } else {
                parse_slowly(&block[start..end - 8])?
            };
            return Some(high * 100_000_000 + low);
        }
    }
    parse_slowly(&block[start..end])
}

/// Reads the 1 to 8 digits that end at `end`.
#[inline(always)]
fn last_digits(block: &[u8], end: usize, length: usize) -> Option<u64> {
    debug_assert!((1..=8).contains(&length));
    let first = end.wrapping_sub(8);
    let word: [u8; 8] = block.get(first..end)?.try_into().ok()?;
    let word = u64::from_le_bytes(word);
    // The first digit is the lowest byte: what lies before the field becomes leading zeros.
    let kept = u64::MAX << (8 * (8 - length));
    let word = (word & kept) | (ZEROS & !kept);
    // A byte is a digit if its high half is 3 and adding 6 does not carry out of the low half.
    let is_digits = (word & 0xF0F0_F0F0_F0F0_F0F0) == ZEROS
        && (word.wrapping_add(0x0606_0606_0606_0606) & 0xF0F0_F0F0_F0F0_F0F0) == ZEROS;
    if !is_digits {
        return None;
    }
    Some(joined(word & 0x0F0F_0F0F_0F0F_0F0F))
}

/// Eight zeros as text.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The number whose eight digits are the bytes, the first one lowest.
#[inline(always)]
fn joined(digits: u64) -> u64 {
    // Pairs, then fours, then eights are joined: three multiplications in all.
    let pairs = digits.wrapping_mul(2561) >> 8;
    let fours = (pairs & 0x00FF_00FF_00FF_00FF).wrapping_mul(6_553_601) >> 16;
    (fours & 0x0000_FFFF_0000_FFFF).wrapping_mul(42_949_672_960_001) >> 32
}

/// Reads the digits at the beginning: their value, modulo 2^64, and how many there are.
#[inline(always)]
pub(crate) fn leading_digits(text: &[u8]) -> (u64, usize) {
    let Some((first, rest)) = text.split_first_chunk::<8>() else {
        return leading_digits_slowly(text);
    };
    let (high, digits) = leading_of(u64::from_le_bytes(*first));
    if digits < 8 {
        return (high, digits);
    }
    let Some(second) = rest.first_chunk::<8>() else {
        return leading_digits_slowly(text);
    };
    let (low, more) = leading_of(u64::from_le_bytes(*second));
    if more == 8 {
        return leading_digits_slowly(text);
    }
    (high * POWERS[more] + low, 8 + more)
}

const POWERS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The digits at the beginning of a word, whose first character is the lowest byte.
#[inline(always)]
fn leading_of(word: u64) -> (u64, usize) {
    let halves = word ^ ZEROS;
    // Adding sets the high bit of what is not a digit. It carries only out of such bytes, so the lowest of
    // them is found.
    let others = (halves.wrapping_add(0x7676_7676_7676_7676) | halves) & 0x8080_8080_8080_8080;
    let digits = others.trailing_zeros() as usize / 8;
    if digits == 0 {
        return (0, 0);
    }
    (joined(halves << (64 - 8 * digits)), digits)
}

fn leading_digits_slowly(text: &[u8]) -> (u64, usize) {
    let mut value = 0u64;
    for (digits, &byte) in text.iter().enumerate() {
        if !byte.is_ascii_digit() {
            return (value, digits);
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    }
    (value, text.len())
}

fn parse_slowly(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}

/// Reads a decimal such as `-12.345` or `1.2e3` as a whole number of units of its last digit (`scale` digits
/// after the point). More digits are rounded half away from zero; `None` when it is not a valid number or has
/// more than `precision` digits.
pub(crate) fn parse_decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = match unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        None => (unsigned, 0),
        Some(at) => (&unsigned[..at], parse_exponent(&unsigned[at + 1..])?),
    };
    let point = digits
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(digits.len());
    let whole = &digits[..point];
    let fraction = digits.get(point + 1..).unwrap_or(&[]);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Digits that are kept: up to `scale` places after the moved point.
    let kept = point as i64 + exponent + i64::from(scale);
    let mut value = 0i128;
    for (place, &digit) in (0i64..).zip(whole.iter().chain(fraction)) {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i128::from(digit - b'0');
        if place < kept {
            value = value.checked_mul(10)?.checked_add(digit)?;
        } else if place == kept && digit >= 5 {
            value += 1;
        }
    }
    let given = (whole.len() + fraction.len()) as i64;
    if value != 0 && kept > given {
        value = value.checked_mul(10i128.checked_pow((kept - given).try_into().ok()?)?)?;
    }
    let limit = 10i128.checked_pow(u32::from(precision))?;
    (value < limit).then_some(if negative { -value } else { value })
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    // Anything beyond is zero or too large for 38 digits, whatever stands before it.
    const EXPONENT_MAX: i64 = 100_000;
    let exponent = parse_i64(text, 0, text.len())?;
    Some(exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str, before: usize) -> Option<i64> {
        let block = [&vec![b'7'; before][..], text.as_bytes(), b"12345"].concat();
        parse_i64(&block, before, before + text.len())
    }

    #[test]
    fn limits_and_refusals() {
        for before in [0, 1, 7, 8, 20] {
            assert_eq!(parse("9223372036854775807", before), Some(i64::MAX));
            assert_eq!(parse("-9223372036854775808", before), Some(i64::MIN));
            assert_eq!(parse("9223372036854775808", before), None);
            assert_eq!(parse("-9223372036854775809", before), None);
            assert_eq!(parse("99999999999999999999", before), None);
            assert_eq!(parse("000000000000000000000000007", before), Some(7));
            for wrong in [
                "",
                "-",
                "+",
                "1a",
                "a1",
                "1:",
                "/1",
                "1.5",
                " 1",
                "--1",
                "12345678901x",
            ] {
                assert_eq!(parse(wrong, before), None, "{wrong} after {before}");
            }
        }
    }

    proptest! {
        #[test]
        fn leading_digits_are_read_up_to_what_follows(
            number in "[0-9]{0,20}",
            after in "[:/.,a\u{7f}ü -]?[0-9a]{0,20}",
        ) {
            let text = format!("{number}{after}");
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let value = text[..digits].parse::<u128>().unwrap_or(0) as u64;
            prop_assert_eq!(leading_digits(text.as_bytes()), (value, digits));
        }
    }

    #[test]
    fn decimals_round_and_have_limits() {
        for (text, expected) in [
            ("123.455", Some(12_346)),
            ("-123.455", Some(-12_346)),
            ("123.4549", Some(12_345)),
            ("999.99", Some(99_999)),
            ("999.995", None),
            ("1000", None),
            ("0.004", Some(0)),
            ("0.005", Some(1)),
            (".5", Some(50)),
            ("5.", Some(500)),
            ("+7", Some(700)),
            ("1.5e2", Some(15_000)),
            ("15e-1", Some(150)),
            ("5e-3", Some(1)),
            ("5e-4", Some(0)),
            ("1e3", None),
            ("1e999999999999", None),
            ("0e999999999999", Some(0)),
            ("1e-999999999999", Some(0)),
            ("", None),
            (".", None),
            ("-", None),
            ("1.2.3", None),
            ("1e", None),
            ("0x1", None),
        ] {
            assert_eq!(parse_decimal(text.as_bytes(), 5, 2), expected, "{text}");
        }
        let most = "9".repeat(38);
        assert_eq!(parse_decimal(most.as_bytes(), 38, 0), most.parse().ok());
        assert_eq!(parse_decimal("9".repeat(60).as_bytes(), 38, 0), None);
    }

    proptest! {
        #[test]
        fn reads_every_number(value: i64, shift in 0u32..63, before in 0usize..20) {
            let value = value >> shift;
            prop_assert_eq!(parse(&value.to_string(), before), Some(value));
        }

        #[test]
        fn agrees_with_the_standard_parser(text in "[-+]?[0-9a:/ ]{0,21}", before in 0usize..20) {
            prop_assert_eq!(parse(&text, before), text.parse::<i64>().ok());
        }
    }
}
