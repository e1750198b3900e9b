"""What the README says is so: its figures come from the results, and its Python runs."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import deblur

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_figures_are_those_of_the_results():
    script = ROOT / "benchmarks" / "update_readme.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_its_python_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    scene = deblur.data.load("camera64")
    deblur.image.write("blurred.png", deblur.degrade(scene, deblur.psf.disk(7), boundary="unknown"))
    names = {}
    exec(code.replace("print(result)", "text = str(result)"), names)  # the suite prints nothing
    assert "residual" in names["text"]
    assert np.isfinite(deblur.image.read("restored.png")).all()


def test_every_public_name_is_there_and_documented():
    for name in deblur.__all__:
        assert getattr(deblur, name).__doc__ or name in ("BOUNDARIES", "METHODS"), name
    for name in deblur.linalg.__all__:
        assert getattr(deblur.linalg, name).__doc__, name


def test_docstring_examples():
    import doctest

    from deblur import methods, pipeline, posterior, updating
    from deblur.operators import matrix

    for module in (matrix, methods, pipeline, posterior, updating):
        outcome = doctest.testmod(module)
        assert outcome.attempted > 0
        assert outcome.failed == 0
