"""Images beyond one memory: tiles whose seam is predicted.

`plan_tiles` says how large tiles and their overlap must be, from PSF and λ; `tiled` restores by them: NumPy arrays with
threads, Dask arrays lazily; `stream` from disk to disk.

- `reach`: the kernel's tail, from which the seam follows;
- `plan`: the plan;
- `problem`: the decisions that are taken once for all tiles, and the calls into the pipeline;
- `windows`: one window, solved;
- `refining`: tiles solved in passes, where the overlap does not fit;
- `tiling`: NumPy arrays; `mapping`: Dask arrays;
- `stores`: what is read and written; `streams`: from disk to disk, with a second start; `clusters`: processes;
- `checks`: seams measured, and the residual of the whole image.
"""

from typing import TYPE_CHECKING

from ..lazy import names_from
from .plan import TilePlan, plan_tiles

if TYPE_CHECKING:
    from .checks import Residual, Seam
    from .clusters import cluster
    from .streams import Failure, Report, stream
    from .tiling import Tiling, tiled

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
        "checks": ("Residual", "Seam"),
        "clusters": ("cluster",),
        "streams": ("Failure", "Report", "stream"),
        "tiling": ("Tiling", "tiled"),
    },
)
