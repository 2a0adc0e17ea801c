"""`python -m cg4ai`: the command line, where no script is installed."""

import sys

from cg4ai.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
