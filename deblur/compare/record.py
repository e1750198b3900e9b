"""Record the machine, the versions and the commit, which a reader needs to interpret or repeat a figure."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..version import __version__

#: The variables by which OpenMP, the BLAS libraries and NumExpr limit their threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)  # fmt: skip


def environment(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return hardware, versions, threads, load and commit as plain values for JSON; unknown values are None.

    Parameters
    ----------
    packages : iterable of str
        Distributions whose versions are recorded, if installed, in addition to NumPy, SciPy and scikit-image.
    """
    unix = os.name == "posix"
    build: Any = np.show_config(mode="dicts")
    blas = build.get("Build Dependencies", {}).get("blas", {})
    versions = {}
    for package in ("numpy", "scipy", "scikit-image", *packages):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "deblur": __version__,
        **_commit(),
        "cpu": _cpu_name(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2) if unix else None,
        "thread_limits": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if unix else None,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
    }


def _commit() -> dict[str, Any]:
    """Return the commit of the checkout that deblur runs from; its values are None if there is no checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {"commit": None, "uncommitted_changes": None}
    head = output("git", "rev-parse", "HEAD", cwd=root)
    changes = output("git", "status", "--porcelain", "--", "deblur", "cuda", cwd=root)
    return {"commit": head, "uncommitted_changes": None if changes is None else bool(changes)}


def output(*command: str, cwd: Path | None = None) -> str | None:
    """Return the output of a command; None if it fails or is not installed."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()
    return None


def _cpu_name() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or "unknown"
