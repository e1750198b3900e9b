"""Pictures beyond one memory: tiles whose seam is known beforehand.

`plan_tiles` says how large tiles and their overlap must be, from PSF and λ; `tiled` restores by them: NumPy arrays with
threads, Dask arrays lazily.

- `reach`: the kernel's tail, from which the seam follows;
- `plan`: the plan;
- `windows`: one window, solved;
- `refining`: windows solved again for what their neighbours have left, where the overlap does not fit;
- `tiling`: what is decided once for the picture, and NumPy arrays;
- `mapping`: Dask arrays;
- `stores`: from disk to disk, to be gone on with after an interruption;
- `checks`: the whole picture judged.
"""

from typing import TYPE_CHECKING

from ..later import names_from
from .plan import TilePlan, plan_tiles

if TYPE_CHECKING:
    from .checks import Residual
    from .stores import Failure, Report, cluster, stream
    from .tiling import Seam, Tiling, tiled

__all__ = [
    "Failure",
    "Report",
    "Residual",
    "Seam",
    "TilePlan",
    "Tiling",
    "cluster",
    "plan_tiles",
    "stream",
    "tiled",
]

__getattr__ = names_from(
    __name__,
    {
        "checks": ("Residual",),
        "stores": ("Failure", "Report", "cluster", "stream"),
        "tiling": ("Seam", "Tiling", "tiled"),
    },
)
