//! A JPEG decoder for the tiles of a slide: three components of 8 bits, Huffman codes, sequential or
//! progressive. Its pixels are those of libjpeg-turbo, byte for byte ([`super::planes`]).
//!
//! Decoders on crates.io round differently, or have much `unsafe` code, which is no place to read files from
//! elsewhere with. What is wrong with a stream is an error; half a picture is never returned.

use super::bits::{Bits, Table};
use super::jpeg::ZIGZAG;
use super::planes::{self, Plane};
use super::scan::{Scan, sequential};

/// How many components there are: red, green and blue, or luminance and two of color.
const COMPONENTS: usize = 3;

/// The most blocks of a unit, by the standard.
const UNIT_BLOCKS_MAX: usize = 10;

/// The most scans. A progressive picture has about ten; each costs as much as the whole picture.
const SCANS_MAX: usize = 100;

/// What a frame says of a component, and its coefficients.
struct Component {
    id: u8,
    /// The number of its quantization table.
    table: usize,
    /// How many blocks of a unit it has, in both directions.
    per_unit: (usize, usize),
    /// How many pixels one sample is for, in both directions.
    pixels: (usize, usize),
    /// Its size in samples.
    size: (usize, usize),
    /// The blocks in a row, and rows of them; both fill whole units.
    blocks: (usize, usize),
    /// 64 for each block, row by row.
    coefficients: Vec<i16>,
    /// The quantization table as it is at the component's first scan.
    quanta: Option<[u16; 64]>,
}

/// A picture's size, and its components.
struct Frame {
    is_progressive: bool,
    /// How many units there are in a row, and rows of them.
    units: (usize, usize),
    components: Vec<Component>,
}

/// What was read so far.
struct Decoder<'b> {
    bytes: &'b [u8],
    at: usize,
    quanta: [Option<[u16; 64]>; 4],
    dc: [Option<Table>; 4],
    ac: [Option<Table>; 4],
    /// How many units there are between restart markers; 0 without any.
    restart: usize,
    frame: Option<Frame>,
}

/// Decodes a stream to red, green and blue. `size` is the one that the picture must have. `is_rgb`: its
/// components are these already.
///
/// # Errors
///
/// What is wrong with the stream, or not supported.
pub fn decode(bytes: &[u8], size: (usize, usize), is_rgb: bool) -> Result<Vec<u8>, String> {
    let mut decoder = Decoder {
        bytes,
        at: 0,
        quanta: [None; 4],
        dc: [const { None }; 4],
        ac: [const { None }; 4],
        restart: 0,
        frame: None,
    };
    decoder.read(size)?;
    let frame = decoder.frame.ok_or("it has no picture")?;
    let mut planes = Vec::new();
    for component in &frame.components {
        let id = component.id;
        let missing = || format!("it has no data of component {id}");
        let quanta = component.quanta.as_ref().ok_or_else(missing)?;
        planes.push(Plane::of(
            &component.coefficients,
            quanta,
            component.blocks,
            component.size,
            component.pixels,
        ));
    }
    Ok(planes::rgb(&planes, size, is_rgb))
}

impl<'b> Decoder<'b> {
    /// Reads the segments up to the end of the picture.
    fn read(&mut self, size: (usize, usize)) -> Result<(), String> {
        if self.bytes.first_chunk() != Some(&[0xff, 0xd8]) {
            return Err("it does not begin as a JPEG stream".to_string());
        }
        self.at = 2;
        let mut scans = 0;
        loop {
            match self.marker()? {
                0xd9 => return Ok(()),
                // Without a segment.
                0x01 | 0xd0..=0xd8 => {}
                0xdb => self.quantization()?,
                0xc4 => self.huffman()?,
                kind @ 0xc0..=0xc2 => self.frame(kind == 0xc2, size)?,
                kind @ 0xc3..=0xcf => {
                    return Err(format!("JPEG of kind {} is not supported", kind - 0xc0));
                }
                0xdd => {
                    let [high, low] = *self.segment()?.first_chunk().ok_or("a segment is short")?;
                    self.restart = usize::from(u16::from_be_bytes([high, low]));
                }
                0xda => {
                    scans += 1;
                    if scans > SCANS_MAX {
                        return Err(format!("it has more than {SCANS_MAX} scans"));
                    }
                    self.scan()?;
                }
                _ => drop(self.segment()?),
            }
        }
    }

