"""The README and the pages agree with the results, and their examples run."""

import re
import sys
from pathlib import Path

import pytest

import deblur
from deblur import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


sys.path.insert(0, str(ROOT / "benchmarks"))
import render  # noqa: E402


@pytest.mark.parametrize("page", render.pages(), ids=lambda page: page.name)
def test_the_figures_of_a_page_equal_the_recorded_results(page):
    text = page.read_text()
    assert render.filled(text) == text, "run python benchmarks/render.py"
    assert text.count("<!-- begin ") == text.count("<!-- end ") == len(render.MARKED.findall(text))


@pytest.mark.parametrize("path", sorted(render.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_record_has_its_origin_and_tables_of_text(path):
    record = render.load(path.stem)
    assert {"environment", "settings", "script", "tables", "summary", "results"} == set(record)
    assert (ROOT / "benchmarks" / record["script"]).exists()
    assert re.fullmatch("[0-9a-f]{7,40}", record["environment"]["commit"])
    for table in record["tables"]:
        assert {"title", "columns", "rows", "notes"} == set(table)
        for row in table["rows"]:
            assert len(row) == len(table["columns"])
            assert all(isinstance(cell, str) for cell in row)


def test_render_makes_markdown_of_a_table_and_keeps_other_text(monkeypatch):
    table = {"title": "T", "columns": ["a", "b"], "rows": [["x", "1"]], "notes": "N"}
    environment = {"date": "2026-01-01", "commit": "0" * 40, "cpu": "C", "cpus_usable": 2}
    environment |= {"packages": {"numpy": "2"}, "thread_limits": {"OMP_NUM_THREADS": "1"}}
    record = {"environment": environment, "settings": {"kept": {"part": "1" * 40}}, "script": "s.py"}
    monkeypatch.setattr(render, "load", lambda name: record | {"tables": [table], "summary": f"{name} is so."})
    page = """A
<!-- begin figures: x -->
old
<!-- end figures -->
B
<!-- begin summaries: x y -->
<!-- end summaries -->
"""
    origin = (
        "*`benchmarks/s.py`, 2026-01-01, commit 0000000, C, 2 cores, numpy 2, OMP_NUM_THREADS=1.* "
        "*Of commit 1111111: part.*"
    )
    shown = f"T\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\nN\n\n{origin}\n"
    expected = page.replace("old\n", shown).replace("y -->\n", "y -->\n- x is so.\n- y is so.\n")
    assert render.filled(page) == expected
    assert render.filled(render.filled(page)) == render.filled(page)


@pytest.mark.parametrize("photograph", ['"cat")[100:150, 100:150]', '"camera64")'])  # colour and grey, both small
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

    from deblur import blind_restoration, methods, pipeline, posterior, updating
    from deblur.operators import matrix

    for module in (blind_restoration, matrix, methods, pipeline, posterior, updating):
        outcome = doctest.testmod(module)
        assert outcome.attempted > 0
        assert outcome.failed == 0
