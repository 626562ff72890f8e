//! A slide: a pyramidal TIFF of tiles that are JPEG streams, as scanners write them and as OpenSlide's
//! generic format has them.
//!
//! The directories whose size is that of the first one, divided by a power of two, are the levels of the
//! pyramid. Others, such as a photograph of the label, are left out. All tiles are found by the tables of the
//! directories, which are read once; a tile is read when it is wanted, by any thread.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::decoder::decode;
use super::tiff::{Directory, Tiff};

/// The most directories that are looked at.
const DIRECTORIES_MAX: usize = 64;

/// How often pixels of a level may be halved: tiles are multiples of 16 wide and high.
pub const HALVINGS_MAX: u32 = 4;

/// The largest side of a tile, in pixels.
const TILE_MAX: u64 = 4096;

/// The largest side of a slide, in pixels.
const SIDE_MAX: u64 = 1 << 24;

/// The most bytes of a tile's stream.
const STREAM_BYTES_MAX: u64 = 64 << 20;

/// A slide.
pub struct Slide {
    path: String,
    file: File,
    /// From the finest one on.
    levels: Vec<Level>,
    /// The directories that are left out, and why.
    pub left_out: Vec<String>,
}

/// A level of the pyramid.
pub struct Level {
    /// The name of its directory.
    pub directory: String,
    /// How often the slide is halved to have this size.
    pub halvings: u32,
    pub width: u32,
    pub height: u32,
    pub tile_width: u32,
    pub tile_height: u32,
    /// Where each tile is, and how many bytes it has.
    tiles: Vec<(u64, u64)>,
    /// What comes before each tile's stream.
    tables: Vec<u8>,
    /// Whether the components are red, green and blue.
    is_rgb: bool,
}

impl Slide {
    /// Opens a slide.
    ///
    /// # Errors
    ///
    /// What is wrong with the file, or is not supported.
    pub fn open(path: &str) -> Result<Slide, String> {
        let failed = |reason: String| format!("{path}: {reason}");
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut tiff = Tiff::open(&file).map_err(&failed)?;
        let directory = tiff.next().map_err(&failed)?;
        let directory = directory.ok_or_else(|| failed("it has no directory".to_string()))?;
        let first = level(&directory, "directory 0").map_err(|reason| {
            let how = "vips tiffsave IN OUT.tif --tile --pyramid --compression jpeg";
            failed(format!("directory 0: {reason} (this converts it: {how})"))
        })?;
        let (mut levels, mut left_out) = (vec![first], Vec::new());
        let mut add = |name: String, directory: &Directory| {
            let found = level(directory, &name);
            match found.and_then(|level| of_pyramid(&levels, level)) {
                Ok(level) => levels.push(level),
                Err(reason) => left_out.push(format!("{name}: {reason}")),
            }
        };
        // Some programs put the smaller levels here instead of after the first.
        let smaller = directory.numbers("SubIFDs", Some(0)).map_err(&failed)?;
        let smaller = smaller.into_iter().filter(|&at| at > 0);
        for (number, at) in smaller.take(DIRECTORIES_MAX).enumerate() {
            let (directory, _) = tiff.directory(at).map_err(&failed)?;
            add(format!("directory 0, SubIFD {number}"), &directory);
        }
        for number in 1..DIRECTORIES_MAX {
            let Some(directory) = tiff.next().map_err(&failed)? else {
                break;
            };
            add(format!("directory {number}"), &directory);
        }
        Ok(Slide {
            path: path.to_string(),
            file,
            levels,
            left_out,
        })
    }

    /// The width and height of the slide when it was halved so often.
    pub fn size(&self, halvings: u32) -> (u32, u32) {
        let first = &self.levels[0];
        let shift = |side: u32| side.checked_shr(halvings).unwrap_or(0);
        (shift(first.width), shift(first.height))
    }

    /// How often the slide can be halved.
    pub fn halvings_max(&self) -> u32 {
        let last = self.levels.last().map_or(0, |level| level.halvings);
        let all = last..=last + HALVINGS_MAX;
        all.rev()
            .find(|&halvings| self.size(halvings).0.min(self.size(halvings).1) > 0)
            .unwrap_or(0)
    }

    /// The levels of the pyramid, from the finest one on.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The number of the level whose pixels have to be halved least to be halved so often, and how often they
    /// still have to be. None if the slide can't be halved so often.
    pub fn level_for(&self, halvings: u32) -> Option<(usize, u32)> {
        if halvings > self.halvings_max() {
            return None;
        }
        let number = self
            .levels
            .iter()
            .rposition(|level| level.halvings <= halvings)?;
        let rest = halvings - self.levels[number].halvings;
        (rest <= HALVINGS_MAX).then_some((number, rest))
    }

