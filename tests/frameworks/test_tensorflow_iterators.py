"""Waits for iterators of tf.data that end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.framework_environments import find_python

pytestmark = pytest.mark.extended("a detail of iterators; test_tensorflow_contracts.py has a job")

JOB = """
import tensorflow as tf
from stepscope.capture.frameworks.progress import progress

iterator = iter(tf.data.Dataset.range(8).prefetch(2))
next(iterator)
before_ns = progress.data_wait_ns
del iterator
print(progress.data_wait_ns - before_ns)
"""


def test_the_end_of_an_iterator_is_a_wait_of_the_heartbeat_too(spool: Any) -> None:
    done = spool.run(JOB, python=find_python("keras"))
    (end,) = [span for span in spool.drain().of("data_wait") if span.flags]
    assert int(done.stdout) >= end.duration > 0
