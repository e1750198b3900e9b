"""CUDA sources of deblur, read at run time by `deblur.kernels`."""
