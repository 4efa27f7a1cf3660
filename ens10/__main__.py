"""`python -m ens10`: the console script, where it is not on the path."""

import sys

from ens10.cli import main

if __name__ == "__main__":
    sys.exit(main())
