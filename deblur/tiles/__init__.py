"""Images beyond one memory: tiles whose seam is predicted.

`plan_tiles` computes tile and overlap from PSF and λ. `tiled` restores by such tiles: NumPy arrays with
threads, Dask arrays lazily. `stream` works from disk to disk.

- `reach`: the kernel's tail, which determines the seam;
- `plan`: the plan;
- `problem`: the decisions that are made once for all tiles, and the calls into the pipeline;
- `windows`: the solution of one window;
- `refining`: tiles solved in passes, if the overlap does not fit;
- `tiling`: NumPy arrays; `mapping`: Dask arrays;
- `stores`: input and output; `streams`: from disk to disk, resumable; `clusters`: processes;
- `checks`: measured seams, and the residual of the whole image.
"""

from .checks import Residual
from .clusters import cluster
from .plan import TilePlan, plan_tiles
from .streams import Failure, Report, stream
from .tiling import Tiling, tiled

__all__ = ["Failure", "Report", "Residual", "TilePlan", "Tiling", "cluster", "plan_tiles", "stream", "tiled"]
