"""Point spread functions: by formula, from files, from the command line's short forms.

Every builder returns a float64 array of shape (rows, columns), non-negative
and summing to one, whose centre is the pixel ((rows - 1) // 2, (columns - 1) // 2).
That is where `scipy.signal.convolve2d(..., "same")` and `deblur.Blur` take it
to be, so an even size blurs without shifting by a whole pixel.
"""

from .edges import from_edge
from .estimate import PSFEstimate, PSFMap, PSFStatus
from .files import load
from .fitting import fit
from .forms import FORMS, parse
from .grids import load_grid
from .models import Size, airy, box, camera_shake, delta, disk, gaussian, moffat, motion
from .pairs import from_pair
from .points import from_points

__all__ = [
    "FORMS",
    "PSFEstimate",
    "PSFMap",
    "PSFStatus",
    "Size",
    "airy",
    "box",
    "camera_shake",
    "delta",
    "disk",
    "fit",
    "from_edge",
    "from_pair",
    "from_points",
    "gaussian",
    "load",
    "load_grid",
    "moffat",
    "motion",
    "parse",
]
