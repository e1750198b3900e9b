"""Images as vectors, as values in [0, 1], and as files.

Grey images are (M, N), colour images (M, N, 3), stacks (K, M, N) or
(K, M, N, 3): an array of three or more axes whose last one has length 3 is
colour, everywhere in this package.

`arrays.py` needs no file, `light.py` has the curve of sRGB, `reading.py`, `writing.py` and `png.py` the files,
`outputs.py` the rule for what may be written or replaced, `metadata.py` the metadata of files, and which of them are
kept.
"""

from .arrays import as_float, im2vector, is_colour, vector2im
from .light import linear_light, srgb
from .metadata import Metadata, upright
from .outputs import check_output, check_replaceable, check_writable, replace_store, write_whole
from .reading import check_readable, located, opened, read, read_stored, read_with_metadata
from .writing import FORMATS, Levels, check_format, fit_to_levels, left_out, write

__all__ = [
    "FORMATS",
    "Levels",
    "Metadata",
    "as_float",
    "check_format",
    "check_output",
    "check_readable",
    "check_replaceable",
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
    "replace_store",
    "srgb",
    "upright",
    "vector2im",
    "write",
    "write_whole",
]
