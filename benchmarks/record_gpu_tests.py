"""Run the GPU tests and record the outcome in benchmarks/results/gpu_tests.json (`make test-gpu`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from _common import ROOT, environment, save


def main() -> int:
    if environment()["gpu"] is None:
        print("no CUDA device that CuPy can use: nothing was run and nothing is recorded")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={report}", *sys.argv[1:]]
        status = subprocess.run(command, cwd=ROOT).returncode
        suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    counts["passed"] = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    not_passed = sorted(
        f"{case.attrib['classname']}::{case.attrib['name']}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    )
    by_file: dict[str, int] = {}
    for case in suite.iter("testcase"):
        by_file[case.attrib["classname"]] = by_file.get(case.attrib["classname"], 0) + 1
    results = {
        **counts,
        "seconds": float(suite.attrib["time"]),
        "tests_by_file": by_file,
        "not_passed": not_passed,
    }
    path = save("gpu_tests", results, command="python -m pytest -m gpu " + " ".join(sys.argv[1:]))
    print(f"{counts}\nwritten: {path.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
