"""Compare deblurring methods on the same pictures, and say what was found: ``deblur compare``.

`run` is the one call; ``print(found)``, ``found.to_html("page.html")`` and
the like show what it found. Imports only point down this list:

==================== ==================================================================================
``command``          the arguments of ``deblur compare``, its progress bar, its files
``running``          `run`: every method on every case; `Comparison`: what was found, and its ways out
``page`` (``.html``) one HTML page: summary, cases, pictures, record
``html_tables``      the tables in HTML, for the page and for a notebook
``svg``              the plots of the page
``tables``           the columns, the order of the rows; tables for the terminal, Markdown and CSV
``store``            the folder that keeps each row as it is done
``pictures``         pictures as they are shown: 8 bits, packed to fit a page
``judge``            runs one method on one case, checks, times and measures it
``limits``           the time limit and the peak of memory
``adapters/``        the methods: `own` for deblur's, one small file for each other package
``findings``         `Settings`, `Row` and all rows together, as plain data
``cases``            the pictures: what was blurred by what, and what a method is shown of it
``record``           the machine, the versions, the commit
==================== ==================================================================================
"""

from .adapters import contestants
from .cases import Case, Task, make_cases
from .findings import Row, Settings
from .running import Comparison, run

__all__ = ["Case", "Comparison", "Row", "Settings", "Task", "contestants", "make_cases", "run"]
