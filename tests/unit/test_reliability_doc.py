"""The document on reliability follows from the counts of the fault suites."""

from benchmarks.reliability_doc import DOC, reliability_doc


def test_the_document_is_up_to_date() -> None:
    assert DOC.read_text() == reliability_doc(), "run python -m benchmarks.reliability_doc"
