"""`python -m anabranch`: the same as the command `anabranch`."""

import sys

from anabranch.cli.main import main

sys.exit(main())
