//! A baseline JPEG encoder for the tiles of a generated slide: 8 bits, YCbCr without subsampling, the
//! standard's Huffman tables, and its quantization tables scaled to a quality.
//!
//! The encoders on crates.io are either under a license that this project's list does not have, or bring a
//! library of image formats along. Tests read its output with libjpeg-turbo.

/// The order in which the 64 coefficients of a block are stored.
pub const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The quantization tables of the standard's annex K, of luminance and chrominance.
const QUANTA: [[u16; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69,
        56, 14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81,
        104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99,
        99, 47, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// The Huffman tables of annex K: how many codes there are of each length, and their symbols. For luminance
/// DC and AC, and chrominance DC and AC.
const DC_LENGTHS: [[u8; 16]; 2] = [
    [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
];
const DC_SYMBOLS: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const AC_LENGTHS: [[u8; 16]; 2] = [
    [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d],
    [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77],
];
const AC_SYMBOLS: [&str; 2] = [
    "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a2526272829\
     2a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92\
     939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5\
     e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa",
    "000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a2627\
     28292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a8283848586878889\
     8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4\
     e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa",
];

/// The factors by which the transform of Arai, Agui and Nakajima scales its rows and columns.
const SCALES: [f32; 8] = [
    1.0,
    1.387_039_9,
    1.306_563,
    1.175_875_6,
    1.0,
    0.785_694_96,
    0.541_196_1,
    0.275_899_38,
];

/// A Huffman code: for each symbol its bits and their number.
type Codes = [(u16, u8); 256];

/// An encoder of one quality.
pub struct Encoder {
    /// The quantization tables, in the order of rows.
    quanta: [[u8; 64]; 2],
    /// What a coefficient of the transform is multiplied by.
    divisors: [[f32; 64]; 2],
    dc: [Codes; 2],
    ac: [Codes; 2],
}

fn ac_symbols(kind: usize) -> Vec<u8> {
    let digits = AC_SYMBOLS[kind].bytes();
    let digits = digits.map(|digit| (digit as char).to_digit(16).unwrap_or(0) as u8);
    let digits = digits.collect::<Vec<u8>>();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn codes(lengths: &[u8; 16], symbols: &[u8]) -> Codes {
    let mut codes = [(0, 0); 256];
    let (mut code, mut next) = (0_u16, 0);
    for (length, &count) in lengths.iter().enumerate() {
        for _ in 0..count {
            codes[symbols[next] as usize] = (code, length as u8 + 1);
            code += 1;
            next += 1;
        }
        code <<= 1;
    }
    codes
}

/// Bits that become bytes.
struct Bits {
    bytes: Vec<u8>,
    bits: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, (bits, count): (u16, u8)) {
        self.bits = self.bits << count | u32::from(bits);
        self.count += u32::from(count);
        while self.count >= 8 {
            let byte = (self.bits >> (self.count - 8)) as u8;
            self.bytes.push(byte);
            if byte == 0xff {
                // So that it is no marker.
                self.bytes.push(0);
            }
            self.count -= 8;
        }
        self.bits &= (1 << self.count) - 1;
    }
}

/// The bits of a value after its number of bits.
fn magnitude(value: i32) -> (u16, u8) {
    let size = 32 - value.unsigned_abs().leading_zeros();
    let value = if value < 0 { value - 1 } else { value };
    ((value & ((1 << size) - 1)) as u16, size as u8)
}

/// The transform of eight values, scaled.
fn transform(v: &mut [f32; 64], at: usize, step: usize) {
    let get = |n: usize| v[at + n * step];
    let (s07, d07) = (get(0) + get(7), get(0) - get(7));
    let (s16, d16) = (get(1) + get(6), get(1) - get(6));
    let (s25, d25) = (get(2) + get(5), get(2) - get(5));
    let (s34, d34) = (get(3) + get(4), get(3) - get(4));
    let (e0, e3, e1, e2) = (s07 + s34, s07 - s34, s16 + s25, s16 - s25);
    let z1 = (e2 + e3) * 0.707_106_77;
    let (o0, o1, o2) = (d34 + d25, d25 + d16, d16 + d07);
    let z5 = (o0 - o2) * 0.382_683_43;
    let (z2, z4, z3) = (
        0.541_196_1 * o0 + z5,
        1.306_563 * o2 + z5,
        o1 * 0.707_106_77,
    );
    let (z11, z13) = (d07 + z3, d07 - z3);
    let results = [
        e0 + e1,
        z11 + z4,
        e3 + z1,
        z13 - z2,
        e0 - e1,
        z13 + z2,
        e3 - z1,
        z11 - z4,
    ];
    results
        .iter()
        .enumerate()
        .for_each(|(n, &result)| v[at + n * step] = result);
}

impl Encoder {
    /// An encoder of a quality from 1 to 100.
    pub fn new(quality: u32) -> Encoder {
        let quality = quality.clamp(1, 100);
        let percent = if quality < 50 {
            5000 / quality
        } else {
            200 - 2 * quality
        };
        let scaled = |quantum: u16| ((u32::from(quantum) * percent + 50) / 100).clamp(1, 255) as u8;
        let quanta = QUANTA.map(|table| table.map(scaled));
        let divisors = quanta.map(|table| {
            let mut divisors = [0.0; 64];
            for (place, divisor) in divisors.iter_mut().enumerate() {
                let scale = SCALES[place / 8] * SCALES[place % 8] * 8.0;
                *divisor = 1.0 / (f32::from(table[place]) * scale);
            }
            divisors
        });
        Encoder {
            quanta,
            divisors,
            dc: [0, 1].map(|kind| codes(&DC_LENGTHS[kind], &DC_SYMBOLS)),
            ac: [0, 1].map(|kind| codes(&AC_LENGTHS[kind], &ac_symbols(kind))),
        }
    }

    /// The tables, as a stream of their own: TIFF's tag JPEGTables.
    pub fn tables(&self) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xd8];
        for (number, table) in self.quanta.iter().enumerate() {
            bytes.extend([0xff, 0xdb, 0, 67, number as u8]);
            bytes.extend(ZIGZAG.map(|place| table[place]));
        }
        for kind in 0..2 {
            let tables = [
                (&DC_LENGTHS[kind], DC_SYMBOLS.to_vec()),
                (&AC_LENGTHS[kind], ac_symbols(kind)),
            ];
            for (class, (lengths, symbols)) in tables.into_iter().enumerate() {
                let length = 19 + symbols.len();
                bytes.extend([
                    0xff,
                    0xc4,
                    (length >> 8) as u8,
                    length as u8,
                    (class << 4 | kind) as u8,
                ]);
                bytes.extend(lengths);
                bytes.extend(symbols);
            }
        }
        bytes.extend([0xff, 0xd9]);
        bytes
    }

    /// A stream without tables, of `width` × `height` pixels, which are multiples of 8, in RGB.
    pub fn encode(&self, rgb: &[u8], width: usize, height: usize) -> Vec<u8> {
        assert!(width.is_multiple_of(8) && height.is_multiple_of(8));
        assert!(rgb.len() == width * height * 3);
        let high = |size: usize| [(size >> 8) as u8, size as u8];
        let mut bytes = vec![0xff, 0xd8, 0xff, 0xc0, 0, 17, 8];
        bytes.extend(high(height).into_iter().chain(high(width)));
        bytes.extend([3, 1, 0x11, 0, 2, 0x11, 1, 3, 0x11, 1]);
        bytes.extend([0xff, 0xda, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
        let mut bits = Bits {
            bytes,
            bits: 0,
            count: 0,
        };
        let mut last = [0; 3];
        for y in (0..height).step_by(8) {
            for x in (0..width).step_by(8) {
                let mut planes = [[0.0_f32; 64]; 3];
                let [luma, blue, red] = &mut planes;
                let values = luma.iter_mut().zip(blue).zip(red);
                for (place, ((luma, blue), red)) in values.enumerate() {
                    let at = ((y + place / 8) * width + x + place % 8) * 3;
                    let [r, g, b] = [0, 1, 2].map(|part| f32::from(rgb[at + part]));
                    *luma = 0.299 * r + 0.587 * g + 0.114 * b - 128.0;
                    *blue = -0.168_735_9 * r - 0.331_264_1 * g + 0.5 * b;
                    *red = 0.5 * r - 0.418_687_6 * g - 0.081_312_4 * b;
                }
                for (part, plane) in planes.iter_mut().enumerate() {
                    last[part] = self.block(plane, part.min(1), last[part], &mut bits);
                }
            }
        }
        // The last byte is filled with ones.
        bits.put((0x7f, 7));
        bits.bytes.extend([0xff, 0xd9]);
        bits.bytes
    }

    /// Encodes a block; `last` is the first coefficient of the block before. Returns its own.
    fn block(&self, plane: &mut [f32; 64], kind: usize, last: i32, bits: &mut Bits) -> i32 {
        (0..8).for_each(|row| transform(plane, row * 8, 1));
        (0..8).for_each(|column| transform(plane, column, 8));
        let value = |place: usize| (plane[place] * self.divisors[kind][place]).round() as i32;
        let first = value(0);
        let (rest, size) = magnitude(first - last);
        bits.put(self.dc[kind][size as usize]);
        bits.put((rest, size));
        let mut zeros = 0;
        for &place in &ZIGZAG[1..] {
            let value = value(place);
            if value == 0 {
                zeros += 1;
                continue;
            }
            while zeros >= 16 {
                bits.put(self.ac[kind][0xf0]);
                zeros -= 16;
            }
            let (rest, size) = magnitude(value);
            bits.put(self.ac[kind][zeros << 4 | size as usize]);
            bits.put((rest, size));
            zeros = 0;
        }
        if zeros > 0 {
            bits.put(self.ac[kind][0]);
        }
        first
    }
}
