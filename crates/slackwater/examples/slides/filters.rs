//! The filters: `clip` turns a request into the blocks that it covers, `tiles` reads and decodes them,
//! `subsample` halves them to the wanted scale. A block is the part of a tile that the request covers.
//!
//! What is wrong with a request or a tile becomes a row with an `error`, so that whoever asked gets it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, PrimitiveArray, StringViewArray, UInt32Array,
};
use arrow_schema::DataType;
use slackwater::functions::Functions;
use slackwater::functions::operator::{Call, Operator, Rows};

use super::pixels::{cut, halve};
use super::slide::{HALVINGS_MAX, Slide};
use super::slow::{self, Slow};

/// The most blocks of a request.
const BLOCKS_MAX: u64 = 1 << 16;

/// The columns that `clip` adds, all of them INT.
const PLACE: [&str; 11] = [
    "block",
    "of_blocks",
    "depth",
    "tile",
    "left",
    "top",
    "columns",
    "rows",
    "halvings",
    "to_x",
    "to_y",
];

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .operator("clip", &["slide", "together"], clip)
        .operator("tiles", &["slide"], tiles)
        .operator("subsample", &["repeat", "mark"], subsample);
}

/// The slide of a call's argument; each is opened once by a process.
fn slide(call: &Call) -> Result<Arc<Slide>, String> {
    static OPEN: Mutex<Option<HashMap<String, Arc<Slide>>>> = Mutex::new(None);
    let path = call.argument::<String>("slide")?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    if let Some(slide) = open.get(&path) {
        return Ok(Arc::clone(slide));
    }
    let slide = Arc::new(Slide::open(&path)?);
    open.insert(path, Arc::clone(&slide));
    Ok(slide)
}

fn of<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

