"""Run by the installed wheel's Python, outside the checkout: is everything there, and is import light?"""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

root = Path(sys.argv[1]).resolve()

import deblur

assert root / "deblur" not in Path(deblur.__file__).resolve().parents, deblur.__file__
for suffix in (".cu", ".cuh", ".zip"):  # .zip: machine code, where the compiler is there
    shipped = {f.name for f in files("deblur.cuda").iterdir() if f.name.endswith(suffix)}
    assert shipped == {f.name for f in (root / "cuda").glob(f"*{suffix}")}, (suffix, shipped)
for name in deblur.data.names():
    assert deblur.data.load(name).size

loaded = subprocess.run(
    [sys.executable, "-c", "import sys, deblur; print(*sys.modules)"], check=True, capture_output=True, text=True
).stdout.split()
heavy = {"cupy", "matplotlib", "imageio", "skimage", "tqdm", "dask", "pandas", "PIL"} & set(loaded)
assert not heavy, heavy
print("wheel: kernels and images are there, and import loads none of the heavy packages")
