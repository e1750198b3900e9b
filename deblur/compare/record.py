"""The machine, the versions and the commit: what a reader needs to judge or repeat a figure."""

from __future__ import annotations

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

#: What OpenMP, the BLAS libraries and NumExpr read to limit their threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)  # fmt: skip


def environment(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Hardware, versions, threads, load and commit, as plain values for JSON.

    Parameters
    ----------
    packages : iterable of str
        Distributions whose versions matter beside NumPy's, SciPy's and scikit-image's, where installed.
    """

    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "deblur": __version__,
        **_commit(),
        "cpu": _cpu_name(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "thread_limits": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if hasattr(os, "sysconf")
        else None,
        "blas": _blas(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": _versions(("numpy", "scipy", "scikit-image", *packages)),
    }


def _commit() -> dict[str, Any]:
    """The commit of the checkout that deblur runs from; None where it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {"commit": None, "uncommitted_changes": None}
    head = output("git", "rev-parse", "HEAD", cwd=root)
    changes = output("git", "status", "--porcelain", "--", "deblur", "cuda", cwd=root)
    return {"commit": head, "uncommitted_changes": None if changes is None else bool(changes)}


def output(*command: str, cwd: Path | None = None) -> str | None:
    """What a command says; None where it fails or is not there."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
