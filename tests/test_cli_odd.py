"""Odd command lines: each ends before work starts, with one line that names the value and what to try."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from test_cli_files import fails

import deblur
from deblur import image

RUN = "reconstruct g.png -o o.png --psf box:3"
ODD = {
    "restore": "deblur reconstruct?",
    "photo.jpg": "deblur reconstruct photo.jpg --output OUT --psf PSF",
    "psf point": "deblur psf points?",
    "magic": "choose from reconstruct, choose",
    f"{RUN} --lambda 3": "there is no option --lambda; did you mean --lam?",
    f"{RUN} h.png": "unexpected 'h.png'",
    f"{RUN} --method TVV": "'TVV'; did you mean tv?",
    f"{RUN} --lam GCV": "or one of gcv, discrepancy, lcurve, upre, sure, whiteness; did you mean gcv?",
    f"{RUN} --noise x": "--noise: a number, or two as 2,0.01, is needed, not 'x'",
    f"{RUN} --max-iterations 0": "--max-iterations: a whole number from 1 is needed, not '0'",
    "reconstruct none.png -o o.png --psf box:3": "none.png: there is no such file",
    "reconstruct -d -o o.png --psf box:3": "-d is a folder without images",
    "reconstruct g.png -o o.xyz --psf box:3": "o.xyz: cannot write .xyz; use one of .png",
    "reconstruct g.png -o  --psf box:3": "the name of a file is needed, not ''",
    f"reconstruct g.png -o {'z' * 300}.png --psf box:3": "File name too long; use another name",
    "reconstruct g.png -o o.png": "exactly one of --psf, --blind and --psf-grid",
    "reconstruct g.png -o o.png --psf gaussian:101,9": "(101 x 101) is larger than the image (30 x 30); crop the PSF",
    "reconstruct cut.tif -o o.tif --psf box:3": "cut.tif as an image: it is damaged or was cut short",
    "reconstruct g.png -o o.png --psf box:1000000": "box:1000000",
    f"{RUN} --lam 1e300": "or take --dtype 'float64'",
    f"{RUN} --grid 9": "--grid belongs to --psf-grid",
    f"{RUN} --mask f.tif": "--mask has shape (3, 30, 30); it must be that of the image, (30, 30)",
    "blind g.png --size 0": "--size: auto, or 15x17 pixels, is needed, not '0'",
    f"{RUN} --bounds low": "nonnegative, or two numbers",
    f"{RUN} --bounds 1e300,1e301": "--bounds 1e+300,1e+301 leave no digit of an image of up to",
    "reconstruct half.tif -o o.tif --psf box:3": "half.tif was cut short: more follows its page 1; copy it again",
    "reconstruct m.zarr -o o.tif --psf box:3": "m.zarr: damaged OME metadata (AttributeError(",
    "reconstruct l.zarr -o o.zarr --psf box:3": "l.zarr has shape (9,), and an image has rows and columns",
    f"{RUN} --time 0": "--time 0 is not in g.png, which has 0 of them: its axes are YX, none before the rows",
    f"{RUN} --psf box:5": "--psf was given twice, as box:3 and as box:5",
    f"{RUN} --psf-error 1e300": "--psf-error 1e+300 is more than two PSFs can differ, 1.41",
    "reconstruct g.png -o -x.png --psf box:3": "before a name that begins with a dash write ./",
    f"{RUN} --method magic": "invalid choice: 'magic' (choose from auto, fft, ",
    f"{RUN} --lam 1e-6 --method pcg --max-iterations 1": "converge",
    f"{RUN} --axis QYX": "letters such as ZYX",
    f"{RUN} --axis ZYX": "--axis ZYX does not fit g.png: its axes are YX",
    f"{RUN} --planes": "--planes does nothing here: g.png has no axis Z",
    f"{RUN} --views v.jpg": "--views v.jpg: it must be a .png",
    f"{RUN} --views v.png": "--views does nothing here: the PSF is in 2-D",
    "reconstruct f.tif -o o.tif --psf box:3 --time 1:9": "--time 1:9 is not in f.tif, which has 3 of them",
    "reconstruct g.png -o o.png --psf gaussian:3x3x3,1": "it is a single plane: use a 2-D PSF, such as the middle",
    "compare --image g.png --psf box:3 --noise gaussian:-1": "the level of the noise 'gaussian', its standard",
    "compare --image g.png --psf gaussian:3x3x3,1": "must be a non-empty 2-D array, not shape (3, 3, 3)",
    "reconstruct f.tif -o o.tif --axis CYX --psf gaussian:3x3x3,1": "no axis Z, or an unknown axis: its axes are CYX",
    "reconstruct q.tif -o o.tif --axis TZYX --psf delta:3x3x3": "for the command a file not black there",
    "reconstruct q.tif -o o.tif --psf gaussian:3x3x3,1": "its axes are QQYX, (2, 3)",
    "reconstruct f.tif -o o.tif --axis ZYX --psf gaussian:5x3x3,1 --boundary zero": "than the image (3 x 30 x 30)",
    "reconstruct g.png -o o.png --psf g.png": "the blurred picture itself; the PSF is the image of one point",
    f"{RUN} --clip --rescale": "not allowed with",
    "reconstruct f.tif -o o.tif --psf box:3 --clip --bits 32": "--clip does nothing here",
    f"{RUN} --noise 5 --lam upre": "--noise 5 is more than any pixel of dtype uint8 holds",
    f"{RUN} --noise 0.1 --lam lcurve": "--noise does nothing here: --lam lcurve",
    f"{RUN} --prior zero --method tv": "cannot be used here: prior belongs to the linear formula",
    f"{RUN} --stop consensus": "--stop 'consensus' belongs to --method 'richardson-lucy'",
    f"{RUN} --workers 2": "--workers does nothing here: OUT is no .zarr",
    "reconstruct g.tif -o o.zarr --psf box:3 --bits 8": "--bits does nothing here",
    "reconstruct g.tif -o s3://bucket/o.zarr --psf box:3": "is not a path on this machine",
    "reconstruct g.tif -o o.zarr --psf box:3 --tolerance 2": "between 0 and 1",
    f"reconstruct g.tif -o o.zarr --psf box:3 --memory {'9' * 400}": "8GB or 512MiB",
    "plan --shape 9x9 --psf box:3 --lam 1 --memory 0": "a size such as 8GB or 512MiB is needed, not '0'",
    "choose --shape 99999999999999999999 --psf box:3": "ROWSxCOLUMNS such as 15x17",
    "reconstruct n.zarr -o o.tif --psf box:3": "the axes of n.zarr are ['z', 'y', 'x'], with scales [[nan, nan, nan]]",
    "psf fit g.png --kind foo": "unknown kind 'foo'; choose one of gaussian, moffat, disk, airy, motion",
    "compare --blurred": "a picture that came blurred must be named",
    "compare --image g.png --blurred --noise 0.1": "leave them or --blurred out",
    "compare --image g.png --resume": "compare_output holds no comparison to resume: name its folder, or leave out",
    "demo --seed -1": "--seed: a whole number from 0 is needed, not '-1'",
    "psf points g.png -o p.xyz": "written to .npy, .npz, .csv, .txt or .tif, not to '.xyz'",
    "psf points g.png --positions text.png": "--positions text.png: row 1, column 1 holds 'no'",
    "psf edge g.tif": "give --region",
    "psf edge g.tif --region 1,2": "--region: four whole numbers, as 1,9,2,8 is needed, not '1,2'",
}


@pytest.mark.parametrize("line", ODD)
def test_an_odd_command_line_is_answered_in_one_line(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-d").mkdir()
    zarr.create_array("l.zarr", shape=(9,), dtype="f4")
    zarr.create_group("m.zarr", attributes={"multiscales": "x"})
    axes = {"axes": [{"name": name} for name in "zyx"], "datasets": [{"path": "0"}]}
    zarr.create_group("n.zarr", attributes={"multiscales": [axes]}).create_array("0", shape=(9, 9), dtype="f4")
    (tmp_path / "cut.tif").write_bytes(b"II*\0\1\0\0")
    (tmp_path / "text.png").write_text("no image")
    image.write("g.png", deblur.data.load("camera")[100:130, 100:130])
    tifffile.imwrite("f.tif", np.zeros((3, 30, 30), np.uint8), imagej=True, metadata={"axes": "TYX"})
    (tmp_path / "half.tif").write_bytes((tmp_path / "f.tif").read_bytes()[:1500])
    tifffile.imwrite("q.tif", np.full((2, 3, 9, 9), np.nan, np.float32), photometric="minisblack")
    image.write("g.tif", np.full((30, 30), 7, np.uint8))
    fails(capsys, line.split(" "), ODD[line], code=1 if "--max-iterations 1" in line else 2)
    assert not any(Path(name).exists() for name in ("o.png", "o.tif", "o.zarr", "compare_output"))
