"""Compare deblurring methods on the same pictures.

`run` is the main function. ``print`` shows its result, a `Comparison`, and methods such as ``to_html`` write it to a
file. Imports only point down this list:

==================== ==================================================================================
``running``          `run` runs every method on every case; `Comparison` has the results and their output
``page`` (``.html``) one HTML page: summary, cases, pictures, plots, record; tables for a notebook
``tables`` (``.md``) the columns, the order of the rows; tables for the terminal, Markdown and CSV
``scoring``          runs, verifies, times and measures one method on one case; time limit, peak memory
``store``            the pictures of a row, in 8 bits; the folder that keeps each completed row
``adapters/``        the methods: `own` for deblur's, one small file for each other package
``findings``         `Settings` and `Row` as plain data
``cases``            the pictures with truth, PSF and noise, and the part that a method sees
``record``           the machine, the versions, the commit
==================== ==================================================================================
"""

from .adapters import entrants
from .cases import Case, Task, make_cases
from .findings import Row, Settings
from .running import Comparison, run

__all__ = ["Case", "Comparison", "Row", "Settings", "Task", "entrants", "make_cases", "run"]
