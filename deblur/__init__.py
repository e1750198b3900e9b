"""deblur: image deblurring as a linear inverse problem.

A blur is a matrix H, the blurred image g = H f + n, and the restored image
solves (HHᵀ + λI). `reconstruct` is the one call; everything it decides can be
seen (`solve`), asked for beforehand (`choose_method`) and overridden.
"""

