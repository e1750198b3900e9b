"""MATLAB's image functions by MATLAB's rules, for people who bring their scripts along.

Argument order, defaults, names, centres, class behaviour and rounding are
those that the MATLAB documentation states, also where the rest of `deblur`
does otherwise: `filter2matrix` here is a *correlation*, as the published
listing has it. The rules that hold for every function:

- A number, list or tuple is ``double``, as a MATLAB literal is; an array keeps
  its class. A 1-D array is a row vector, (1, n).
- A name such as ``"gaussian"`` may be written in any case and shortened as
  long as it stays unambiguous.
- NumPy array in, NumPy array out; CuPy array in, CuPy array out.

GNU Octave's image package differs in places from what MATLAB documents; each
function says where, and which side is taken.
"""

from .deconvolution import deconvreg, deconvwnr
from .filters import fspecial, imfilter
from .listings import filter2matrix, im2vector, reconstruction, vector2im
from .lucy import deconvblind, deconvlucy
from .measures import immse, psnr
from .noise import imnoise
from .transfer import edgetaper, otf2psf, psf2otf

__all__ = [
    "deconvblind",
    "deconvlucy",
    "deconvreg",
    "deconvwnr",
    "edgetaper",
    "filter2matrix",
    "fspecial",
    "im2vector",
    "imfilter",
    "immse",
    "imnoise",
    "otf2psf",
    "psf2otf",
    "psnr",
    "reconstruction",
    "vector2im",
]
