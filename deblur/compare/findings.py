"""The settings of a comparison and the results of each method as plain data: `Settings`, `Row`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import check_choice, check_count, check_number
from ..options import check_lam

#: How a row can end. Only "ok" rows have figures.
STATUSES = ("ok", "refused", "not installed", "failed", "too slow")


@dataclass
class Row:
    """One method on one case: its parameter, how it ended and what was measured.

    Attributes
    ----------
    key : str
        Depends on everything that can change the result.
    case, case_key : str
        The case, in words and by its key.
    method, family : str
    assumes : str
        The boundary that the method assumed; it may differ from the case's.
    status : str
        One of `STATUSES`.
    reason : str
        Why it did not run or failed, and what to try; empty for "ok".
    parameter, how, setting : str
        The name of its parameter; the source of its value ("rule", "given", "default", "automatic" or "oracle", the
        only one that has seen the truth); that source in a sentence.
    value : float or None
    mse, psnr, ssim, gain : float or None
        Against the truth, unclipped; `gain` is the PSNR less that of the blurred picture, in dB. None without a truth.
    data_residual : float or None
        ‖g − h * f‖ / ‖g‖ where the blur needs nothing beyond the frame: the same for every method and boundary.
    whiteness : float or None
        Largest distance between the cumulative periodograms of that residual and of white noise; 0 is white.
    residual : float or None
        Relative residual of the linear system solved, for deblur's linear methods.
    iterations : int or None
    choose_s, setup_s, solve_s : float or None
        Seconds to choose the parameter (once), to set up, and to solve: medians over `runs`.
    solve_min_s, solve_max_s : float or None
        Their spread.
    runs : int
        Timed runs after the warm-up; 0 if the first run alone reached the time limit.
    peak_bytes : int or None
        Peak memory: the larger of NumPy's allocations and the growth of the process.
    note : str
    history : list of (int, float)
        Reports of an iterative method: iterations, residual.
    curve : dict or None
        L-curve of the rule that chose λ.
    session : int
        Index of the session that measured it.
    """

    key: str
    case: str
    case_key: str
    method: str
    family: str
    assumes: str
    status: str = "ok"
    reason: str = ""
    parameter: str = ""
    how: str = ""
    setting: str = ""
    value: float | None = None
    mse: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    gain: float | None = None
    data_residual: float | None = None
    whiteness: float | None = None
    residual: float | None = None
    iterations: int | None = None
    choose_s: float | None = None
    setup_s: float | None = None
    solve_s: float | None = None
    solve_min_s: float | None = None
    solve_max_s: float | None = None
    runs: int = 0
    peak_bytes: int | None = None
    note: str = ""
    history: list[tuple[int, float]] = field(default_factory=list)
    curve: dict[str, Any] | None = None
    session: int = 0

    @property
    def label(self) -> str:
        """The method, and whether the truth set its parameter."""
        return f"{self.method} (oracle {self.parameter})" if self.how == "oracle" else self.method

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a value that is not finite becomes None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Settings:
    """How a comparison is run.

    Attributes
    ----------
    size : int, optional
        Side of a square frame from the middle of each picture, in pixels; by default the largest frame.
    seed : int
        Seed of the noise in the pictures.
    blurred : bool
        The pictures came blurred: nothing is blurred or added, and there is no truth.
    lam : float or {"gcv", "discrepancy", "lcurve", "upre"}
        λ, or the rule for it, of the methods that take one.
    other_boundary : {"own", "refuse"}
        A method that cannot assume the case's boundary is run on the same picture with the boundary that it can
        assume, and its row says so ("own"), or it is shown as refused.
    oracle : bool
        Add rows with each method's best parameter, found with the truth and marked "oracle".
    time_limit : float
        Seconds that one restoration may take, set-up included; the choice of the parameter, which takes several, may
        take twice that. A method whose predicted time is longer is not run; one that takes longer is stopped.
    repeats : int
        Timed runs after the warm-up; fewer for a method that takes a good part of the time limit. 0 times the warm-up.
    memory : bool
        Measure memory in one more run.
    resume : bool
        Continue with the rows in the folder: those of the same pictures and settings are not measured again.
    overwrite : bool
        Replace a comparison in the folder.

    Raises
    ------
    ValueError, TypeError
        For a value that cannot be used.
    """

    size: int | None = None
    seed: int = 0
    blurred: bool = False
    lam: float | str = "gcv"
    other_boundary: str = "own"
    oracle: bool = False
    time_limit: float = 20.0
    repeats: int = 3
    memory: bool = True
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_lam(self.lam)
        check_choice(self.other_boundary, ("own", "refuse"), "other_boundary")
        check_number(self.time_limit, "time_limit", above=True)
        check_count(self.repeats, "repeats", 0)