    /// The pixels of a tile. Those at the right and lower edge are whole, too.
    ///
    /// # Errors
    ///
    /// What is wrong with the tile.
    pub fn tile(&self, level: usize, tile: usize) -> Result<Vec<u8>, String> {
        let level = self.levels.get(level).ok_or("no such level")?;
        let at = level.tiles.get(tile).copied();
        let (offset, length) = at.ok_or_else(|| format!("{}: no tile {tile}", self.path))?;
        let failed = |reason: String| {
            let (path, directory) = (&self.path, &level.directory);
            format!("{path}: {directory}, tile {tile} (at byte {offset}): {reason}")
        };
        let (width, height) = (level.tile_width as usize, level.tile_height as usize);
        if length == 0 {
            // What the scanner did not see.
            return Ok(vec![255; width * height * 3]);
        }
        if !(4..=STREAM_BYTES_MAX).contains(&length) {
            return Err(failed(format!("{length} bytes are not a JPEG stream")));
        }
        let before = level.tables.len();
        // Of a stream after tables the first marker is not repeated.
        let skipped = if before > 0 { 2 } else { 0 };
        let mut bytes = level.tables.clone();
        bytes.resize(before + length as usize - skipped, 0);
        let read = self
            .file
            .read_exact_at(&mut bytes[before..], offset + skipped as u64);
        read.map_err(|error| failed(format!("can't read its {length} bytes: {error}")))?;
        decode(&bytes, (width, height), level.is_rgb)
            .map_err(|error| failed(format!("not a valid JPEG stream: {error}")))
    }
}

/// A directory as a level that is not halved.
fn level(directory: &Directory, name: &str) -> Result<Level, String> {
    let wanted = |tag, missing: Option<u64>, right: &[u64], what: &str| {
        let found = directory.numbers(tag, missing)?;
        match found.iter().all(|number| right.contains(number)) {
            true => Ok(found[0]),
            false => Err(format!(
                "{tag} is {}, and only {what} is supported",
                found[0]
            )),
        }
    };
    wanted("Compression", Some(1), &[7], "7 (JPEG)")?;
    let colors = wanted(
        "PhotometricInterpretation",
        None,
        &[2, 6],
        "2 (RGB) or 6 (YCbCr)",
    )?;
    wanted("SamplesPerPixel", Some(1), &[3], "3")?;
    wanted("BitsPerSample", Some(1), &[8], "8")?;
    wanted(
        "PlanarConfiguration",
        Some(1),
        &[1],
        "1 (all samples of a pixel together)",
    )?;
    let side = |tag| {
        let numbers = directory.numbers(tag, None);
        let number = numbers
            .map_err(|reason| format!("{reason}: is it in strips? only tiles are supported"))?[0];
        match number > 0 && number % 16 == 0 && number <= TILE_MAX {
            true => Ok(number as u32),
            false => Err(format!(
                "a tile of {number} pixels: must be a multiple of 16 up to {TILE_MAX}"
            )),
        }
    };
    let (tile_width, tile_height) = (side("TileWidth")?, side("TileLength")?);
    let size = |tag| match directory.numbers(tag, None)?[0] {
        pixels if (1..=SIDE_MAX).contains(&pixels) => Ok(pixels as u32),
        pixels => Err(format!("{tag} is {pixels}: must be from 1 to {SIDE_MAX}")),
    };
    let (width, height) = (size("ImageWidth")?, size("ImageLength")?);
    let offsets = directory.numbers("TileOffsets", None)?;
    let lengths = directory.numbers("TileByteCounts", None)?;
    let tiles = u64::from(width.div_ceil(tile_width)) * u64::from(height.div_ceil(tile_height));
    if offsets.len() as u64 != tiles || lengths.len() as u64 != tiles {
        let (offsets, lengths) = (offsets.len(), lengths.len());
        return Err(format!(
            "{tiles} tiles, and {offsets} offsets and {lengths} lengths"
        ));
    }
    let tables = directory.bytes("JPEGTables")?;
    let tables = match tables.strip_suffix(&[0xff, 0xd9]) {
        Some(tables) => tables.to_vec(),
        None if tables.is_empty() => tables,
        None => return Err("JPEGTables do not end as a JPEG stream".to_string()),
    };
    Ok(Level {
        directory: name.to_string(),
        halvings: 0,
        width,
        height,
        tile_width,
        tile_height,
        tiles: offsets.into_iter().zip(lengths).collect(),
        tables,
        is_rgb: colors == 2,
    })
}

/// The level, if its size fits in with those before it.
fn of_pyramid(levels: &[Level], mut level: Level) -> Result<Level, String> {
    let (first, last) = (&levels[0], &levels[levels.len() - 1]);
    let ratio = f64::from(first.width) / f64::from(level.width);
    level.halvings = ratio.log2().round().clamp(0.0, 31.0) as u32;
    // Rounded down or up: pixels beyond the level's edge are never asked for, because sizes are rounded down.
    let fits = |whole: u32, part: u32| {
        let down = whole.checked_shr(level.halvings).unwrap_or(0);
        let rest = u64::from(whole) - (u64::from(down) << level.halvings);
        part == down || (rest > 0 && part == down + 1)
    };
    if !fits(first.width, level.width) || !fits(first.height, level.height) {
        let (width, height) = (level.width, level.height);
        return Err(format!(
            "{width} x {height} pixels are not the slide divided by a power of two"
        ));
    }
    match level.halvings > last.halvings {
        true => Ok(level),
        false => Err("it is not smaller than the level before it".to_string()),
    }
}
