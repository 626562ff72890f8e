//! Files that are no slides, or are damaged.

use std::path::Path;

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

/// The smaller levels of some programs (`vips tiffsave --subifd`) do not follow the first one.
#[test]
fn levels_in_subifds_are_read() {
    let folder = Folder::new();
    let path = slide_of(&folder);
    let whole = Slide::open(path.to_str().unwrap()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let link = entry(&bytes, 530) + 12;
    let second = value_at(&bytes, link) as u32;
    let at = entry(&bytes, 254);
    bytes[link..link + 4].fill(0);
    bytes[at..at + 2].copy_from_slice(&330_u16.to_le_bytes());
    bytes[at + 8..at + 12].copy_from_slice(&second.to_le_bytes());
    folder.write("other.tif", &bytes);
    let slide = Slide::open(folder.path("other.tif").to_str().unwrap()).unwrap();
    assert_eq!(slide.left_out, Vec::<String>::new());
    assert_eq!(slide.levels().len(), 2);
    assert_eq!(slide.levels()[1].directory, "directory 0, SubIFD 0");
    assert_eq!(slide.tile(1, 1), whole.tile(1, 1));
    let mut damaged = bytes.clone();
    damaged[at + 8..at + 12].fill(0xff);
    folder.write("other.tif", &damaged);
    let error = Slide::open(folder.path("other.tif").to_str().unwrap()).err();
    assert!(error.unwrap().contains("refers to byte 4294967295"));
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
