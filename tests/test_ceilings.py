"""The counts that `make lint` holds below the ceilings of tools/ceilings.json, which may only fall."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def ceilings():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "ceilings.py")))


@pytest.fixture
def package(ceilings, tmp_path):
    """A small repository, and its counts."""
    for folder in ("deblur", "cuda", "benchmarks", "tests", "docs"):
        (tmp_path / folder).mkdir()
    texts = dict.fromkeys(("README.md", "CONTRIBUTING.md", "docs/page.md"), "words\n")
    texts |= {"cuda/a.cu": "// one\nint x;\n", "tests/test_a.py": "def test_a():\n    pass\n"}
    for name, text in (texts | {"deblur/a.py": '"""Text."""\n\nLIMIT = 3  # pixels\n'}).items():
        (tmp_path / name).write_text(text)
    return tmp_path, ceilings.measured(tmp_path)


def with_parameters(count):
    return f"def f({', '.join(f'x{i}' for i in range(count))}): pass\n"


@pytest.mark.parametrize(
    ("file", "text", "grown"),
    [
        ("deblur/b.py", "x = [\n    1,\n]\n", {"code lines of deblur": 3}),
        ("deblur/b.py", '"""Text\nof two lines."""\n# comment\n', {}),
        ("deblur/b.py", "A, B = 1, 2.5\n", {"code lines of deblur": 1, "named numeric constants": 2}),
        ("deblur/b.py", "NAME = 'three'\n", {"code lines of deblur": 1}),
        ("deblur/b.py", with_parameters(7), {"code lines of deblur": 1}),
        ("deblur/b.py", with_parameters(8), {"code lines of deblur": 1, "functions with more than 7 parameters": 1}),
        ("deblur/b.py", "class A(NamedTuple):\n    x: int\n", {"code lines of deblur": 2, "record types": 1}),
        ("deblur/b.py", "#\n" * 9, {"lines of the longest file": 6}),
        ("deblur/b.md", "nobody\n" + "\n" * 8, {"lines of the longest file": 6, "word: nobody|nobody's": 1}),
        ("cuda/b.cuh", "// comment\n", {"lines of cuda": 1}),
        ("benchmarks/b.py", "print(1)\n", {"code lines of benchmarks": 1}),
        ("tests/b.py", "x = 1\n", {"code lines of tests": 1}),
        ("docs/b.md", "Nobody looked at it.\n", {"word: nobody|nobody's": 1, "word: looked_at|looked at": 1}),
        ("tests/b.py", "def test_hides_all(): pass\n", {"code lines of tests": 1, "word: hides_all": 1}),
        ("cuda/b.cu", "// roadside houses\n", {"lines of cuda": 1}),
    ],
)
def test_what_is_added_is_counted_and_refused(ceilings, package, file, text, grown):
    root, before = package
    (root / file).write_text(text)
    after = ceilings.measured(root)
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == grown
    assert len(ceilings.exceeded(after, before)) == len(grown)


def test_ceilings_are_lowered_and_never_raised(ceilings):
    lowered = ceilings.lowered({"a": 3, "b": 5, "c": 0, "new": 2}, {"a": 4, "b": 4, "c": 1})
    assert lowered == {"a": 3, "b": 4}
    assert ceilings.exceeded({"new": 2}, lowered) == ["new: 2, at most 0"]
