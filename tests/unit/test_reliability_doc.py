"""The document on reliability follows from the counts of the fault suites."""

import re

from benchmarks.reliability_doc import DOC, reliability_doc


def test_the_document_is_up_to_date() -> None:
    assert DOC.read_text() == reliability_doc(), "run python -m benchmarks.reliability_doc"


def test_the_document_names_the_revisions_that_were_counted() -> None:
    lines = re.findall(r"Counted revisions: (.*)\.", reliability_doc())
    assert len(lines) == 2
    assert all(re.fullmatch(r"(`[0-9a-f]{7,}`(, )?)+", line) for line in lines)
