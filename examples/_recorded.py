"""Shared by the tables: the GPU if there is one, and the recorded figures otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"


def find_gpu() -> Any:
    """CuPy, or None where it or a CUDA device is missing."""
    try:
        import cupy

        return cupy if cupy.cuda.runtime.getDeviceCount() else None
    except Exception:  # not installed, no driver, no device: all mean that there is none
        return None


def recorded(name: str) -> dict[str, Any] | None:
    """A file of ``benchmarks/results``, or None if it has not been measured yet."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def origin(record: dict[str, Any]) -> str:
    """'recorded on ...': where and when figures were taken that are not measured here."""
    e = record["environment"]
    machine = e["gpu"]["name"] if e.get("gpu") else f"{e['cpu']}, {e['cpus_usable']} cores"
    return f"recorded on {e['date']} on {machine}, commit {str(e['commit'])[:7]}"


def show(header: list[str], rows: list[list[str]]) -> None:
    """Print a table, all columns but the first set to the right."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    for line in (header, *rows):
        cells = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))]
        print("  ".join(cells))
