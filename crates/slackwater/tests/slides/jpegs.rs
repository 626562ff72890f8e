//! Tiles as libjpeg-turbo decodes them: by checksums that are kept here, and by Pillow where it is installed.

use std::path::Path;
use std::process::Command;

use super::decoder::decode;
use super::slide::Slide;
use crate::process::Folder;

/// The checksums of the levels of the tests' slide, as Pillow 13.0 with libjpeg-turbo 3.2.0 reads them.
const LEVELS: [u32; 2] = [0x1c80_9bb2, 0xd2b4_2ce9];

/// A stream of the folder `jpegs`.
struct Kept {
    name: String,
    bytes: Vec<u8>,
    size: (usize, usize),
    checksum: u32,
}

fn kept() -> Vec<Kept> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slides/jpegs"));
    let text = std::fs::read_to_string(folder.join("crc32.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let streams = lines.map(|line| {
        let [name, width, height, checksum] = *line.split(' ').collect::<Vec<&str>>() else {
            panic!("{line}");
        };
        Kept {
            name: name.to_string(),
            bytes: std::fs::read(folder.join(format!("{name}.jpg"))).unwrap(),
            size: (width.parse().unwrap(), height.parse().unwrap()),
            checksum: u32::from_str_radix(checksum, 16).unwrap(),
        }
    });
    streams.collect()
}

/// A CRC-32.
fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = flate2::Crc::new();
    checksum.update(bytes);
    checksum.sum()
}

/// The pixels of each level of a slide.
fn levels(slide: &Slide) -> Vec<Vec<u8>> {
    let levels = slide.levels().iter().map(|level| {
        let place = [0, 0, i64::from(level.width), i64::from(level.height)];
        super::direct(
            slide,
            &super::request(1, i64::from(level.halvings), place, None),
        )
    });
    levels.collect()
}

#[test]
fn pixels_are_those_of_libjpeg_turbo() {
    let kept = kept();
    assert_eq!(kept.len(), 17);
    for kept in kept {
        let pixels = decode(&kept.bytes, kept.size, false).unwrap();
        assert_eq!(checksum(&pixels), kept.checksum, "{}", kept.name);
    }
    let folder = Folder::new();
    let slide = Slide::open(super::slide(&folder).to_str().unwrap()).unwrap();
    let checksums = levels(&slide)
        .iter()
        .map(|pixels| checksum(pixels))
        .collect::<Vec<u32>>();
    assert_eq!(checksums, LEVELS);
}

#[test]
fn colors_are_converted_unless_they_are_rgb() {
    let kept = kept();
    let pixel = kept.iter().find(|kept| kept.name == "420-pixel").unwrap();
    let [luma, blue, red] = *decode(&pixel.bytes, pixel.size, true).unwrap() else {
        panic!("one pixel");
    };
    let [luma, blue, red] = [luma, blue, red].map(f64::from);
    let rgb = [
        luma + 1.402 * (red - 128.0),
        luma - 0.34414 * (blue - 128.0) - 0.71414 * (red - 128.0),
        luma + 1.772 * (blue - 128.0),
    ];
    let rgb = rgb.map(|value| value.round().clamp(0.0, 255.0) as u8);
    assert_eq!(decode(&pixel.bytes, pixel.size, false).unwrap(), rgb);
}

#[test]
fn what_is_not_supported_is_an_error_that_says_so() {
    let kept = kept();
    let whole = &kept
        .iter()
        .find(|kept| kept.name == "444-q85")
        .unwrap()
        .bytes;
    let fails = |bytes: &[u8], expected: &str| {
        let error = decode(bytes, (37, 29), false).err();
        let error = error.expect(expected);
        assert!(error.contains(expected), "{error}");
    };
    let frame = whole
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[frame + at] = byte;
        bytes
    };
    fails(&with(1, 0xc9), "JPEG of kind 9 is not supported");
    fails(
        &with(4, 12),
        "3 components of 12 bits, and only 3 of 8 are supported",
    );
    fails(&with(6, 30), "it has 37 x 30 pixels, and the tile 37 x 29");
    fails(&with(9, 1), "1 components of 8 bits");
    fails(&with(11, 0x51), "component 1 has a sampling of 5 x 1");
    fails(&with(12, 9), "quantization table 9 is missing");
    fails(&with(10, 77), "a scan's head is not valid");
    fails(b"II*", "it does not begin as a JPEG stream");
    let tables = whole
        .windows(2)
        .position(|pair| pair == [0xff, 0xc4])
        .unwrap();
    let mut none = whole.clone();
    none[tables + 1] = 0xfe;
    fails(&none, "a Huffman table is missing");
}

/// A stream that is cut off is an error, and no other damage panics or needs much memory.
#[test]
fn damaged_streams_are_errors_or_pictures() {
    let kept = kept();
    let mut seed = 11_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut failed, mut read) = (0, 0);
    for Kept {
        bytes, size, name, ..
    } in &kept
    {
        for length in (0..bytes.len()).step_by(13).chain([bytes.len() - 1]) {
            assert!(
                decode(&bytes[..length], *size, false).is_err(),
                "{name}, {length} bytes"
            );
        }
        for _ in 0..60 {
            let mut bytes = bytes.clone();
            for _ in 0..=random(5) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            match decode(&bytes, *size, false) {
                Ok(pixels) => {
                    assert_eq!(pixels.len(), size.0 * size.1 * 3);
                    read += 1;
                }
                Err(_) => failed += 1,
            }
        }
    }
    assert!(failed > 100 && read > 100, "{failed} and {read}");
}

/// Pillow, with libtiff and libjpeg-turbo, reads the generated slide, and streams of its own.
#[test]
fn another_decoder_reads_the_same_pixels() {
    let python = std::env::var("SLACKWATER_PILLOW").unwrap_or_else(|_| "python3".to_string());
    let has_pillow = Command::new(&python).args(["-c", "import PIL"]).output();
    if !has_pillow.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no Pillow (set SLACKWATER_PILLOW to one that has)");
        return;
    }
    let folder = Folder::new();
    let slide = Slide::open(super::slide(&folder).to_str().unwrap()).unwrap();
    let levels = levels(&slide);
    for (number, pixels) in levels.iter().enumerate() {
        folder.write(&format!("level-{number}.rgb"), pixels);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slides/reference.py");
    let mut command = Command::new(&python);
    let output = command.arg(script).arg(folder.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    let differences = said.lines().map(|line| line.parse::<u32>().unwrap());
    assert_eq!(differences.collect::<Vec<u32>>(), vec![0; levels.len()]);
    for number in 0..225 {
        let read = |kind: &str| std::fs::read(folder.path(&format!("{number}.{kind}"))).unwrap();
        let size = String::from_utf8(read("size")).unwrap();
        let (width, height) = size.split_once(' ').unwrap();
        let size = (width.parse().unwrap(), height.parse().unwrap());
        let pixels = decode(&read("jpg"), size, false).unwrap();
        assert!(pixels == read("rgb"), "{number}.jpg: the pixels differ");
    }
}
