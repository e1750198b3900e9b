"""What the README says is so: its figures come from the results, and its Python runs."""

import re
import subprocess
import sys
from pathlib import Path

import deblur
from deblur import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_figures_are_those_of_the_results():
    script = ROOT / "benchmarks" / "update_readme.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_it_shows_can_be_pasted_into_an_empty_folder_twice(tmp_path, monkeypatch, capsys):
    make, restore = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shell = [line.split("#")[0].split() for line in README.splitlines() if line.startswith("deblur ")]
    monkeypatch.chdir(tmp_path)
    for photograph in ('"cat")[100:150, 100:150]', '"camera64")'):  # in colour and grey, and both small
        for _ in range(2):
            names = {}
            exec(make.replace('"cat")', photograph), names)
            exec(restore.replace("print(result)", "text = str(result)"), names)  # the suite prints nothing
            assert "boundary    unknown: read off" in names["text"]
        restored, truth = deblur.image.read("restored.png"), deblur.image.as_float(names["photo"])[3:-3, 3:-3]
        assert restored.shape == truth.shape
        assert deblur.metrics.psnr(truth, restored) > deblur.metrics.psnr(truth, names["blurred"]) + 1
    for words in shell * 2:
        if words[1] == "compare":  # which takes a minute, and has tests of its own
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
