"""Point spread functions: by formula, measured from data, from files, from the command line's short forms.

Every builder returns a float64 array of shape (rows, columns) or (planes, rows, columns), non-negative
and summing to one, whose centre is the pixel ((rows - 1) // 2, (columns - 1) // 2).
`scipy.signal.convolve2d(..., "same")` and `deblur.Blur` use the same centre,
so that an even size blurs without shifting by a whole pixel.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
