"""The settings of a comparison, and the results of each method, as plain data: `Settings`, `Row`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import check_choice, check_count, check_number
from ..options import check_lam


@dataclass
class Row:
    """The result of one method on one case: its parameter, its outcome and its figures.

    Attributes
    ----------
    key : str
        A key that depends on everything that can change the result.
    case, case_key : str
        The case, in words and by its key.
    method, family : str
        The method, and the package that it belongs to.
    assumes : str
        The boundary that the method assumed; it may differ from that of the case.
    status : str
        "ok", "refused", "not installed", "failed" or "too slow". Only "ok" rows have figures.
    reason : str
        Why the method did not run or failed, with advice; empty for "ok".
    parameter : str
        The name of the method's parameter.
    how : str
        The source of its value: "rule", "given", "default", "automatic" or "oracle". Only the oracle uses the truth.
    setting : str
        The source of its value in a sentence.
    value : float or None
        The value of the parameter.
    mse, psnr, ssim, gain : float or None
        Measures against the truth, without clipping; None without a truth. `gain` is the PSNR minus that of the blurred
        picture. psnr and gain are in dB.
    data_residual : float or None
        ‖g − h * f‖ / ‖g‖ over the pixels whose blur needs nothing beyond the frame, so that all methods and boundaries
        can be compared.
    whiteness : float or None
        Largest distance between the cumulative periodograms of that residual and of white noise; 0 is white.
    residual : float or None
        Relative residual of the linear system, for deblur's linear methods.
    iterations : int or None
        Number of iterations.
    choose_s, setup_s, solve_s : float or None
        Seconds to choose the parameter (measured once), to set up, and to solve (medians of `runs`).
    solve_min_s, solve_max_s : float or None
        Smallest and largest `solve_s` of the runs.
    runs : int
        Number of timed runs after the warm-up; 0 if the warm-up left no time for them.
    peak_bytes : int or None
        Peak memory in bytes: the larger of NumPy's allocations and the growth of the process.
    note : str
        Remarks of the method, and warnings.
    history : list of (int, float)
        Iterations and residuals that an iterative method reported.
    curve : dict or None
        L-curve of the rule that chose λ.
    session : int
        Index of the session that measured the row.
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
        """The method, marked if the truth determined its parameter."""
        return f"{self.method} (oracle {self.parameter})" if self.how == "oracle" else self.method

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; a value that is not finite becomes None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison.

    Attributes
    ----------
    size : int, optional
        Side in pixels of a square frame at the centre of each picture; by default the largest frame.
    seed : int
        Seed of the noise in the pictures.
    blurred : bool
        True if the pictures are already blurred: there is no truth, and neither blur nor noise is added.
    lam : float or {"gcv", "discrepancy", "lcurve", "upre"}
        λ, or the rule that chooses λ, for the methods that have one.
    other_boundary : {"own", "refuse"}
        For a method that cannot assume the boundary of the case. "own" runs it on the same picture with a boundary that
        it can assume, and its row says so. "refuse" marks its row as refused.
    oracle : bool
        Add rows with the best parameter of each method, found with the truth and marked "oracle".
    time_limit : float
        Seconds that one restoration may take, with set-up. The choice of the parameter, which needs several
        restorations, may take twice as long. A method is not run if its predicted time is longer, and it is stopped if
        it takes longer.
    repeats : int
        Number of timed runs after the warm-up. A method that needs much of the time limit gets fewer. With 0 the
        warm-up itself is timed.
    memory : bool
        Measure memory in one more run.
    resume : bool
        Continue the comparison in the folder: rows of the same pictures and settings are not measured again.
    overwrite : bool
        Replace a comparison in the folder.

    Raises
    ------
    ValueError, TypeError
        For an invalid value.
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
