"""Compare deblurring methods on the same pictures, and say what was found: ``deblur compare``.

`run` is the one call; ``print(found)``, ``found.to_html("page.html")`` and
the like show what it found. `cases` makes the pictures, `adapters` holds the
methods, one small file each, `judge` measures, `report` writes the page.
"""

from .adapters import contestants
from .cases import Case, Task, make_cases
from .comparison import Comparison, run
from .judge import Row, Settings

__all__ = ["Case", "Comparison", "Row", "Settings", "Task", "contestants", "make_cases", "run"]
