"""Images as vectors, as values in [0, 1], and as files.

Grey images are (M, N), colour images (M, N, 3), stacks (K, M, N) or
(K, M, N, 3): an array of three or more axes whose last one has length 3 is
colour, everywhere in this package.

`arrays.py` needs no file, `light.py` has the curve of sRGB, `reading.py`, `writing.py` and `png.py` the files,
`outputs.py` the rule for what may be written or replaced, `metadata.py` the metadata of files, and which of them are
kept.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
