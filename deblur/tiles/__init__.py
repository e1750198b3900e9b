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

from .checks import Residual
from .clusters import cluster
from .plan import TilePlan, plan_tiles
from .streams import Failure, Report, stream
from .tiling import Tiling, tiled

__all__ = ["Failure", "Report", "Residual", "TilePlan", "Tiling", "cluster", "plan_tiles", "stream", "tiled"]
