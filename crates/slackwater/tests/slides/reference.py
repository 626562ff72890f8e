"""The greatest difference between Pillow's pixels of each level of slide.tif and those in level-N.rgb."""

import pathlib
import sys

from PIL import Image

folder = pathlib.Path(sys.argv[1])
with Image.open(folder / "slide.tif") as slide:
    for level in range(slide.n_frames):
        slide.seek(level)
        theirs = slide.convert("RGB").tobytes()
        ours = (folder / f"level-{level}.rgb").read_bytes()
        assert len(theirs) == len(ours), (level, len(theirs), len(ours))
        print(max(abs(one - other) for one, other in zip(theirs, ours)))
