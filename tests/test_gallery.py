"""The gallery shows what was recorded: its files, the pictures in them, and the choice of the cases."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from deblur import image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_gallery  # noqa: E402
from bench_variational import restorers  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
RECORD = json.loads((RESULTS / "gallery.json").read_text())["results"]


def test_the_files_are_those_of_the_record_and_small():
    sizes = []
    for row in RECORD["cases"]:
        content = (ROOT / "docs" / row["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["sha256"], row["file"]
        sizes.append(len(content))
    assert len(sizes) == 6
    assert max(sizes) <= 200_000
    assert sum(sizes) <= 1_000_000


@pytest.mark.parametrize("row", RECORD["cases"], ids=lambda row: row["case"])
def test_a_file_shows_its_case_pixel_for_pixel(row):
    shown = bench_gallery.Shown(row["case"])
    pixels = image.read(ROOT / "docs" / row["file"], as_float=False)
    assert [at.start for at in shown.at] == row["piece"]
    np.testing.assert_array_equal(pixels[bench_gallery.panel(0)], bench_gallery.levels(shown.truth[shown.at]))
    names = list(row["answers"])
    best = row["answers"]["wiener, padded"]["parameter"]
    shown.answer("wiener, padded", restorers(shown.blur, shown.g)["wiener, padded"](best), best)
    for who, (panel, figures) in shown.answers.items():
        seen = pixels[bench_gallery.panel(1 + names.index(who))]
        assert np.abs(seen.astype(int) - panel).max() <= 1, who  # another library may round elsewhere
        assert figures["psnr"] == pytest.approx(row["answers"][who]["psnr"], abs=1e-3)


def test_the_cases_are_the_worst_of_the_record_that_they_were_chosen_from():
    record = json.loads((RESULTS / "variational.json").read_text())
    chosen = bench_gallery.chosen(record)
    behind = {row["case"]: bench_gallery.behind(row) for row in record["results"]["cases"]}
    licensed = [case for case in behind if bench_gallery.photograph_of(case) in bench_gallery.LICENCES]
    assert chosen[0] == max(licensed, key=behind.__getitem__)
    if record["environment"]["commit"] == RECORD["chosen_from"]:
        assert [row["case"] for row in RECORD["cases"]] == chosen
