//! A picture that looks like stained tissue: islands on a bright ground, fibers, and cells with nuclei. Each
//! pixel follows from its place and the seed, so it can be computed in any order.

/// The side of the square that holds one cell, in pixels.
const CELL: i64 = 26;

const GROUND: [f32; 3] = [243.0, 240.0, 244.0];
const FIBER: [f32; 3] = [226.0, 160.0, 194.0];
const PLASMA: [f32; 3] = [206.0, 136.0, 190.0];
const NUCLEUS: [f32; 3] = [92.0, 62.0, 140.0];

/// A random number of a place, from 0 to 1.
fn random(x: i64, y: i64, seed: u64) -> f32 {
    let mixed = (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (y as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ seed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 32)) >> 40) as f32 / (1 << 24) as f32
}

/// Random numbers of a grid of `size` pixels, and smooth between them.
fn noise(x: i64, y: i64, size: i64, seed: u64) -> f32 {
    let (column, row) = (x.div_euclid(size), y.div_euclid(size));
    let part = |at: i64| {
        let part = at.rem_euclid(size) as f32 / size as f32;
        part * part * (3.0 - 2.0 * part)
    };
    let (right, down) = (part(x), part(y));
    let corner = |dx: i64, dy: i64| random(column + dx, row + dy, seed ^ size as u64);
    let above = corner(0, 0) + (corner(1, 0) - corner(0, 0)) * right;
    let below = corner(0, 1) + (corner(1, 1) - corner(0, 1)) * right;
    above + (below - above) * down
}

fn mix(one: [f32; 3], other: [f32; 3], share: f32) -> [f32; 3] {
    let share = share.clamp(0.0, 1.0);
    [0, 1, 2].map(|part| one[part] + (other[part] - one[part]) * share)
}

/// The color of a pixel.
pub fn pixel(x: i64, y: i64, seed: u64) -> [u8; 3] {
    let islands =
        0.6 * noise(x, y, 1400, seed) + 0.3 * noise(x, y, 420, seed) + 0.1 * noise(x, y, 90, seed);
    let tissue = (islands - 0.42) * 14.0;
    let grain = (random(x, y, seed) - 0.5) * 7.0;
    let mut color = GROUND;
    if tissue > 0.0 {
        let fibers = noise(x + y, y * 3 - x, 34, seed);
        color = mix(GROUND, mix(FIBER, PLASMA, fibers * 1.6 - 0.3), tissue);
        let (column, row) = (x.div_euclid(CELL), y.div_euclid(CELL));
        let of_cell = |what: u64| random(column, row, seed ^ what);
        // How many cells there are differs from place to place.
        if of_cell(11) < 0.25 + 0.7 * noise(x, y, 300, seed ^ 5) {
            let radius = 3.6 + 4.2 * of_cell(12);
            // A nucleus is longer in one direction, and stays inside of its square.
            let room = radius * 1.5;
            let center = |what: u64| room + of_cell(what) * (CELL as f32 - 2.0 * room);
            let (dx, dy) = (
                x.rem_euclid(CELL) as f32 - center(13),
                y.rem_euclid(CELL) as f32 - center(14),
            );
            let stretch = 0.7 + 0.6 * of_cell(15);
            let distance = (dx * dx * stretch + dy * dy / stretch).sqrt() / radius;
            let inside = (1.0 - distance) * 5.0;
            let texture = 0.75 + 0.35 * noise(x, y, 5, seed);
            color = mix(
                color,
                NUCLEUS.map(|part| part * texture),
                inside * tissue.min(1.0),
            );
        }
    }
    color.map(|part| (part + grain).clamp(0.0, 255.0) as u8)
}
