//! Pixels in RGB, three bytes each, row by row.

/// Half as wide and high: each pixel is the mean of four. An odd column or row at the end is left out.
pub fn halve(pixels: &[u8], width: usize, height: usize) -> Vec<u8> {
    let (half_width, half_height) = (width / 2, height / 2);
    let mut half = Vec::with_capacity(half_width * half_height * 3);
    if half_width == 0 {
        return half;
    }
    for rows in pixels.chunks_exact(width * 6) {
        let (above, below) = rows.split_at(width * 3);
        let pairs = above.chunks_exact(6).zip(below.chunks_exact(6));
        for (above, below) in pairs {
            let mean = |part: usize| {
                let sum = [above[part], above[part + 3], below[part], below[part + 3]];
                ((sum.into_iter().map(u16::from).sum::<u16>() + 2) / 4) as u8
            };
            half.extend([mean(0), mean(1), mean(2)]);
        }
    }
    half
}

/// A rectangle of pixels that are `width` wide. It has to be inside.
pub fn cut(pixels: &[u8], width: usize, place: (usize, usize), size: (usize, usize)) -> Vec<u8> {
    let ((left, top), (columns, rows)) = (place, size);
    let mut part = Vec::with_capacity(columns * rows * 3);
    for row in top..top + rows {
        part.extend(&pixels[(row * width + left) * 3..(row * width + left + columns) * 3]);
    }
    part
}
