"""Six restored photographs to look at, ours beside every peer's, the worst case included: docs/gallery_*.png.

    python benchmarks/bench_gallery.py [--peers] [--workers N]

The cases are those of bench_variational.py. Of each of the six kinds of noise the one is shown in which the
collaborative method, with no number given, is furthest behind the best peer (or least ahead of it) by
benchmarks/results/variational.json; so the worst of all is the first. (The moon is left out: scikit-image says nothing
of its licence.) Ours are given no number. The peers have the parameters that variational_peers.json found best with the
truth at hand; the bm3d package, which is not in it, is given the noise's level that is best for the picture, found
here, and the picture padded like `wiener`'s.

Each picture file has the same piece of the sharp photograph, of the blurred one, and of each answer, pixel for pixel:
the piece in which the sharp photograph has the most detail. Writes the files and benchmarks/results/gallery.json. The
peers take ten minutes on one core; where a case was shown before, they are taken from its file, and ours take one
minute, unless --peers is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import ROOT, asked, each, load, save, table
from bench_experiments import bm3d_restored
from bench_variational import restorers, scico_solved
from cases import NOISES, Case, cases, centred, padded, score

import deblur

OURS = ("auto", "tv", "collaborative")
JUDGED = "collaborative, automatic"  # what is behind, or ahead
SIDE, STEP = 128, 16  # of a piece, and of the raster on which it may begin; pixels
COLUMNS, GAP, TITLE = 6, 4, 30
#: Where the search for bm3d's noise level begins, by noise; elsewhere at 0.01.
LEVELS = {"gaussian 0.04": 0.04, "salt & pepper 2 %": 0.1, "poisson 400": 0.04}

#: By name: the piece of the answer as a file has it, and its figures.
Answers = dict[str, tuple[np.ndarray, dict[str, Any]]]


#: Under which terms scikit-image has the photographs, as `skimage.data` states them.
LICENCES = {
    "camera": "Lav Varshney, CC0",
    "astronaut": "NASA, public domain",
    "coffee": "Rachel Michetti, CC0",
    "cat": "Stéfan van der Walt, CC0",
    "coins": "Brooklyn Museum, no known copyright restrictions",
    "rocket": "SpaceX, public domain",
    "brick": "CC0Textures, CC0",
}


def behind(row: dict[str, Any]) -> float:
    """By how many dB the best peer is better; negative where ours is."""
    return max(row["peers"].values()) - row[JUDGED]["psnr"]


def photograph_of(case: str) -> str:
    return case.partition(",")[0]


def chosen(record: dict[str, Any]) -> list[str]:
    """Of each kind of noise the case that is worst for us, the worst of them first."""
    rows = [row for row in record["results"]["cases"] if photograph_of(row["case"]) in LICENCES]
    worst = [max((row for row in rows if row["noise"] == noise), key=behind) for noise in NOISES]
    return [row["case"] for row in sorted(worst, key=behind, reverse=True)]


def piece(truth: np.ndarray) -> tuple[slice, slice]:
    """Where the sharp photograph has the most detail: the largest sum of differences between neighbours."""
    detail = np.abs(np.diff(truth, axis=0))[:, 1:] + np.abs(np.diff(truth, axis=1))[1:]
    starts = [range(0, n - SIDE + 1, STEP) for n in truth.shape]
    places = [(slice(i, i + SIDE), slice(j, j + SIDE)) for i in starts[0] for j in starts[1]]
    return max(places, key=lambda at: detail[at].sum())


# ---------------------------------------------------------------- answers


class Shown:
    """A case, the piece of it that is shown, and what was answered."""

    def __init__(self, name: str) -> None:
        self.case: Case = next(case for case in cases() if str(case) == name)
        self.blur, self.g, self.truth = self.case.make()
        self.at = piece(self.truth)
        self.answers: Answers = {}
        self.answer("blurred", self.g)

    def answer(self, who: str, image: np.ndarray, parameter: float | None = None) -> None:
        self.answers[who] = (levels(image[self.at]), {"psnr": score(self.truth, image), "parameter": parameter})


def ours(shown: Shown) -> None:
    """With no number given."""
    case, said = shown.case, shown.case.hints()
    g = np.maximum(shown.g, 0) if "data" in said else shown.g
    for method in OURS:
        result = deblur.solve(g, shown.blur.psf, method=method, boundary=case.boundary, check=False, **said)
        shown.answer(f"deblur, {method}", result.image)


def peers(shown: Shown) -> None:
    """Each at its best parameter."""
    case, blur, g = shown.case, shown.blur, shown.g
    record = load("variational_peers")["results"]
    restore = restorers(blur, g)
    for who, best in record["cases"][str(case)].items():
        shown.answer(who, restore[who](best["parameter"]), best["parameter"])
    best = next(row for row in record["scico"]["cases"] if row["case"] == str(case))
    shown.answer("scico, admm-tv", scico_solved(case, best["lam"], best["rho"]), best["lam"])
    h = centred(blur.psf, blur.origin)
    wide = padded(g, (2 * h.shape[0], 2 * h.shape[1]))
    level, image = climb(
        lambda noise: bm3d_restored(wide, h, noise)[: g.shape[0], : g.shape[1]],
        lambda image: score(shown.truth, image),
        LEVELS.get(case.noise, 0.01),
    )
    shown.answer("bm3d, padded", image, level)


def climb(
    restore: Callable[[float], np.ndarray], value: Callable[[np.ndarray], float], start: float
) -> tuple[float, np.ndarray]:
    """The best parameter, over powers of two in the direction in which it gets better, and its image."""
    at, best = start, restore(start)
    for factor in (2.0, 0.5):
        while value(image := restore(at * factor)) > value(best):
            at, best = at * factor, image
        if at != start:
            break
    return at, best


def peers_before(shown: Shown, stored: list[dict[str, Any]]) -> bool:
    """Take the peers' panels and figures from the file of a case that was shown before; whether it was."""
    for row in stored:
        if row["case"] == str(shown.case):
            pixels = deblur.image.read(ROOT / "docs" / row["file"], as_float=False)
            for number, (who, figures) in enumerate(row["answers"].items(), start=1):
                if who != "blurred" and not who.startswith("deblur"):
                    shown.answers[who] = pixels[panel(number)], figures
            return True
    return False


