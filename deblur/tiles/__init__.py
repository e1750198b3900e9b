"""Pictures beyond one memory: tiles whose seam is known beforehand.

`plan_tiles` says how large tiles and their overlap must be, from PSF and λ.

- `reach`: the kernel's tail, from which the seam follows;
- `plan`: the plan.
"""

from .plan import TilePlan, plan_tiles

__all__ = ["TilePlan", "plan_tiles"]
