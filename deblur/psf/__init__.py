"""Point spread functions: by formula, measured from data, from files, from the command line's short forms.

Every builder returns a float64 array of shape (rows, columns) or (planes, rows, columns), non-negative
and summing to one, whose centre is the pixel ((rows - 1) // 2, (columns - 1) // 2).
`scipy.signal.convolve2d(..., "same")` and `deblur.Blur` use the same centre,
so that an even size blurs without shifting by a whole pixel.
"""

from .blurred import from_blurred
from .checking import PSFCheck, Verdict, check
from .edges import from_edge
from .estimate import PSFEstimate, PSFMap, PSFStatus
from .files import load, load_grid, save, upright
from .fitting import fit
from .forms import FORMS, parse
from .models import Size, airy, box, camera_shake, delta, disk, gaussian, moffat, motion
from .optics import confocal, light_sheet, microscope
from .pairs import from_pair
from .points import from_points
from .refining import refine
from .shaping import crop, denoise, for_voxels, prepare, recentre, resample

__all__ = [
    "FORMS",
    "PSFCheck",
    "PSFEstimate",
    "PSFMap",
    "PSFStatus",
    "Size",
    "Verdict",
    "airy",
    "box",
    "camera_shake",
    "check",
    "confocal",
    "crop",
    "delta",
    "denoise",
    "disk",
    "fit",
    "for_voxels",
    "from_blurred",
    "from_edge",
    "from_pair",
    "from_points",
    "gaussian",
    "light_sheet",
    "load",
    "load_grid",
    "microscope",
    "moffat",
    "motion",
    "parse",
    "prepare",
    "recentre",
    "refine",
    "resample",
    "save",
    "upright",
]
