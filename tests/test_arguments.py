"""Docstrings as declarations of arguments."""

import pytest

from deblur.arguments import KINDS, Parser, add_arguments, entries
from deblur.options import Options, defaults


def command(args):
    """Do something.

    Parameters
    ----------
    source : in
        What is read.
    --size : size
        A size, such
        as 5x7.
    -n, --number : number = 2.5
        A number, 50 % of it.
    --bits : {8, 16}, optional
        Depth.
    --region : region, repeated
        Regions.
    --name : text, several = a
        Names.
    --safe : flag
        Safer.
    --boundary : boundary = zero
    --prior : {auto, zero, smooth, natural}
    """


@pytest.fixture
def parser():
    parser = Parser(prog="command")
    add_arguments(parser, command)
    return parser


def test_an_entry_is_its_names_its_kind_and_its_text():
    found = entries(command.__doc__)
    assert found["-n, --number"] == ("number = 2.5", "A number, 50 % of it.")
    assert found["--size"] == ("size", "A size, such as 5x7.")
    assert found["--boundary"] == ("boundary = zero", "")


def test_every_option_of_the_library_has_a_text():
    assert {name for names in entries(Options.__doc__) for name in names.split(", ")} == set(defaults())


def test_kinds_and_defaults(parser):
    found = {"source": "a.png", "size": (5, 7), "number": 2.5, "bits": None, "region": None, "name": ["a"]}
    found |= {"safe": False, "boundary": "zero", "prior": defaults()["prior"]}
    assert vars(parser.parse_args(["a.png", "--size", "5x7"])) == found
    more = ["--bits", "16", "--region", "1,2,3,4", "--region", "5,6,7,8", "--name", "b", "c", "--safe", "-n", "-1e-3"]
    found = parser.parse_args(["a.png", "--size", "9", *more])
    assert (found.size, found.bits, found.name, found.safe) == ((9, 9), 16, ["b", "c"], True)
    assert (found.number, KINDS["level"][0]("2,0.01")) == (-1e-3, (2, 0.01))
    assert found.region == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert [*map(KINDS["bytes"][0], ("8GB", "512MiB", "1.5k", "7"))] == [8e9, 2**29, 1500, 7]


def test_the_help_has_texts_defaults_and_notes(parser):
    said = " ".join(parser.format_help().split())
    assert "A number, 50 % of it (default 2.5)" in said
    assert "How the scene" in said  # of Options
    assert "BOUNDARY is one of zero" in said
