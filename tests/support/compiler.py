"""Mark of tests that build one of the libraries in C."""

import pytest

from stepscope.native_library import find_compiler

needs_compiler = pytest.mark.skipif(
    find_compiler() is None, reason="this machine has no C compiler"
)
