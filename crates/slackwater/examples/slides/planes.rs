//! From the coefficients of a JPEG picture to its pixels, with the rounding of libjpeg-turbo as programs use
//! it unless they ask for something else: the accurate integer transform ("islow"), "fancy" upsampling, and
//! the conversion of colors with 16 bits after the point.

use std::num::Wrapping;

/// The bits after the point of the transform's constants, and those that the first pass keeps.
const CONSTANT_BITS: usize = 13;
const KEPT_BITS: usize = 2;

/// A component's samples.
pub struct Plane {
    samples: Vec<u8>,
    /// The samples from one row to the next.
    stride: usize,
    width: usize,
    height: usize,
    /// How many pixels one sample is for, in both directions.
    pixels: (usize, usize),
}

type Number = Wrapping<i32>;

impl Plane {
    /// Transforms a component's blocks: so many in a row, and rows of them. It has so many samples across and
    /// down, and `pixels` for each.
    pub fn of(
        coefficients: &[i16],
        quanta: &[u16; 64],
        (across, down): (usize, usize),
        (width, height): (usize, usize),
        pixels: (usize, usize),
    ) -> Plane {
        let stride = across * 8;
        let mut samples = vec![0; stride * down * 8];
        for (number, block) in coefficients.chunks_exact(64).enumerate() {
            let at = number / across * 8 * stride + number % across * 8;
            transform(block, quanta, &mut samples[at..], stride);
        }
        Plane {
            samples,
            stride,
            width,
            height,
            pixels,
        }
    }

    /// A row; those outside are the first or the last one.
    fn row(&self, row: isize) -> &[u8] {
        let row = row.clamp(0, self.height as isize - 1) as usize;
        &self.samples[row * self.stride..row * self.stride + self.width]
    }

    /// Writes row `y` of the picture.
    fn stretch(&self, y: usize, to: &mut [u8]) {
        let (across, down) = self.pixels;
        let near = (y / down) as isize;
        // The other row that a row is made of is the one that is nearer.
        let far = if y.is_multiple_of(2) {
            near - 1
        } else {
            near + 1
        };
        let (near, far) = (self.row(near), self.row(far));
        match (across, down) {
            (1, 1) => to.copy_from_slice(&near[..to.len()]),
            (1, 2) => {
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                for ((to, &near), &far) in to.iter_mut().zip(near).zip(far) {
                    *to = ((u32::from(near) * 3 + u32::from(far) + bias) >> 2) as u8;
                }
            }
            (2, 1) if self.width > 2 => widen(to, self.width, |at| u32::from(near[at]), [1, 2], 2),
            (2, 2) if self.width > 2 => {
                let sum = |at: usize| u32::from(near[at]) * 3 + u32::from(far[at]);
                widen(to, self.width, sum, [8, 7], 4);
            }
            _ => {
                let samples = near
                    .iter()
                    .flat_map(|&sample| [sample; 4].into_iter().take(across));
                to.iter_mut()
                    .zip(samples)
                    .for_each(|(to, sample)| *to = sample);
            }
        }
    }
}

/// Twice as many samples: each is three quarters of the nearer one and one of the other. Before `shift`
/// `biases` are added, to the left and to the right one of two.
#[inline]
fn widen(to: &mut [u8], width: usize, value: impl Fn(usize) -> u32, biases: [u32; 2], shift: u32) {
    for (at, pair) in to.chunks_mut(2).enumerate() {
        let this = value(at);
        let others = [value(at.saturating_sub(1)), value((at + 1).min(width - 1))];
        for ((to, other), bias) in pair.iter_mut().zip(others).zip(biases) {
            *to = ((this * 3 + other + bias) >> shift) as u8;
        }
    }
}

