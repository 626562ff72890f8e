//! Writes a pyramid as scanners of slides do: a TIFF with a directory for each level, of tiles that are JPEG
//! streams with common tables. Each level is a quarter as wide and high as the one before.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;

use super::jpeg::Encoder;
use super::pixels::halve;
use super::tissue;

/// How often a level is halved to get the next one.
const HALVINGS: u32 = 2;

/// A level is the last one if it fits into a square of this side, in pixels.
const SMALLEST: usize = 512;

/// Offsets in the file have 32 bits.
const FILE_BYTES_MAX: u64 = u32::MAX as u64;

/// What is generated.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The size of the slide in pixels.
    pub width: usize,
    pub height: usize,
    /// The side of a tile in pixels, a multiple of 16.
    pub tile: usize,
    pub quality: u32,
    pub seed: u64,
}

/// The fields of a directory: tag, type, values.
type Field = (u16, u16, Vec<u32>);

const SHORT: u16 = 3;
const LONG: u16 = 4;
const UNDEFINED: u16 = 7;

impl Plan {
    /// Writes the slide.
    ///
    /// # Errors
    ///
    /// What is wrong with the plan, or with the file.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let place = path.display();
        if self.tile == 0 || !self.tile.is_multiple_of(16) || self.tile > 4096 {
            return Err(format!(
                "--tile {}: must be a multiple of 16, at most 4096",
                self.tile
            ));
        }
        let sides = 1..=1 << 20;
        if !sides.contains(&self.width) || !sides.contains(&self.height) {
            return Err(format!(
                "--width {} --height {}: from 1 to {}",
                self.width,
                self.height,
                1 << 20
            ));
        }
        self.levels(path)
            .map_err(|error| format!("{place}: {error}"))
    }

    fn levels(&self, path: &Path) -> Result<(), std::io::Error> {
        let encoder = Encoder::new(self.quality);
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(b"II*\0\0\0\0\0")?;
        let mut link = 4;
        let (mut width, mut height) = (self.width, self.height);
        // The pixels of a level below the first.
        let mut pixels: Option<Vec<u8>> = None;
        loop {
            let mut smaller = Vec::new();
            let mut tiles = Vec::new();
            for top in (0..height).step_by(self.tile) {
                let rows = self.tile.min(height - top);
                let band = match &pixels {
                    Some(pixels) => pixels[top * width * 3..(top + rows) * width * 3].to_vec(),
                    None => self.band(top, rows),
                };
                for tile in self.encode(&encoder, &band, width, rows) {
                    tiles.push((file.stream_position()?, tile.len()));
                    file.write_all(&tile)?;
                }
                let (mut half, mut size) = (band, (width, rows));
                for _ in 0..HALVINGS {
                    (half, size) = (halve(&half, size.0, size.1), (size.0 / 2, size.1 / 2));
                }
                smaller.extend(half);
            }
            let at = file.stream_position()?.next_multiple_of(2);
            if at > FILE_BYTES_MAX - (1 << 24) {
                return Err(std::io::Error::other(
                    "the slide needs more than 4 GiB: make it smaller",
                ));
            }
            file.seek(SeekFrom::Start(link))?;
            file.write_all(&(at as u32).to_le_bytes())?;
            file.seek(SeekFrom::Start(at))?;
            let is_reduced = pixels.is_some();
            link = directory(
                &mut file,
                at,
                self.fields(&encoder, (width, height), is_reduced, &tiles),
            )?;
            (width, height) = (width >> HALVINGS, height >> HALVINGS);
            if (width << HALVINGS).max(height << HALVINGS) <= SMALLEST || width.min(height) == 0 {
                return file.flush();
            }
            pixels = Some(smaller);
        }
    }

    /// Rows of the first level. Bands are computed by several threads.
    fn band(&self, top: usize, rows: usize) -> Vec<u8> {
        let mut band = vec![0; rows * self.width * 3];
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let together = rows.div_ceil(threads);
        thread::scope(|scope| {
            for (part, pixels) in band.chunks_mut(together * self.width * 3).enumerate() {
                let from = top + part * together;
                scope.spawn(move || {
                    for (at, pixel) in pixels.chunks_exact_mut(3).enumerate() {
                        let (x, y) = (at % self.width, from + at / self.width);
                        pixel.copy_from_slice(&tissue::pixel(x as i64, y as i64, self.seed));
                    }
                });
            }
        });
        band
    }

    /// The tiles of a band. What is outside of the level repeats its last column or row.
    fn encode(&self, encoder: &Encoder, band: &[u8], width: usize, rows: usize) -> Vec<Vec<u8>> {
        let side = self.tile;
        let tile = |left: usize| {
            let mut pixels = Vec::with_capacity(side * side * 3);
            for row in 0..side {
                let from = row.min(rows - 1) * width;
                let inside = side.min(width - left);
                pixels.extend(&band[(from + left) * 3..(from + left + inside) * 3]);
                let last = &band[(from + left + inside - 1) * 3..(from + left + inside) * 3];
                (inside..side).for_each(|_| pixels.extend(last));
            }
            encoder.encode(&pixels, side, side)
        };
        let lefts = (0..width).step_by(side).collect::<Vec<usize>>();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let parts = lefts.chunks(lefts.len().div_ceil(threads));
        thread::scope(|scope| {
            let parts =
                parts.map(|part| scope.spawn(|| part.iter().map(|&left| tile(left)).collect()));
            let parts = parts.collect::<Vec<thread::ScopedJoinHandle<'_, Vec<Vec<u8>>>>>();
            parts
                .into_iter()
                .flat_map(|part| part.join().expect("encoding does not fail"))
                .collect()
        })
    }

    fn fields(
        &self,
        encoder: &Encoder,
        (width, height): (usize, usize),
        is_reduced: bool,
        tiles: &[(u64, usize)],
    ) -> Vec<Field> {
        let long = |tag: u16, value: usize| (tag, LONG, vec![value as u32]);
        let tables = encoder.tables().into_iter().map(u32::from).collect();
        vec![
            long(254, usize::from(is_reduced)),
            long(256, width),
            long(257, height),
            (258, SHORT, vec![8, 8, 8]),
            // JPEG, YCbCr.
            (259, SHORT, vec![7]),
            (262, SHORT, vec![6]),
            (277, SHORT, vec![3]),
            (284, SHORT, vec![1]),
            long(322, self.tile),
            long(323, self.tile),
            (324, LONG, tiles.iter().map(|tile| tile.0 as u32).collect()),
            (325, LONG, tiles.iter().map(|tile| tile.1 as u32).collect()),
            (347, UNDEFINED, tables),
            (530, SHORT, vec![1, 1]),
        ]
    }
}

