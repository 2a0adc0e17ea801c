"""One thread per test process: with several processes, more threads only get in each other's way.

Set before torch or NumPy is imported, and inherited by the programs that tests start.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
