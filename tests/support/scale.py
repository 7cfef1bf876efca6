"""Scale of tests that take long where they are as large as what they stand for."""

import os

IS_FULL = os.environ.get("FULL_SCALE") == "1"
"""True for `make slow-faults`."""
