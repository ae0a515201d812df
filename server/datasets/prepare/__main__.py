"""Lets the archive and `python3 -m prepare` start."""

import sys

from prepare.main import main

sys.exit(main(sys.argv[1:]))