fn ints(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

/// A request: a rectangle of the slide halved `level` times.
struct Request {
    level: i64,
    x: i64,
    y: i64,
    width: i64,
    height: i64,
    /// The most blocks that are wanted.
    blocks: Option<i64>,
}

/// The values of [`PLACE`].
type Place = [i32; 11];

impl Request {
    /// The blocks that a request covers, in the order of rows.
    fn blocks(&self, slide: &Slide) -> Result<Vec<Place>, String> {
        let max = slide.halvings_max();
        let level = u32::try_from(self.level)
            .ok()
            .and_then(|level| Some((level, slide.level_for(level)?)));
        let Some((halved, (number, halvings))) = level else {
            return Err(format!("level {} is not one of 0 to {max}", self.level));
        };
        let (width, height) = slide.size(halved);
        let fits = |from: i64, length: i64, whole: u32| {
            from >= 0
                && length > 0
                && from
                    .checked_add(length)
                    .is_some_and(|end| end <= i64::from(whole))
        };
        if !fits(self.x, self.width, width) || !fits(self.y, self.height, height) {
            let Request {
                x,
                y,
                width: columns,
                height: rows,
                ..
            } = self;
            return Err(format!(
                "{columns} x {rows} pixels at ({x}, {y}) are not inside of level {halved}, \
                 {width} x {height} pixels"
            ));
        }
        let level = &slide.levels()[number];
        let (tile_width, tile_height) = (level.tile_width, level.tile_height);
        let across = level.width.div_ceil(tile_width);
        let scaled = |from: i64, length: i64| {
            (
                (from as u32) << halvings,
                ((from + length) as u32) << halvings,
            )
        };
        let ((left, right), (top, bottom)) =
            (scaled(self.x, self.width), scaled(self.y, self.height));
        let (columns, rows) = (
            left / tile_width..=(right - 1) / tile_width,
            top / tile_height..=(bottom - 1) / tile_height,
        );
        let all = u64::from(columns.end() - columns.start() + 1)
            * u64::from(rows.end() - rows.start() + 1);
        let wanted = self
            .blocks
            .map_or(all, |blocks| all.min(blocks.max(1) as u64));
        if wanted > BLOCKS_MAX {
            return Err(format!(
                "{wanted} blocks, at most {BLOCKS_MAX}: ask for a part of them"
            ));
        }
        let tiles = rows.flat_map(|row| columns.clone().map(move |column| (column, row)));
        let places = tiles
            .take(wanted as usize)
            .enumerate()
            .map(|(block, (column, row))| {
                let (from_x, from_y) = (
                    (column * tile_width).max(left),
                    (row * tile_height).max(top),
                );
                let (to_x, to_y) = (
                    ((column + 1) * tile_width).min(right),
                    ((row + 1) * tile_height).min(bottom),
                );
                [
                    block as u32,
                    wanted as u32,
                    number as u32,
                    row * across + column,
                    from_x - column * tile_width,
                    from_y - row * tile_height,
                    to_x - from_x,
                    to_y - from_y,
                    halvings,
                    (from_x - left) >> halvings,
                    (from_y - top) >> halvings,
                ]
                .map(|value| value as i32)
            });
        Ok(places.collect())
    }
}

/// `CLIP(TABLE requests, slide [, together])`: a row for each block of a request. `together` blocks are
/// handed on at a time, 1 unless it is given.
fn clip(call: &Call) -> Result<Operator, String> {
    let slide = slide(call)?;
    let input = call.input()?;
    let [level, x, y, width, height, blocks] = ["level", "x", "y", "width", "height", "blocks"];
    let (level, x, y) = (
        input.column::<i64>(level)?,
        input.column::<i64>(x)?,
        input.column::<i64>(y)?,
    );
    let (width, height) = (input.column::<i64>(width)?, input.column::<i64>(height)?);
    let blocks = input.column::<i64>(blocks)?;
    let together = call.optional::<i64>("together")?.unwrap_or(1);
    let together = usize::try_from(together).ok().filter(|&rows| rows > 0);
    let together = together.ok_or("'together' must be at least 1")?;
    let rows = Operator::rows(move |batch| {
        slow::deals_here();
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        let mut places: [Vec<i32>; 11] = Default::default();
        for row in 0..batch.num_rows() {
            let number =
                |column: &slackwater::functions::operator::Column<i64>| of(column.of(batch), row);
            let request = || {
                Some(Request {
                    level: number(&level)?,
                    x: number(&x)?,
                    y: number(&y)?,
                    width: number(&width)?,
                    height: number(&height)?,
                    blocks: number(&blocks),
                })
            };
            let request =
                request().ok_or("level, x, y, width and height must not be NULL".to_string());
            let (found, error) = match request.and_then(|request| request.blocks(&slide)) {
                Ok(found) => (found, None),
                // One block, which fails.
                Err(error) => (vec![[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]], Some(error)),
            };
            for place in found {
                rows.push(row as u32);
                errors.push(error.clone());
                places
                    .iter_mut()
                    .zip(place)
                    .for_each(|(column, value)| column.push(value));
            }
        }
        let mut columns = places.map(ints).to_vec();
        columns.push(Arc::new(StringViewArray::from_iter(errors)));
        Ok(Rows::Made {
            of: Some(UInt32Array::from(rows)),
            columns,
        })
    });
    let columns = PLACE.iter().map(|&name| (name, DataType::Int32));
    let columns = columns
        .chain([("clipped", DataType::Utf8View)])
        .collect::<Vec<_>>();
    Ok(rows.columns(&columns).together(together))
}

/// `TILES(TABLE blocks, slide)`: the rows of `clip` with the pixels of their blocks, or an error.
fn tiles(call: &Call) -> Result<Operator, String> {
    let slide = slide(call)?;
    let input = call.input()?;
    let names = ["depth", "tile", "left", "top", "columns", "rows"];
    let places = names.map(|name| input.column::<i32>(name));
    let places = places.into_iter().collect::<Result<Vec<_>, String>>()?;
    let clipped = input.column::<&str>("clipped")?;
    let rows = Operator::rows(move |batch| {
        let clipped = clipped.of(batch);
        let found = (0..batch.num_rows()).map(|row| {
            if clipped.is_valid(row) {
                return Err(clipped.value(row).to_string());
            }
            let place = places.iter().map(|place| of(place.of(batch), row));
            let place = place
                .collect::<Option<Vec<i32>>>()
                .ok_or("a block without a place")?;
            block(
                &slide,
                &place
                    .into_iter()
                    .map(|number| number as usize)
                    .collect::<Vec<usize>>(),
            )
        });
        let (mut pixels, mut errors) = (Vec::new(), Vec::new());
        for found in found {
            errors.push(found.as_ref().err().cloned());
            pixels.push(found.ok());
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from_iter(pixels)),
            Arc::new(StringViewArray::from_iter(errors)),
        ];
        Ok(Rows::Made { of: None, columns })
    });
    let rows = rows.columns(&[("pixels", DataType::Binary), ("error", DataType::Utf8View)]);
    Ok(rows.dealt())
}

