"""The names of the subpackage, each imported at its first use."""

from .deconvolution import deconvreg as deconvreg, deconvwnr as deconvwnr
from .filters import fspecial as fspecial, imfilter as imfilter
from .listings import (
    filter2matrix as filter2matrix,
    im2vector as im2vector,
    reconstruction as reconstruction,
    vector2im as vector2im,
)
from .lucy import deconvblind as deconvblind, deconvlucy as deconvlucy
from .measures import immse as immse, psnr as psnr
from .noise import imnoise as imnoise
from .transfer import edgetaper as edgetaper, otf2psf as otf2psf, psf2otf as psf2otf
