"""Run the command: ``python -m deblur``."""

import sys

from .cli import main

sys.exit(main())
