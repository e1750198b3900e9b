"""Images as vectors, as values in [0, 1], and as files.

Grey images are (M, N), colour images (M, N, 3), stacks (K, M, N) or (K, M, N, 3). Everywhere in this package an array
of three or more axes whose last axis has length 3 is colour.

`arrays.py` needs no files, and `light.py` has the tone curve of sRGB. `reading.py`, `writing.py` and `png.py` read and
write files. `outputs.py` has the rule for files that may be written or replaced. `metadata.py` reads the metadata of
files and decides which of them are kept.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
