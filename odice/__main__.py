"""`python -m odice` is the command `odice`."""

import sys

from odice.cli.main import main

sys.exit(main())
