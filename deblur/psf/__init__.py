"""Point spread functions: by formula, measured from data, read from files, or given by a short form of the command
line.

Every builder returns a float64 array of shape (rows, columns) or (planes, rows, columns). It is non-negative and sums
to one, and its centre is the pixel ((rows - 1) // 2, (columns - 1) // 2). `scipy.signal.convolve2d(..., "same")` and
`deblur.Blur` use the same centre, so that an even size does not shift the image by a whole pixel.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
