"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-floor` installs exactly these.

python tools/floor.py > constraints.txt
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
for requirements in (project["dependencies"], *project["optional-dependencies"].values()):
    for requirement in requirements:
        if ">=" in requirement:
            print(re.sub(r"\[.*\]", "", requirement).replace(">=", "=="))
