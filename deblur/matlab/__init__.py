"""MATLAB's image functions by MATLAB's rules, for users who bring their scripts.

Argument order, defaults, names, centres, class behaviour and rounding are as in the MATLAB documentation, even where
the rest of `deblur` differs. For example, `filter2matrix` here is a *correlation*, as in the published listing. The
rules for all functions are:

- A number, list or tuple is ``double``, like a MATLAB literal. An array keeps its class. A 1-D array is a row vector,
  (1, n).
- A name such as ``"gaussian"`` may be written in any case, and shortened as long as it is unambiguous.
- NumPy array in, NumPy array out; CuPy array in, CuPy array out.

GNU Octave's image package sometimes differs from MATLAB's documentation. Each function names the differences, and the
behaviour that is used here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