    /// The next marker; what is before it is skipped.
    fn marker(&mut self) -> Result<u8, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_marker = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff);
        let found = rest.windows(2).position(is_marker);
        let found = found.ok_or_else(|| format!("it ends at byte {}", self.bytes.len()))?;
        self.at += found + 2;
        Ok(rest[found + 1])
    }

    /// The bytes of a segment after its length.
    fn segment(&mut self) -> Result<&'b [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest
            .first_chunk()
            .map_or(0, |length| u16::from_be_bytes(*length));
        let segment = rest.get(2..usize::from(length));
        let segment = segment.ok_or_else(|| format!("a segment at byte {} is cut off", self.at))?;
        self.at += usize::from(length);
        Ok(segment)
    }

    fn quantization(&mut self) -> Result<(), String> {
        let mut rest = self.segment()?;
        while let Some((&head, values)) = rest.split_first() {
            let (is_wide, number) = (head >> 4 != 0, usize::from(head & 15));
            let bytes = if is_wide { 128 } else { 64 };
            let (values, after) = values
                .split_at_checked(bytes)
                .ok_or("a quantization table is cut off")?;
            let table = self.quanta.get_mut(number);
            let table = table.ok_or_else(|| format!("it has a quantization table {number}"))?;
            let table = table.insert([0; 64]);
            for (&place, value) in ZIGZAG.iter().zip(values.chunks(bytes / 64)) {
                table[place] = value
                    .iter()
                    .fold(0, |all, &byte| all << 8 | u16::from(byte));
            }
            rest = after;
        }
        Ok(())
    }

    fn huffman(&mut self) -> Result<(), String> {
        let mut rest = self.segment()?;
        while let Some((&head, after)) = rest.split_first() {
            let (lengths, after) = after
                .split_first_chunk()
                .ok_or("a Huffman table is cut off")?;
            let count = lengths.iter().map(|&count: &u8| usize::from(count)).sum();
            let symbols = after.split_at_checked(count);
            let (symbols, after) = symbols.ok_or("a Huffman table is cut off")?;
            let tables = match head >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                class => return Err(format!("it has a Huffman table of class {class}")),
            };
            let table = tables.get_mut(usize::from(head & 15));
            let table = table.ok_or_else(|| format!("it has a Huffman table {}", head & 15))?;
            *table = Some(Table::new(lengths, symbols)?);
            rest = after;
        }
        Ok(())
    }

    fn frame(&mut self, is_progressive: bool, size: (usize, usize)) -> Result<(), String> {
        if self.frame.is_some() {
            return Err("it has two pictures".to_string());
        }
        let segment = self.segment()?;
        let (head, rest) = segment.split_first_chunk().ok_or("a frame is cut off")?;
        let &[bits, height_high, height_low, width_high, width_low, count] = head;
        let side = |high, low| usize::from(u16::from_be_bytes([high, low]));
        let (width, height) = (side(width_high, width_low), side(height_high, height_low));
        if (width, height) != size {
            return Err(format!(
                "it has {width} x {height} pixels, and the tile {} x {}",
                size.0, size.1
            ));
        }
        if bits != 8 || usize::from(count) != COMPONENTS || rest.len() != COMPONENTS * 3 {
            return Err(format!(
                "it has {count} components of {bits} bits, and only {COMPONENTS} of 8 are supported"
            ));
        }
        let parts = rest.chunks_exact(3).map(|part| {
            let per_unit = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            (part[0], per_unit, usize::from(part[2]))
        });
        let parts = parts.collect::<Vec<(u8, (usize, usize), usize)>>();
        let most = |of: fn(&(usize, usize)) -> usize| parts.iter().map(|part| of(&part.1)).max();
        let (across, down) = (
            most(|per| per.0).unwrap_or(0),
            most(|per| per.1).unwrap_or(0),
        );
        for (id, (x, y), _) in &parts {
            let fits =
                |part: usize, whole: usize| (1..=4).contains(&part) && whole.is_multiple_of(part);
            if !fits(*x, across) || !fits(*y, down) {
                return Err(format!(
                    "component {id} has a sampling of {x} x {y}, which is not supported"
                ));
            }
        }
        let units = (width.div_ceil(8 * across), height.div_ceil(8 * down));
        let component = |(id, per_unit, table): (u8, (usize, usize), usize)| {
            let blocks = (units.0 * per_unit.0, units.1 * per_unit.1);
            let size = (
                (width * per_unit.0).div_ceil(across),
                (height * per_unit.1).div_ceil(down),
            );
            Component {
                id,
                table,
                per_unit,
                pixels: (across / per_unit.0, down / per_unit.1),
                size,
                blocks,
                coefficients: vec![0; blocks.0 * blocks.1 * 64],
                quanta: None,
            }
        };
        self.frame = Some(Frame {
            is_progressive,
            units,
            components: parts.into_iter().map(component).collect(),
        });
        Ok(())
    }

    fn scan(&mut self) -> Result<(), String> {
        let segment = self.segment()?;
        let frame = self
            .frame
            .as_mut()
            .ok_or("it has a scan before the picture's size")?;
        let ids = frame.components.iter().map(|component| component.id);
        let scan = Scan::of(segment, &ids.collect::<Vec<u8>>(), frame.is_progressive)?;
        let mut blocks_of_unit = 0;
        for &(number, _, _) in &scan.parts {
            let component = &mut frame.components[number];
            blocks_of_unit += component.per_unit.0 * component.per_unit.1;
            let quanta = self.quanta.get(component.table).copied().flatten();
            let table = component.table;
            let quanta = quanta.ok_or_else(|| format!("quantization table {table} is missing"))?;
            component.quanta.get_or_insert(quanta);
        }
        if scan.parts.len() > 1 && blocks_of_unit > UNIT_BLOCKS_MAX {
            return Err(format!(
                "{blocks_of_unit} blocks of a unit, at most {UNIT_BLOCKS_MAX}"
            ));
        }
        let alone = match scan.parts.as_slice() {
            [(number, _, _)] => Some(frame.components[*number].size),
            _ => None,
        };
        // A component alone is not in units: its rows end with the last block that has samples.
        let (across, down) = match alone {
            Some((width, height)) => (width.div_ceil(8), height.div_ceil(8)),
            None => frame.units,
        };
        let mut bits = Bits::new(self.bytes, self.at);
        let (mut last, mut to_skip) = ([0_i32; COMPONENTS], 0_u32);
        for unit in 0..across * down {
            if self.restart > 0 && unit > 0 && unit.is_multiple_of(self.restart) {
                bits.restart((unit / self.restart - 1) % 8)?;
                (last, to_skip) = ([0; COMPONENTS], 0);
            }
            let (unit_x, unit_y) = (unit % across, unit / across);
            for &(number, dc, ac) in &scan.parts {
                let Component {
                    per_unit,
                    blocks,
                    coefficients,
                    ..
                } = &mut frame.components[number];
                let (columns, rows) = if alone.is_some() { (1, 1) } else { *per_unit };
                let tables = (self.dc[dc].as_ref(), self.ac[ac].as_ref());
                for block in 0..columns * rows {
                    let x = unit_x * columns + block % columns;
                    let y = unit_y * rows + block / columns;
                    let at = (y * blocks.0 + x) * 64;
                    let Some(block) = coefficients[at..].first_chunk_mut() else {
                        return Err("a block is outside".to_string());
                    };
                    match frame.is_progressive {
                        false => sequential(&mut bits, block, tables, &mut last[number])?,
                        true if scan.from == 0 => {
                            scan.first(&mut bits, block, tables.0, &mut last[number])?;
                        }
                        true if scan.high == 0 => {
                            scan.others(&mut bits, block, tables.1, &mut to_skip)?;
                        }
                        true => scan.refine(&mut bits, block, tables.1, &mut to_skip)?,
                    }
                }
            }
            bits.check()?;
        }
        self.at = bits.end();
        Ok(())
    }
}