# ---------------------------------------------------------------- pictures


def panel(number: int) -> tuple[slice, slice]:
    """Where a panel's pixels are in its file; the sharp photograph is the first, and then come the answers."""
    row, column = divmod(number, COLUMNS)
    top, left = row * (SIDE + TITLE) + TITLE, column * (SIDE + GAP)
    return slice(top, top + SIDE), slice(left, left + SIDE)


def levels(image: np.ndarray) -> np.ndarray:
    """In 8 bits."""
    return np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)


def sheet(shown: Shown) -> np.ndarray:
    """The pieces, pixel for pixel, each with its name and the PSNR of the whole picture above it."""
    from PIL import Image, ImageDraw, ImageFont

    paper = np.full((panel(len(shown.answers))[0].stop, COLUMNS * (SIDE + GAP) - GAP), 255, np.uint8)
    paper[panel(0)] = levels(shown.truth[shown.at])
    for number, (pixels, _) in enumerate(shown.answers.values(), start=1):
        paper[panel(number)] = pixels
    picture = Image.fromarray(paper)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(11)
    words = ["sharp"]
    for who, (_, figures) in shown.answers.items():
        whose, _, which = who.partition(", ")
        words.append(f"{whose}\n" + (f"{which}, " if which else "") + f"{figures['psnr']:.1f} dB")
    for number, text in enumerate(words):
        rows, columns = panel(number)
        draw.multiline_text((columns.start, rows.start - TITLE + 1), text, fill=0, font=font, spacing=2)
    return np.asarray(picture)


def one_case(name: str, stored: list[dict[str, Any]]) -> tuple[dict[str, Any], np.ndarray]:
    """(its row, its picture)."""
    shown = Shown(name)
    ours(shown)
    if not peers_before(shown, stored):
        peers(shown)
    figures = {who: row for who, (_, row) in shown.answers.items()}
    theirs = [row["psnr"] for who, row in figures.items() if not who.startswith("deblur")]
    row = {
        "case": name,
        "photograph": f"{shown.case.image}: {LICENCES[shown.case.image]}",
        "piece": [at.start for at in shown.at],
        "behind_db": max(theirs) - figures["deblur, collaborative"]["psnr"],
        "answers": figures,
    }
    return row, sheet(shown)


def described(case: str) -> str:
    photograph, *psf, noise, beyond = case.split(", ")
    noise = "no noise" if noise == "none" else noise
    beyond = "black beyond the frame" if beyond == "zero" else "a scene that goes on"
    return f"{photograph.capitalize()}, {', '.join(psf)}, {noise}, {beyond}"


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    """The six pictures, each with a line, and a table of what every method reached with which parameter."""
    parts = []
    for number, row in enumerate(r["cases"], start=1):
        psnr = {who: figures["psnr"] for who, figures in row["answers"].items()}
        best = max((who for who in psnr if not who.startswith(("deblur", "blurred"))), key=psnr.__getitem__)
        ahead = psnr["deblur, collaborative"] - psnr[best]
        where = f"{abs(ahead):.1f} dB {'above' if ahead > 0 else 'below'} the best of the others, {best}"
        parts.append(
            f"**{number}. {described(row['case'])}.** `collaborative` is {where}.\n\n"
            f"![{row['case']}: sharp, blurred, and restored by {len(psnr) - 1} methods]({row['file']})"
        )
    lead = (
        "PSNR of the whole picture in dB, and in brackets the parameter: the balance of `wiener`, the steps of "
        "`richardson_lucy` and `cgls`, the λ of SCICO's total variation, the noise level of `bm3d`."
    )
    rows: list[dict[str, Any]] = []
    for who in r["cases"][0]["answers"]:
        cells = {}
        for number, row in enumerate(r["cases"], start=1):
            found = row["answers"][who]
            parameter = found["parameter"]
            form = "d" if isinstance(parameter, int) else ".2g"
            cells[str(number)] = f"{found['psnr']:.1f}" + ("" if parameter is None else f" ({parameter:{form}})")
        rows.append({"who": f"`{who}`"} | cells)
    columns = {"": "{who}"} | {str(n): f"{{{n}}}" for n in range(1, len(r["cases"]) + 1)}
    notes = (
        f"The photographs: {'; '.join(sorted({row['photograph'] for row in r['cases']}))}. The six were chosen by the "
        f"figures of commit {r['chosen_from'][:7]}."
    )
    return [table("\n\n".join([*parts, lead]), columns, rows, notes)]


def main() -> None:
    options = asked(__doc__, peers=False, workers=1)
    record, before = load("variational"), load("gallery")
    stored = [] if options.peers or not before["results"] else before["results"]["cases"]
    rows = []
    found = each(one_case, [(name, stored) for name in chosen(record)], options.workers)
    for number, (row, picture) in enumerate(found, start=1):
        file = ROOT / "docs" / f"gallery_{number}.png"
        deblur.image.write(file, picture, overwrite=True)
        rows.append(row | {"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()})
    results = {"chosen_from": record["environment"]["commit"], "cases": rows}
    save("gallery", results, tables(results), side=SIDE, psnr="clipped to [0, 1], inside the frame")


if __name__ == "__main__":
    main()
