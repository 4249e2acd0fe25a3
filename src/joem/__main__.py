"""`python -m joem` is the command `joem`."""

import sys

from joem.cli import main

sys.exit(main())
