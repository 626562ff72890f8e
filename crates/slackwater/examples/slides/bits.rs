//! The bits of a JPEG scan, and Huffman codes.

/// The bits of the codes that are looked up at once.
const LOOK_BITS: u32 = 9;

/// Reads bits. After the last one there are zeros, and [`Bits::check`] fails.
pub struct Bits<'b> {
    bytes: &'b [u8],
    /// The next byte; where the bytes of the scan end, the marker that follows.
    at: usize,
    /// Bits that have been read, the last ones.
    bits: u64,
    count: u32,
    /// How many of the bits that have been read are not in the stream.
    missing: u32,
}

impl<'b> Bits<'b> {
    /// The bits from a position on.
    pub fn new(bytes: &'b [u8], at: usize) -> Bits<'b> {
        Bits {
            bytes,
            at,
            bits: 0,
            count: 0,
            missing: 0,
        }
    }

    /// Reads so that there are at least 32 bits: a code and a value.
    #[inline]
    fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some(&four) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<4>)
            && !four.contains(&0xff)
        {
            self.bits = self.bits << 32 | u64::from(u32::from_be_bytes(four));
            self.count += 32;
            self.at += 4;
            return;
        }
        while self.count < 32 {
            let next = self.bytes.get(self.at..).unwrap_or_default();
            let byte = match next {
                // A zero follows a byte that would be the beginning of a marker.
                [0xff, 0, ..] => {
                    self.at += 2;
                    0xff
                }
                [0xff, ..] | [] => {
                    self.missing = self.missing.saturating_add(8);
                    0
                }
                [byte, ..] => {
                    self.at += 1;
                    *byte
                }
            };
            self.bits = self.bits << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    /// The next bits without taking them, at most 16.
    #[inline]
    fn look(&self, count: u32) -> u32 {
        (self.bits >> (self.count - count)) as u32 & ((1 << count) - 1)
    }

    /// The next bits, at most 15.
    #[inline]
    pub fn take(&mut self, count: u8) -> u32 {
        self.fill();
        let taken = self.look(u32::from(count));
        self.count -= u32::from(count);
        taken
    }

    /// The next value of so many bits; those that begin with 0 are negative.
    #[inline]
    pub fn value(&mut self, count: u8) -> i32 {
        let bits = self.take(count) as i32;
        match count > 0 && bits < 1 << (count - 1) {
            true => bits + 1 - (1 << count),
            false => bits,
        }
    }

    /// Fails if more bits were taken than there are.
    pub fn check(&self) -> Result<(), String> {
        match self.missing > self.count {
            true => Err(format!("its data ends too early, at byte {}", self.at)),
            false => Ok(()),
        }
    }

    /// Goes to the restart marker of this number, which follows.
    pub fn restart(&mut self, number: usize) -> Result<(), String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_marker = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff);
        let found = rest.windows(2).position(is_marker);
        let marker = found.map(|found| usize::from(rest[found + 1]));
        if marker != Some(0xd0 + number) {
            let at = self.at;
            return Err(format!("restart marker {number} is missing at byte {at}"));
        }
        *self = Bits::new(self.bytes, self.at + found.unwrap_or(0) + 2);
        Ok(())
    }

    /// Where the scan ended, or some bytes later but not after the next marker.
    pub fn end(&self) -> usize {
        self.at
    }
}

/// A Huffman code.
pub struct Table {
    /// By the next [`LOOK_BITS`]: the code's length, 0 if it is longer, and its symbol.
    short: [(u8, u8); 1 << LOOK_BITS],
    /// By length: one after the last code, as the first of 16 bits, and the place of the first symbol less
    /// the first code.
    ends: [u32; 17],
    places: [i32; 17],
    symbols: Vec<u8>,
}

impl Table {
    /// The code of these symbols, of which `lengths` have 1, 2, 3 and more bits.
    ///
    /// # Errors
    ///
    /// When there are more of them than codes.
    pub fn new(lengths: &[u8; 16], symbols: &[u8]) -> Result<Table, String> {
        let mut table = Table {
            short: [(0, 0); 1 << LOOK_BITS],
            ends: [0; 17],
            places: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut next) = (0_u32, 0_usize);
        for (length, &count) in (1_u32..).zip(lengths) {
            table.places[length as usize] = next as i32 - code as i32;
            let of_length = symbols.get(next..next + usize::from(count));
            for &symbol in of_length.ok_or("a Huffman table is cut off")? {
                if code >= 1 << length {
                    return Err("a Huffman table has too many codes".to_string());
                }
                if length <= LOOK_BITS {
                    let free = LOOK_BITS - length;
                    let first = (code << free) as usize;
                    table.short[first..first + (1 << free)].fill((length as u8, symbol));
                }
                (code, next) = (code + 1, next + 1);
            }
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }

    /// The next symbol.
    #[inline]
    pub fn symbol(&self, bits: &mut Bits<'_>) -> Result<u8, String> {
        bits.fill();
        let (length, symbol) = self.short[bits.look(LOOK_BITS) as usize];
        if length > 0 {
            bits.count -= u32::from(length);
            return Ok(symbol);
        }
        self.long(bits)
    }

    /// The next symbol, whose code has more than [`LOOK_BITS`].
    #[cold]
    fn long(&self, bits: &mut Bits<'_>) -> Result<u8, String> {
        let next = bits.look(16);
        let length = (LOOK_BITS as usize + 1..=16).find(|&length| next < self.ends[length]);
        let length = length.ok_or("its data has a code that is not in the Huffman table")?;
        bits.count -= length as u32;
        let place = (next >> (16 - length)) as i32 + self.places[length];
        let symbol = usize::try_from(place)
            .ok()
            .and_then(|place| self.symbols.get(place));
        symbol
            .copied()
            .ok_or_else(|| "its data has a code that is not in the Huffman table".to_string())
    }
}
