"""The README and the pages agree with the results, and their examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import deblur
from deblur import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_figures_are_those_of_the_results():
    script = ROOT / "benchmarks" / "update_readme.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "photograph", ['"cat")[100:150, 100:150]', '"camera64")']
)  # colour and grey, both small
def test_the_example_of_the_readme_improves_a_photograph(tmp_path, monkeypatch, photograph):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {"print": str}  # the suite prints nothing
    for _ in range(2):  # as pasted, twice
        exec(code.replace('"cat")', photograph), names)
    assert "boundary    unknown: " in str(names["result"])
    truth = deblur.image.as_float(eval(f"deblur.data.load({photograph}"))[3:-3, 3:-3]
    restored = deblur.image.read("restored.png")
    assert restored.shape == truth.shape
    assert deblur.metrics.psnr(truth, restored) > deblur.metrics.psnr(truth, names["blurred"]) + 1


def test_the_commands_of_the_page_on_methods_run_twice(tmp_path, monkeypatch, capsys):
    blurred = deblur.degrade(
        deblur.data.load("cat")[100:150, 100:150], deblur.psf.disk(7), noise=0.005, boundary="unknown"
    )
    monkeypatch.chdir(tmp_path)
    deblur.image.write("blurred.png", blurred)
    text = (ROOT / "docs" / "methods.md").read_text()
    commands = [line.split("#")[0].split() for line in text.splitlines() if line.startswith("deblur ")]
    for words in commands * 2:
        if words[1] == "compare":  # takes a minute, and has tests of its own
            cli._parser().parse_args(words[1:])
        else:
            assert cli.main(words[1:]) == 0, capsys.readouterr().err


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
