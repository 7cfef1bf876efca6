"""The document on reliability names what was counted."""

import re

import pytest

from benchmarks.reliability_doc import describe_faults, describe_kills


@pytest.mark.parametrize("describe", [describe_kills, describe_faults])
def test_the_revisions_that_were_counted_are_named(describe) -> None:
    revisions = re.search(r"Counted revisions: (.*)\.", describe())
    assert revisions is not None
    assert re.fullmatch(r"(`[0-9a-f]{7,}`(, )?)+", revisions[1])
