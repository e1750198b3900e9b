"""The pages under docs/ name existing objects, and the script that builds the reference reads tables of docstrings."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import deblur
from deblur import cli, compare, image, posterior
from deblur.operators import matrix
from deblur.options import DETECTORS
from deblur.tuning import RULES

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def make():
    pytest.importorskip("pdoc")
    return SimpleNamespace(**runpy.run_path(str(DOCS / "make.py")))


def first_cells(title):
    """The names in backticks in the first column of the table below a heading of mathematics.md."""
    section = (DOCS / "mathematics.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return tuple(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def test_the_mathematics_lists_every_boundary_rule_and_method():
    assert first_cells("Boundaries") == tuple(deblur.BOUNDARIES)
    assert sorted(first_cells("Choosing λ")) == sorted(rule.name for rule in RULES.values() if rule.linear)
    methods = deblur.METHODS.values()
    assert first_cells("The methods") == tuple(method.name for method in methods if method.linear)
    assert first_cells("Beyond the linear formula") == tuple(m.name for m in methods if not m.linear)
    text = (DOCS / "mathematics.md").read_text().split("## Beyond the linear formula")[1]
    assert all(f"`{rule.name}`" in text for rule in RULES.values() if rule.others)


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_targets_of_links_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([\w./]+)\)", text):
        assert (DOCS / target).exists(), target
    for form in re.findall(r"--psf (\w+:\d[\d.,x]*)", text):
        assert deblur.psf.parse(form).sum() == pytest.approx(1), form
    for script in re.findall(r"(?:examples|benchmarks|tools)/\w+\.py", text):
        assert (DOCS.parent / script).exists(), script
    for path in re.findall(r"`(deblur(?:\.\w+)+)`", text):
        found = deblur
        for part in path.split(".")[1:]:
            found = getattr(found, part)


def test_tables_of_docstrings_become_markdown(make):
    text = """Words.

    ====== =======
    ``a``  one | 1
           more
    ``bcdef`` two
    ====== =======

    After.
    """
    assert make.with_tables(text).split("\n") == [
        "Words.",
        "",
        "|   |   |",
        "| --- | --- |",
        r"| ``a`` | one \| 1 more |",
        "| ``bcdef`` | two |",
        "",
        "After.",
    ]


def test_every_table_of_the_package_is_understood(make):
    for module in (matrix, posterior, compare):
        assert "\n====" in module.__doc__
        assert "====" not in make.with_tables(module.__doc__)


def test_every_public_name_is_there_for_the_reference(make):
    for module in make.modules():
        assert set(getattr(module, "__all__", ())) <= set(vars(module)), module.__name__


def test_pages_link_to_pages(make):
    names = {}
    exec(make.page("<!-- begin x -->\nsee [figures](figures.md) and [there](https://example.org/a.md)\n"), names)
    assert names["__doc__"] == "see [figures](figures.html) and [there](https://example.org/a.md)\n"
    assert set(make.PAGES) == {path.stem for path in DOCS.glob("*.md")}


# -- Restoring a photograph ----------------------------------------------------------------------

PHOTOGRAPHS = (DOCS / "photographs.md").read_text()


def commands_of(text):
    """Every command in the text's blocks, as lists of words."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    return [line.split() for line in lines if line.startswith("deblur ")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the pictures of which the page speaks: a photograph, and a scene with a clipped lamp."""
    sharp = deblur.data.load("cat")[60:118, 100:160]
    lamp = image.linear_light(sharp)
    lamp[20:26, 30:36] = 9
    exif = Image.Exif()
    exif[271], exif[274] = "Maker", 3
    for name, psf, light in (("photo", deblur.psf.motion(15, 30), sharp), ("night", deblur.psf.disk(5), lamp)):
        blurred = deblur.degrade(light, psf, boundary="unknown", noise=0.003, seed=0, channel_axis=-1)
        blurred = image.srgb(np.clip(blurred, 0, 1)) if name == "night" else blurred
        image.write(tmp_path / f"{name}.png", blurred)
        with Image.open(tmp_path / f"{name}.png") as picture:
            picture.save(tmp_path / f"{name}.jpg", quality=97, subsampling=0, exif=exif, comment=b"words")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_on_photographs_can_be_followed_and_explains_every_line(folder, capsys):
    known = set(re.findall(r"^\| `([^`]+)` \|", PHOTOGRAPHS, re.MULTILINE))
    met = set()
    for words in commands_of(PHOTOGRAPHS):
        assert cli.main(words[1:]) == 0, words
        met |= {line[:12].strip() for line in capsys.readouterr().out.splitlines()}
        assert Path(words[words.index("-o") + 1]).exists()
    assert met == known
    (code,) = re.findall(r"```python\n(.*?)```", PHOTOGRAPHS, re.DOTALL)
    for _ in range(2):  # as pasted, twice
        exec(code.replace("print(result)", "str(result)"), {})


def test_the_page_on_photographs_names_what_there_is():
    commands = next(a for a in cli._parser()._actions if hasattr(a, "choices") and a.dest == "command").choices
    options = {text for parser in commands.values() for text in parser._option_string_actions}
    named = set(re.findall(r"--[a-z][a-z-]*", PHOTOGRAPHS))
    assert "--gamma" in named
    assert named <= options
    assert {"saturated", "auto"} == set(DETECTORS)
    for form in re.findall(r"(?:motion|disk|gaussian|box):[\d,.]+", PHOTOGRAPHS):
        assert deblur.psf.parse(form.rstrip(".,")).sum() == pytest.approx(1)
