"""The pages under docs/ name what there is, and the script that builds the reference reads the docstrings' tables."""

import importlib.util
import re
from pathlib import Path

import pytest

import deblur
from deblur import compare, posterior
from deblur.operators import matrix
from deblur.tuning import RULES

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def make():
    pytest.importorskip("pdoc")
    spec = importlib.util.spec_from_file_location("make_docs", DOCS / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_cells(title):
    """What stands between backticks in the first column of the table below a heading of mathematics.md."""
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


@pytest.mark.parametrize("name", ["mathematics.md", "thesis.md", "compare.md"])
def test_what_the_pages_point_to_exists(name):
    text = (DOCS / name).read_text()
    for target in re.findall(r"\]\(([\w./]+)\)", text):
        assert (DOCS / target).exists(), target
    for script in re.findall(r"(?:examples|benchmarks)/\w+\.py", text):
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


def test_pages_link_to_pages(make):
    names = {}
    exec(
        make.page("<!-- begin x -->\nsee [figures](figures.md) and [there](https://example.org/a.md)\n"),
        names,
    )
    assert names["__doc__"] == "see [figures](figures.html) and [there](https://example.org/a.md)\n"
    assert set(make.PAGES) <= {path.stem for path in DOCS.glob("*.md")}