/// The pixels of a block.
fn block(slide: &Slide, place: &[usize]) -> Result<Vec<u8>, String> {
    let &[depth, tile, left, top, columns, rows] = place else {
        return Err("a block without a place".to_string());
    };
    let level = slide
        .levels()
        .get(depth)
        .ok_or_else(|| format!("no level {depth}"))?;
    let (width, height) = (level.tile_width as usize, level.tile_height as usize);
    if left.saturating_add(columns) > width || top.saturating_add(rows) > height {
        return Err(format!(
            "{columns} x {rows} pixels at ({left}, {top}) are not inside of a tile"
        ));
    }
    Ok(cut(
        &slide.tile(depth, tile)?,
        width,
        (left, top),
        (columns, rows),
    ))
}

/// `SUBSAMPLE(TABLE blocks [, repeat, mark])`: the rows of `tiles` with pixels halved as often as
/// `halvings` says, and their size as `columns` and `rows`. The rest is for measurements: it is computed
/// `repeat` times, and by one copy more often ([`Slow`]).
fn subsample(call: &Call) -> Result<Operator, String> {
    let input = call.input()?;
    let (columns, rows) = (
        input.column::<i32>("columns")?,
        input.column::<i32>("rows")?,
    );
    let halvings = input.column::<i32>("halvings")?;
    let pixels = input.column::<&[u8]>("pixels")?;
    let slow = Slow::of(call)?;
    let names = input
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str());
    let inner = [
        "pixels", "depth", "tile", "left", "top", "columns", "rows", "halvings", "clipped",
    ];
    let keeps = names
        .filter(|name| !inner.contains(name))
        .map(str::to_string);
    let keeps = keeps.collect::<Vec<String>>();
    let made = Operator::rows(move |batch| {
        let (columns, rows) = (columns.of(batch), rows.of(batch));
        let (halvings, pixels) = (halvings.of(batch), pixels.of(batch));
        let (mut halved, mut widths, mut heights) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let mut size = [columns, rows].map(|side| of(side, row).unwrap_or(0) as usize);
            let times = of(halvings, row).unwrap_or(0);
            if !(0..=HALVINGS_MAX as i32).contains(&times) {
                return Err(format!("halved {times} times, at most {HALVINGS_MAX}"));
            }
            let whole = pixels.is_valid(row).then(|| pixels.value(row));
            if whole.is_some_and(|pixels| pixels.len() != size[0] * size[1] * 3) {
                return Err("the pixels of a block are not of its size".to_string());
            }
            if let Some(pixels) = whole {
                slow.repeat(|| drop(std::hint::black_box(halve(pixels, size[0], size[1]))));
            }
            let mut part = whole.map(<[u8]>::to_vec);
            for _ in 0..times {
                part = part.map(|pixels| halve(&pixels, size[0], size[1]));
                size = size.map(|side| side / 2);
            }
            halved.push(part);
            widths.push(size[0] as i32);
            heights.push(size[1] as i32);
        }
        let columns = vec![
            Arc::new(BinaryArray::from_iter(halved)) as ArrayRef,
            ints(widths),
            ints(heights),
        ];
        Ok(Rows::Made { of: None, columns })
    });
    let columns = [
        ("pixels", DataType::Binary),
        ("columns", DataType::Int32),
        ("rows", DataType::Int32),
    ];
    let keeps = keeps.iter().map(String::as_str).collect::<Vec<&str>>();
    Ok(made.keeps(&keeps).columns(&columns))
}