/// Writes a directory at the file's position `at`, and what its fields have no room for after it. Returns the
/// position of the link to the next one.
fn directory(file: &mut (impl Write + Seek), at: u64, fields: Vec<Field>) -> std::io::Result<u64> {
    let link = at + 2 + 12 * fields.len() as u64;
    let mut next = link as u32 + 4;
    let mut entries = (fields.len() as u16).to_le_bytes().to_vec();
    let mut outside = Vec::new();
    for (tag, kind, values) in fields {
        let mut bytes = match kind {
            SHORT => values
                .iter()
                .flat_map(|&value| (value as u16).to_le_bytes())
                .collect(),
            LONG => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            _ => values.iter().map(|&value| value as u8).collect::<Vec<u8>>(),
        };
        entries.extend(tag.to_le_bytes().into_iter().chain(kind.to_le_bytes()));
        entries.extend((values.len() as u32).to_le_bytes());
        if bytes.len() <= 4 {
            bytes.resize(4, 0);
            entries.extend(bytes);
        } else {
            bytes.resize(bytes.len().next_multiple_of(2), 0);
            entries.extend(next.to_le_bytes());
            next += bytes.len() as u32;
            outside.extend(bytes);
        }
    }
    file.write_all(&entries)?;
    file.write_all(&[0; 4])?;
    file.write_all(&outside)?;
    Ok(link)
}
