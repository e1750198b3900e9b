"""The names of the subpackage, each imported at its first use."""

from .blurred import from_blurred as from_blurred
from .checking import PSFCheck as PSFCheck, Verdict as Verdict, check as check
from .edges import from_edge as from_edge
from .estimate import PSFEstimate as PSFEstimate, PSFMap as PSFMap, PSFStatus as PSFStatus
from .files import load as load, load_grid as load_grid, save as save, upright as upright
from .fitting import fit as fit
from .forms import FORMS as FORMS, parse as parse
from .models import (
    Size as Size,
    airy as airy,
    box as box,
    camera_shake as camera_shake,
    delta as delta,
    disk as disk,
    gaussian as gaussian,
    moffat as moffat,
    motion as motion,
)
from .optics import confocal as confocal, light_sheet as light_sheet, microscope as microscope
from .pairs import from_pair as from_pair
from .points import from_points as from_points
from .refining import refine as refine
from .shaping import (
    crop as crop,
    denoise as denoise,
    for_voxels as for_voxels,
    prepare as prepare,
    recentre as recentre,
    resample as resample,
)
