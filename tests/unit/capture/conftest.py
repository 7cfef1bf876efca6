"""Recording in the process of the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.capture import session


@pytest.fixture
def recording(spool: Any) -> Iterator[Any]:
    """Provide a spool that this process records into."""
    session.attach(str(spool.path), spool.limit_bytes)
    yield spool
    session.detach()
