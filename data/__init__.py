"""Sample images of deblur, read by `deblur.data`."""