/// The transform of Loeffler, Ligtenberg and Moschytz ("Practical fast 1-D DCT algorithms with 11
/// multiplications", 1989) on the columns, whose results have `shift` more bits than are wanted.
#[inline]
fn pass(values: &mut [Number; 64], shift: usize) {
    let half = Wrapping(1 << (shift - 1));
    for column in 0..8 {
        let of = |row: usize| values[row * 8 + column];
        let (v0, v1, v2, v3) = (of(0), of(1), of(2), of(3));
        let (v4, v5, v6, v7) = (of(4), of(5), of(6), of(7));
        let times = |value: Number, constant: i32| value * Wrapping(constant);
        // The even part.
        let turned = times(v2 + v6, 4433);
        let (low, high) = (turned - times(v6, 15137), turned + times(v2, 6270));
        let (sum, difference) = ((v0 + v4) << CONSTANT_BITS, (v0 - v4) << CONSTANT_BITS);
        let even = [sum + high, difference + low, difference - low, sum - high];
        // The odd part.
        let turned = times(v7 + v3 + v5 + v1, 9633);
        let (a, b) = (times(v7 + v1, -7373), times(v5 + v3, -20995));
        let (c, d) = (
            turned - times(v7 + v3, 16069),
            turned - times(v5 + v1, 3196),
        );
        let odd = [
            times(v1, 12299) + a + d,
            times(v3, 25172) + b + c,
            times(v5, 16819) + b + d,
            times(v7, 2446) + a + c,
        ];
        for row in 0..4 {
            values[row * 8 + column] = (even[row] + odd[row] + half) >> shift;
            values[(7 - row) * 8 + column] = (even[row] - odd[row] + half) >> shift;
        }
    }
}

/// Transforms a block, and writes its 8 rows at a distance of `stride`.
fn transform(block: &[i16], quanta: &[u16; 64], to: &mut [u8], stride: usize) {
    let sample = |value: Number| (value.0.saturating_add(128)).clamp(0, 255) as u8;
    if block[1..].iter().all(|&coefficient| coefficient == 0) {
        // What both passes make of it.
        let first = Wrapping(i32::from(block[0])) * Wrapping(i32::from(quanta[0]));
        let value = sample((first + Wrapping(4)) >> 3);
        to.chunks_mut(stride)
            .take(8)
            .for_each(|row| row[..8].fill(value));
        return;
    }
    let mut values = [Wrapping(0); 64];
    for ((value, &coefficient), &quantum) in values.iter_mut().zip(block).zip(quanta) {
        *value = Wrapping(i32::from(coefficient) * i32::from(quantum));
    }
    // Columns first: the order decides on the rounding.
    pass(&mut values, CONSTANT_BITS - KEPT_BITS);
    let mut turned = [Wrapping(0); 64];
    for (at, turned) in turned.iter_mut().enumerate() {
        *turned = values[at % 8 * 8 + at / 8];
    }
    pass(&mut turned, CONSTANT_BITS + KEPT_BITS + 3);
    for (row, to) in to.chunks_mut(stride).take(8).enumerate() {
        for (column, to) in to[..8].iter_mut().enumerate() {
            *to = sample(turned[column * 8 + row]);
        }
    }
}

/// The pixels of a picture of this size.
pub fn rgb(planes: &[Plane], (width, height): (usize, usize), is_rgb: bool) -> Vec<u8> {
    let mut pixels = vec![0; width * height * 3];
    let mut rows = vec![vec![0; width]; planes.len()];
    for (y, pixels) in pixels.chunks_exact_mut(width * 3).enumerate() {
        for (plane, row) in planes.iter().zip(&mut rows) {
            plane.stretch(y, row);
        }
        let [first, second, third] = rows.as_slice() else {
            continue;
        };
        let values = first.iter().zip(second).zip(third);
        for (pixel, ((&first, &second), &third)) in pixels.chunks_exact_mut(3).zip(values) {
            pixel.copy_from_slice(&match is_rgb {
                true => [first, second, third],
                false => color(first, second, third),
            });
        }
    }
    pixels
}

/// Red, green and blue of luminance and two differences of color.
#[inline]
fn color(luma: u8, blue: u8, red: u8) -> [u8; 3] {
    // 1.402, 0.34414, 0.71414 and 1.772 with 16 bits after the point.
    let [luma, blue, red] = [i32::from(luma), i32::from(blue) - 128, i32::from(red) - 128];
    let add = |difference: i32| (luma + ((difference + (1 << 15)) >> 16)).clamp(0, 255) as u8;
    [
        add(91881 * red),
        add(-22554 * blue - 46802 * red),
        add(116_130 * blue),
    ]
}
