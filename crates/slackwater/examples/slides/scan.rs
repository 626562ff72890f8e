//! The scans of a JPEG picture: their heads, and the coefficients of a block.

use super::bits::{Bits, Table};
use super::jpeg::ZIGZAG;

/// What a scan brings.
pub struct Scan {
    /// The components by number, with their tables for the first coefficient and the others.
    pub parts: Vec<(usize, usize, usize)>,
    /// The first and the last coefficient, in the order in which they are stored.
    pub from: usize,
    to: usize,
    /// The lowest bit that earlier scans brought, plus one; 0 if there was none. And the lowest bit now.
    pub high: u32,
    low: u32,
}

fn table(table: Option<&Table>) -> Result<&Table, String> {
    table.ok_or_else(|| "a Huffman table is missing".to_string())
}

/// The difference of a block's first coefficient from the one before.
fn first(bits: &mut Bits<'_>, dc: &Table, last: &mut i32) -> Result<i32, String> {
    let size = dc.symbol(bits)?;
    if size > 15 {
        return Err(format!("a coefficient of {size} bits"));
    }
    *last = last.wrapping_add(bits.value(size));
    Ok(*last)
}

/// A block of a sequential picture.
pub fn sequential(
    bits: &mut Bits<'_>,
    block: &mut [i16; 64],
    (dc, ac): (Option<&Table>, Option<&Table>),
    last: &mut i32,
) -> Result<(), String> {
    let ac = table(ac)?;
    block[0] = first(bits, table(dc)?, last)? as i16;
    let mut at = 1;
    while at < 64 {
        let symbol = ac.symbol(bits)?;
        let (zeros, size) = (usize::from(symbol >> 4), symbol & 15);
        match (zeros, size) {
            (15, 0) => at += 16,
            (_, 0) => break,
            _ => {
                at += zeros;
                block[place(at)?] = bits.value(size) as i16;
                at += 1;
            }
        }
    }
    Ok(())
}

/// Where a coefficient belongs in its block.
fn place(at: usize) -> Result<usize, String> {
    let place = ZIGZAG.get(at).copied();
    place.ok_or_else(|| "a block has more than 64 coefficients".to_string())
}

impl Scan {
    /// Reads the head of a scan of components with these ids.
    ///
    /// # Errors
    ///
    /// When it is not valid.
    pub fn of(segment: &[u8], ids: &[u8], is_progressive: bool) -> Result<Scan, String> {
        let damaged = || "a scan's head is not valid".to_string();
        let (&count, rest) = segment.split_first().ok_or_else(damaged)?;
        let (parts, rest) = rest
            .split_at_checked(usize::from(count) * 2)
            .ok_or_else(damaged)?;
        let &[from, to, bits] = rest.first_chunk().ok_or_else(damaged)?;
        let mut scan = Scan {
            parts: Vec::new(),
            from: usize::from(from),
            to: usize::from(to),
            high: u32::from(bits >> 4),
            low: u32::from(bits & 15),
        };
        for part in parts.chunks_exact(2) {
            let (dc, ac) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            let number = ids.iter().position(|&id| id == part[0]);
            let number = number.filter(|number| scan.parts.iter().all(|part| part.0 != *number));
            scan.parts.push((number.ok_or_else(damaged)?, dc, ac));
            if dc > 3 || ac > 3 {
                return Err(damaged());
            }
        }
        // Of a progressive picture all but the first coefficients come for one component at a time.
        let is_valid = match (is_progressive, scan.from) {
            (false, _) => (from, to, bits) == (0, 63, 0),
            (true, 0) => scan.to == 0,
            (true, from) => from <= scan.to && scan.to < 64 && scan.parts.len() == 1,
        };
        match is_valid && !scan.parts.is_empty() && scan.low <= 13 {
            true => Ok(scan),
            false => Err(damaged()),
        }
    }

    /// The first coefficient, or one more bit of it.
    pub fn first(
        &self,
        bits: &mut Bits<'_>,
        block: &mut [i16; 64],
        dc: Option<&Table>,
        last: &mut i32,
    ) -> Result<(), String> {
        match self.high {
            0 => block[0] = (first(bits, table(dc)?, last)? << self.low) as i16,
            _ => block[0] |= (bits.take(1) << self.low) as i16,
        }
        Ok(())
    }

    /// The high bits of other coefficients. `to_skip` blocks have none.
    pub fn others(
        &self,
        bits: &mut Bits<'_>,
        block: &mut [i16; 64],
        ac: Option<&Table>,
        to_skip: &mut u32,
    ) -> Result<(), String> {
        if *to_skip > 0 {
            *to_skip -= 1;
            return Ok(());
        }
        let ac = table(ac)?;
        let mut at = self.from;
        while at <= self.to {
            let symbol = ac.symbol(bits)?;
            let (zeros, size) = (symbol >> 4, symbol & 15);
            match (zeros, size) {
                (15, 0) => at += 16,
                (_, 0) => {
                    *to_skip = (1 << zeros) + bits.take(zeros) - 1;
                    break;
                }
                _ => {
                    at += usize::from(zeros);
                    block[place(at)?] = (bits.value(size) << self.low) as i16;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// One more bit of other coefficients, and those that become 1 or -1 by it.
    pub fn refine(
        &self,
        bits: &mut Bits<'_>,
        block: &mut [i16; 64],
        ac: Option<&Table>,
        to_skip: &mut u32,
    ) -> Result<(), String> {
        let ac = table(ac)?;
        let one = 1_i16 << self.low;
        let mut at = self.from;
        while at <= self.to && *to_skip == 0 {
            let symbol = ac.symbol(bits)?;
            let (mut zeros, size) = (symbol >> 4, symbol & 15);
            let mut becomes = 0;
            if size > 0 {
                becomes = if bits.take(1) == 1 { one } else { -one };
            } else if zeros < 15 {
                *to_skip = (1 << zeros) + bits.take(zeros);
                break;
            }
            // Coefficients that are not zero have a bit each; the others are counted.
            while at <= self.to {
                let coefficient = &mut block[place(at)?];
                at += 1;
                if *coefficient != 0 {
                    correct(bits, coefficient, one);
                } else if zeros == 0 {
                    *coefficient = becomes;
                    break;
                } else {
                    zeros -= 1;
                }
            }
        }
        if *to_skip > 0 {
            for at in at..=self.to {
                correct(bits, &mut block[place(at)?], one);
            }
            *to_skip -= 1;
        }
        Ok(())
    }
}

/// Reads a further bit of a coefficient that is not zero.
fn correct(bits: &mut Bits<'_>, coefficient: &mut i16, one: i16) {
    if *coefficient != 0 && bits.take(1) == 1 && *coefficient & one == 0 {
        *coefficient = coefficient.saturating_add(one * coefficient.signum());
    }
}
