"""Writes the streams of this folder with cjpeg and jpegtran, and crc32.txt with the checksums of their pixels
in RGB as djpeg decodes them. All three are libjpeg-turbo's."""

import pathlib
import subprocess
import zlib

HERE = pathlib.Path(__file__).parent

# Size, options of cjpeg, and of jpegtran where it is to change the result.
STREAMS = {
    "444-q30": ((37, 29), "-quality 30 -sample 1x1", None),
    "444-q85": ((37, 29), "-quality 85 -sample 1x1", None),
    "444-q95": ((37, 29), "-quality 95 -sample 1x1", None),
    "422-q75": ((37, 29), "-quality 75 -sample 2x1", None),
    "420-q30": ((37, 29), "-quality 30 -sample 2x2", None),
    "420-q75": ((37, 29), "-quality 75 -sample 2x2", None),
    "420-q95": ((32, 48), "-quality 95 -sample 2x2 -optimize", None),
    "440-q75": ((37, 29), "-quality 75 -sample 1x2", None),
    "411-q75": ((37, 29), "-quality 75 -sample 4x1", None),
    "420-narrow": ((3, 17), "-quality 75 -sample 2x2", None),
    "422-flat": ((18, 1), "-quality 75 -sample 2x1", None),
    "420-pixel": ((1, 1), "-quality 75 -sample 2x2", None),
    "420-restart": ((70, 50), "-quality 60 -sample 2x2 -restart 2B", None),
    "444-restart-row": ((20, 80), "-quality 60 -sample 1x1 -restart 1", None),
    "420-progressive": ((37, 29), "-quality 75 -sample 2x2 -progressive", None),
    "444-progressive-restart": ((37, 29), "-quality 90 -sample 1x1 -progressive -restart 3B", None),
    "420-scans": ((37, 29), "-quality 75 -sample 2x2", "0;\n1;\n2;\n"),
}


def picture(width, height):
    """A PPM with an edge, a ramp, and much that is fine."""
    state, values = 1, bytearray()
    for y in range(height):
        for x in range(width):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            noise = (state >> 16) % 40
            inside = (x - 15) ** 2 + (y - 12) ** 2 < 90
            red, blue = (250, 60) if inside else (3 * x + noise, 5 * y % 256)
            values += bytes([red, (x * y + noise) % 256, blue])
    return b"P6 %d %d 255\n" % (width, height) + bytes(values)


def run(command, given):
    return subprocess.run(command, input=given, capture_output=True, check=True)


def main():
    version = run(["djpeg", "-version"], b"").stderr.decode().splitlines()[0]
    lines = [f"# {version}", "# name, width, height, CRC-32 of the pixels"]
    for name, ((width, height), options, scans) in STREAMS.items():
        stream = run(["cjpeg", *options.split()], picture(width, height)).stdout
        if scans:
            (HERE / "scans.txt").write_text(scans)
            stream = run(["jpegtran", "-copy", "none", "-scans", HERE / "scans.txt"], stream).stdout
            (HERE / "scans.txt").unlink()
        (HERE / f"{name}.jpg").write_bytes(stream)
        pixels = run(["djpeg", "-rgb", "-ppm"], stream).stdout[-width * height * 3 :]
        lines.append(f"{name} {width} {height} {zlib.crc32(pixels):08x}")
    (HERE / "crc32.txt").write_text("\n".join(lines) + "\n")


main()
