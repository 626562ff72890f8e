//! Files that are no slides, or are damaged; and what another decoder makes of a slide.

use std::path::Path;
use std::process::Command;

use super::slide::Slide;
use crate::process::Folder;

/// The position in the file of a tag's entry in the first directory.
fn entry(bytes: &[u8], tag: u16) -> usize {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let first = number(4) + 2;
    let of = |at: &usize| bytes[*at..*at + 2] == tag.to_le_bytes();
    (0..14)
        .map(|index| first + index * 12)
        .find(of)
        .expect("the directory has the tag")
}

/// A number of a tag with many.
fn value(bytes: &[u8], tag: u16, index: usize) -> usize {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    number(number(entry(bytes, tag) + 8) + index * 4)
}

/// Overwrites the tile of the first level with bytes that are no JPEG stream.
pub fn damage(path: &Path, tile: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let (offset, length) = (value(&bytes, 324, tile), value(&bytes, 325, tile));
    bytes[offset..offset + length].fill(0x5a);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_that_is_no_slide_is_an_error_that_says_why() {
    let folder = Folder::new();
    let whole = std::fs::read(slide_of(&folder)).unwrap();
    let fails = |bytes: &[u8], expected: &str| {
        folder.write("other.tif", bytes);
        let path = folder.path("other.tif");
        let error = Slide::open(path.to_str().unwrap())
            .err()
            .expect("it is no slide");
        assert!(
            error.starts_with(path.to_str().unwrap()) && error.contains(expected),
            "{error}"
        );
    };
    fails(b"", "not a valid TIFF");
    fails(b"\x89PNG\r\n\x1a\n and more", "not a valid TIFF");
    // The directories are at the end.
    fails(&whole[..whole.len() / 2], "not a valid TIFF");
    let with = |tag: u16, number: u16| {
        let mut bytes = whole.clone();
        let at = entry(&bytes, tag) + 8;
        bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let vips = "--tile --pyramid --compression jpeg";
    fails(
        &with(259, 5),
        "directory 0: Compression is 5, and only 7 (JPEG) is supported",
    );
    fails(&with(259, 5), vips);
    fails(
        &with(262, 1),
        "PhotometricInterpretation is 1, and only 2 (RGB) or 6 (YCbCr)",
    );
    fails(&with(284, 2), "PlanarConfiguration is 2");
    fails(
        &with(322, 100),
        "a tile of 100 pixels: must be a multiple of 16",
    );
    // The tag of the tile's width becomes one that nothing means.
    let mut strips = whole.clone();
    let at = entry(&strips, 322);
    strips[at..at + 2].copy_from_slice(&60_000_u16.to_le_bytes());
    fails(&strips, "only tiles are supported");
    let missing = folder.path("missing.tif");
    let error = Slide::open(missing.to_str().unwrap()).err().unwrap();
    assert!(error.contains("missing.tif: No such file"), "{error}");
}

#[test]
fn a_tile_behind_the_end_of_the_file_is_an_error_of_its_own() {
    let folder = Folder::new();
    let path = slide_of(&folder);
    let mut bytes = std::fs::read(&path).unwrap();
    // The first tile's offset.
    let at = {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        number(entry(&bytes, 324) + 8)
    };
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let slide = Slide::open(path.to_str().unwrap()).unwrap();
    let error = slide.tile(0, 0).unwrap_err();
    assert!(
        error.contains("directory 0, tile 0 (at byte 4294967295): can't read its"),
        "{error}"
    );
    assert!(slide.tile(0, 1).is_ok());
    assert!(slide.tile(0, 30).unwrap_err().contains("no tile 30"));
    assert!(slide.tile(5, 0).is_err());
}

/// Every byte of a file changed, in turn: nothing panics, and a size that would need the machine's memory is
/// not believed.
#[test]
fn no_damage_of_a_slide_panics() {
    let folder = Folder::new();
    let whole = std::fs::read(slide_of(&folder)).unwrap();
    let directories = value_at(&whole, 4);
    let path = folder.path("damaged.tif");
    let places = (0..200)
        .map(|place| directories + place)
        .chain((8..directories).step_by(9_973));
    for place in places {
        let mut bytes = whole.clone();
        bytes[place] ^= 0xff;
        std::fs::write(&path, bytes).unwrap();
        if let Ok(slide) = Slide::open(path.to_str().unwrap()) {
            (0..30).for_each(|tile| drop(slide.tile(0, tile)));
        }
    }
}

fn value_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn slide_of(folder: &Folder) -> std::path::PathBuf {
    super::slide(folder)
}

/// Pillow, with libtiff and libjpeg-turbo: it reads the generated file, and its pixels differ by what two
/// integer transforms may round differently.
#[test]
fn another_decoder_reads_the_same_pixels() {
    let python = std::env::var("SLACKWATER_PILLOW").unwrap_or_else(|_| "python3".to_string());
    let has_pillow = Command::new(&python).args(["-c", "import PIL"]).output();
    if !has_pillow.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no Pillow (set SLACKWATER_PILLOW to one that has)");
        return;
    }
    let folder = Folder::new();
    let path = slide_of(&folder);
    let slide = Slide::open(path.to_str().unwrap()).unwrap();
    for (number, level) in slide.levels().iter().enumerate() {
        let place = [0, 0, i64::from(level.width), i64::from(level.height)];
        let halvings = i64::from(level.halvings);
        let pixels = super::direct(&slide, &super::request(1, halvings, place, None));
        folder.write(&format!("level-{number}.rgb"), &pixels);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slides/reference.py");
    let output = Command::new(&python)
        .arg(script)
        .arg(folder.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let differences = said
        .lines()
        .map(|line| line.parse::<u32>().unwrap())
        .collect::<Vec<u32>>();
    assert_eq!(differences.len(), slide.levels().len());
    assert!(
        differences.iter().all(|&difference| difference <= 3),
        "{differences:?}"
    );
}
