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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
