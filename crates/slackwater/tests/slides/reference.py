"""What Pillow makes of slide.tif and of streams of its own. For each level of the slide, prints how many of
its values differ from those in level-N.rgb. Writes N.jpg, of many kinds, and their pixels as N.rgb."""

import itertools
import pathlib
import random
import sys

from PIL import Image, ImageFile

folder = pathlib.Path(sys.argv[1])
with Image.open(folder / "slide.tif") as slide:
    for level in range(slide.n_frames):
        slide.seek(level)
        theirs = slide.convert("RGB").tobytes()
        ours = (folder / f"level-{level}.rgb").read_bytes()
        assert len(theirs) == len(ours), (level, len(theirs), len(ours))
        print(sum(one != other for one, other in zip(theirs, ours)))

# Small pictures of high quality need more than Pillow expects.
ImageFile.MAXBLOCK = 1 << 20
sizes = [(48, 64), (37, 29), (17, 40), (2, 9), (1, 1)]
qualities = [30, 50, 75, 85, 95]
others = [{}, {"restart_marker_blocks": 3}, {"progressive": True}]
noise = random.Random(1)
kinds = itertools.product(sizes, qualities, [0, 1, 2], others)
for number, ((width, height), quality, subsampling, other) in enumerate(kinds):
    values = bytearray()
    for y, x in itertools.product(range(height), range(width)):
        fine = noise.randrange(60)
        values += bytes([200 if (x // 9 + y // 7) % 2 else fine, 4 * x % 200 + fine % 50, 3 * y % 150 + fine])
    image = Image.frombytes("RGB", (width, height), bytes(values))
    image.save(folder / f"{number}.jpg", quality=quality, subsampling=subsampling, **other)
    with Image.open(folder / f"{number}.jpg") as stream:
        (folder / f"{number}.rgb").write_bytes(stream.convert("RGB").tobytes())
        (folder / f"{number}.size").write_text(f"{width} {height}")
