"""`python -m cg4ai_checker FILE` is `cg4ai-check FILE`."""

from __future__ import annotations

import sys

from cg4ai_checker.command import main

if __name__ == "__main__":
    sys.exit(main())
