"""What the README says is so: its figures come from the results, and its Python runs."""

import re
import subprocess
import sys
from pathlib import Path

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
    for scene in (deblur.data.load("camera64"), deblur.data.load("cat")[100:180, 100:180]):
        blurred = deblur.degrade(scene, deblur.psf.disk(7), boundary="unknown", noise=0.005, seed=0)
        deblur.image.write("blurred.png", blurred, overwrite=True)
        for _ in range(2):  # as it is pasted, and once more
            names = {}
            exec(code.replace("print(result)", "text = str(result)"), names)  # the suite prints nothing
            assert "boundary    unknown: read off" in names["text"]
        restored, truth = deblur.image.read("restored.png"), deblur.image.as_float(scene)[3:-3, 3:-3]
        assert restored.shape == blurred.shape
        assert deblur.metrics.psnr(truth, restored) > deblur.metrics.psnr(truth, blurred) + 1


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
