"""Images as vectors, as values in [0, 1], and as files.

Grey images are (M, N), colour images (M, N, 3), stacks (K, M, N) or
(K, M, N, 3): an array of three or more axes whose last one has length 3 is
colour, everywhere in this package.

`arrays.py` needs no file, `light.py` has the curve of sRGB, `reading.py`, `writing.py` and `png.py` the files,
`metadata.py` the metadata of files, and which of them are kept.
"""

from .arrays import as_float, im2vector, is_colour, vector2im
from .light import linear_light, srgb
from .metadata import Metadata, upright
from .reading import check_readable, located, opened, read, read_stored, read_with_metadata
from .writing import (
    FORMATS,
    Levels,
    check_format,
    check_writable,
    fit_to_levels,
    left_out,
    write,
    write_whole,
)

__all__ = [
    "FORMATS",
    "Levels",
    "Metadata",
    "as_float",
    "check_format",
    "check_readable",
    "check_writable",
    "fit_to_levels",
    "im2vector",
    "is_colour",
    "left_out",
    "linear_light",
    "located",
    "opened",
    "read",
    "read_stored",
    "read_with_metadata",
    "srgb",
    "upright",
    "vector2im",
    "write",
    "write_whole",
]
