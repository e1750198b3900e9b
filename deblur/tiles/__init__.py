"""Pictures beyond one memory: tiles whose seam is known beforehand.

`plan_tiles` says how large tiles and their overlap must be, from PSF and λ; `tiled` restores by them: NumPy arrays with
threads, Dask arrays lazily.

- `reach`: the kernel's tail, from which the seam follows;
- `plan`: the plan;
- `windows`: one window, solved;
- `tiling`: what is decided once for the picture, and NumPy arrays;
- `mapping`: Dask arrays;
- `stores`: from disk to disk, to be gone on with after an interruption;
- `checks`: the whole picture judged.
"""

from .checks import Residual
from .plan import TilePlan, plan_tiles
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
