"""Recording within the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.capture import session


@pytest.fixture
def recording(spool: Any) -> Iterator[Any]:
    """The spool, while this process records into it."""
    session.attach(str(spool.path), spool.limit_bytes)
    yield spool
    session.detach()
