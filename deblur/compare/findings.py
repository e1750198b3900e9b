"""What a comparison asks and finds, as plain data: `Settings`, `Row`, `Findings`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from .cases import Case

#: What a row can end as. Only "ok" rows have figures.
STATUSES = ("ok", "refused", "not installed", "failed", "too slow")


@dataclass
class Row:
    """One method on one case: what it was asked, how it ended and what was measured.

    Attributes
    ----------
    key : str
        Changes with everything that can change the result.
    case, case_key : str
        The case, in words and by its key.
    method, family : str
    assumes : str
        The boundary that the method assumed; it may be another than the case's.
    status : str
        One of `STATUSES`.
    reason : str
        Why it did not run or failed, and what to try; empty for "ok".
    parameter, how, setting : str
        What its parameter is called; how its value was found ("rule", "given", "default", "automatic" or
        "oracle", which alone has seen the truth); the sentence that says it.
    value : float or None
    mse, psnr, ssim, gain : float or None
        Against the truth, unclipped; `gain` is the PSNR less that of the blurred picture, in dB. None without a truth.
    misfit : float or None
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
        Most memory held at once, of what NumPy counts and what the system saw the process grow by.
    note : str
    history : list of (int, float)
        What an iterative method reported as it went: iterations, residual.
    curve : dict or None
        L-curve of the rule that chose λ.
    session : int
        Which of the record's machines and times measured it.
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
    misfit: float | None = None
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
        """The method, and whether the truth has set its parameter."""
        return f"{self.method} (oracle {self.parameter})" if self.how == "oracle" else self.method

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Settings:
    """How a comparison is run.

    Attributes
    ----------
    lam : float or str
        λ, or the rule for it, of the methods that take one.
    other_boundary : {"own", "refuse"}
        What happens to a method that cannot assume the case's boundary: it is run on the same picture with
        the one it has, and the row says so, or it is shown as refused.
    oracle : bool
        Add rows whose parameter is the best in hindsight, found with the truth.
    time_limit : float
        Seconds that one restoration may take, set-up included; choosing the parameter, which takes several, may
        take twice that.
    repeats : int
        Timed runs after the warm-up.
    memory : bool
        Run once more to measure memory.
    seed : int
        Of the noise in the pictures; for the record.
    """

    lam: float | str = "gcv"
    other_boundary: str = "own"
    oracle: bool = False
    time_limit: float = 20.0
    repeats: int = 3
    memory: bool = True
    seed: int = 0


@dataclass
class Findings:
    """What a comparison found, without the ways to show it; `Comparison` has both and describes the fields."""

    rows: list[Row]
    cases: list[Case]
    settings: Settings
    sessions: list[dict[str, Any]]
    complete: bool = True
    #: 8-bit pictures by name, as `pictures.names` calls them.
    pictures: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as plain values."""
        return {
            "complete": self.complete,
            "settings": vars(self.settings),
            "sessions": self.sessions,
            "cases": [
                {"key": c.key, "name": c.name, "sigma": c.sigma, "truth": c.truth is not None, "notes": list(c.notes)}
                for c in self.cases
            ],
            "rows": [row.to_dict() for row in self.rows],
        }  # fmt: skip
