//! `view`: the blocks of each request become its update. A request is a unit of work: each of its blocks is
//! emitted with how many are there, and with the last one the unit ends.

use slackwater::functions::operator::{Call, Column, KeyedOperator, Operator, Out, Row};
use slackwater::functions::{Functions, Time};

/// Adds it to the language.
pub fn add(functions: &mut Functions) {
    functions.operator("view", &[], View::plan);
}

/// `VIEW(TABLE blocks PARTITION BY (viewer, request))`: the rows of `subsample`, with `done`, the number of
/// blocks of the request so far. A block that comes again, after a restart, is emitted again and counts once.
struct View {
    /// The number of the block, of how many, where it belongs in the update, and its size.
    place: [Column<i32>; 6],
    pixels: Column<&'static [u8]>,
    error: Column<&'static str>,
}

impl View {
    fn plan(call: &Call) -> Result<Operator, String> {
        let input = call.input()?;
        if !input.is_keyed() {
            return Err("needs PARTITION BY (viewer, request)".to_string());
        }
        let column = |name: &str| input.column::<i32>(name);
        let place = [
            column("block")?,
            column("of_blocks")?,
            column("to_x")?,
            column("to_y")?,
            column("columns")?,
            column("rows")?,
        ];
        let view = View {
            place,
            pixels: input.column("pixels")?,
            error: input.column("error")?,
        };
        let columns = [
            "block", "blocks", "done", "x", "y", "width", "height", "error", "pixels",
        ];
        Ok(Operator::keyed(view, &columns).forgets())
    }
}

impl KeyedOperator for View {
    /// The blocks that are there, a bit each.
    type State = Vec<u8>;
    type Saved = Vec<u8>;
    type Row = (
        i32,
        i32,
        i32,
        i32,
        i32,
        i32,
        i32,
        Option<String>,
        Option<Vec<u8>>,
    );

    fn on_row(
        &self,
        there: &mut Vec<u8>,
        row: &Row<'_>,
        out: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        let [block, blocks, x, y, width, height] =
            self.place.map(|column| row.get(column).unwrap_or(-1));
        if block < 0 || block >= blocks {
            return Err(format!("block {block} of {blocks}"));
        }
        let (byte, bit) = (block as usize / 8, 1 << (block % 8));
        if there.len() <= byte {
            there.resize((blocks as usize).div_ceil(8).max(byte + 1), 0);
        }
        there[byte] |= bit;
        let done = there.iter().map(|byte| byte.count_ones()).sum::<u32>() as i32;
        let error = row.get(self.error).map(str::to_string);
        let pixels = row.get(self.pixels).map(<[u8]>::to_vec);
        out.emit((block, blocks, done, x, y, width, height, error, pixels));
        if done == blocks {
            out.forget();
        }
        Ok(())
    }

    fn on_time(
        &self,
        _: &mut Vec<u8>,
        _: Time,
        _: &mut Out<'_, '_, Self::Row>,
    ) -> Result<(), String> {
        Ok(())
    }

    fn save(&self, there: &Vec<u8>) -> Vec<u8> {
        there.clone()
    }

    fn load(&self, saved: Vec<u8>) -> Vec<u8> {
        saved
    }
}
