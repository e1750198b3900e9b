"""Copy the measured tables into README.md and the pages under docs/, between their markers.

    python benchmarks/render.py            rewrites the pages
    python benchmarks/render.py --check    fails if a page differs from the results

A page says where it wants the tables of benchmarks/results/NAME.json::

    <!-- begin figures: NAME -->
    <!-- end figures -->

and ``<!-- begin summaries: NAME NAME ... -->`` gives a list with the summary of each. Nothing is measured here, and
every table is already text: the script that measured it is named below it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- begin (figures|summaries): ([\w ]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def markdown(table: Mapping[str, Any]) -> str:
    """Title, table and notes; all columns but the first are aligned to the right."""
    columns = table["columns"]
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *table["rows"]]
    grid = "\n".join("| " + " | ".join(line) + " |" for line in lines) if columns else ""
    return "\n\n".join(part for part in (table["title"], grid, table["notes"]) if part)


def source(record: Mapping[str, Any]) -> str:
    """The origin of the tables: script, date, commit, machine and versions; and the parts of another commit."""
    e = record["environment"]
    machine = e["gpu"]["name"] if e.get("gpu") else f"{e['cpu']}, {e['cpus_usable']} cores"
    driver = f", driver {e['gpu']['driver'].splitlines()[0]}" if e.get("gpu") else ""
    named = ("cupy-cuda13x", "torch", "jax") if e.get("gpu") else ("numpy", "scipy", "scikit-image")
    versions = ", ".join(f"{name} {e['packages'][name]}" for name in named if name in e["packages"])
    changed = " with uncommitted changes" if e.get("uncommitted_changes") else ""
    limits = "".join(f", {k}={v}" for k, v in sorted((e.get("thread_limits") or {}).items()))
    text = (
        f"*`benchmarks/{record['script']}`, {e['date']}, commit {str(e['commit'])[:7]}{changed}, {machine}{driver}, "
        f"{versions}{limits}.*"
    )
    kept = record["settings"].get("kept", {})
    for commit in dict.fromkeys(kept.values()):
        parts = "; ".join(part for part in kept if kept[part] == commit)
        text += f" *Of commit {commit[:7]}: {parts}.*"
    return text


def figures(name: str) -> str:
    """All tables of a record, and their origin."""
    record = load(name)
    return "\n\n".join([*map(markdown, record["tables"]), source(record)])


def summaries(names: str) -> str:
    """A list with the summary of each record."""
    return "\n".join(f"- {load(name)['summary']}" for name in names.split())


def filled(text: str) -> str:
    """A page with the figures of today between its markers."""

    def fill(match: re.Match[str]) -> str:
        make = figures if match[2] == "figures" else summaries
        return f"{match[1]}{make(match[3])}\n{match[4]}"

    return MARKED.sub(fill, text)


def pages() -> list[Path]:
    """README.md and the pages under docs/ that have markers."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [path for path in found if "<!-- begin " in path.read_text(encoding="utf-8")]


def main() -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if "--check" not in sys.argv:
            path.write_text(filled(text), encoding="utf-8")
        elif filled(text) != text:
            raise SystemExit(f"{path.name} differs from the results; run python benchmarks/render.py")


if __name__ == "__main__":
    main()
