"""Choice of the changes to try."""

from __future__ import annotations

import pytest

from stepscope.capture.trial import CHANGES
from stepscope.diagnosis import Fix, Verdict
from stepscope.errors import UsageError
from stepscope.schema import Change
from stepscope.trials import choose_candidates, parse_changes


def make_verdict(*changes: list[Change]) -> Verdict:
    return Verdict(
        suspect="data_pipeline",
        cause="slow_dataset",
        share_ratio=0.5,
        confidence_ratio=0.5,
        headline="",
        stages=[],
        evidence=[],
        ruled_out=[],
        fixes=[
            Fix(title=f"fix {number}", instructions="", why="", changes=fix_changes)
            for number, fix_changes in enumerate(changes, 1)
        ],
    )


WORKERS = [Change(name="num_workers", value="2")]
THREADS = [Change(name="intra_op_threads", value="1")]


def test_the_first_fix_that_can_be_tried_is_the_default() -> None:
    verdict = make_verdict([], WORKERS, THREADS)
    assert [c.number for c in choose_candidates(verdict)] == [2]
    assert [c.number for c in choose_candidates(verdict, fix="all")] == [2, 3]
    assert [c.changes for c in choose_candidates(verdict, fix="3")] == [THREADS]


def test_named_changes_find_their_fix() -> None:
    verdict = make_verdict([], WORKERS)
    (candidate,) = choose_candidates(verdict, changes=WORKERS)
    assert candidate.number == 2
    (candidate,) = choose_candidates(verdict, changes=THREADS)
    assert (candidate.number, candidate.prediction) == (None, None)
    assert candidate.lines == ["torch.set_num_threads(1)"]


@pytest.mark.parametrize(
    ("fix", "sentence"),
    [
        ("1", r"needs an edit of the script and cannot be tried\. These can: "),
        ("9", "There is no fix 9; the verdict has 2"),
        ("x", "There is no fix x"),
    ],
)
def test_fixes_that_cannot_be_tried_are_explained(fix: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        choose_candidates(make_verdict([], WORKERS), fix=fix)
    with pytest.raises(
        UsageError, match=r"needs an edit of the script and cannot be tried\. No fix can"
    ):
        choose_candidates(make_verdict([]), fix="1")


def test_a_verdict_without_fixes_to_try_names_the_changes() -> None:
    with pytest.raises(UsageError, match="--change num_workers=2"):
        choose_candidates(make_verdict([]))
    with pytest.raises(UsageError, match="The verdict recommends no fix"):
        choose_candidates(make_verdict(), fix="1")


def test_several_workers_of_an_iterable_dataset_are_different_results() -> None:
    verdict = make_verdict(WORKERS, THREADS)
    assert [c.number for c in choose_candidates(verdict, is_map_style=False)] == [2]
    with pytest.raises(UsageError, match="each worker yields all samples, unless the iterable"):
        choose_candidates(verdict, changes=WORKERS, is_map_style=False)
    candidates = choose_candidates(
        verdict, changes=WORKERS, is_map_style=False, allow_different_results=True
    )
    assert [c.changes for c in candidates] == [WORKERS]
    one = [Change(name="num_workers", value="1")]
    assert choose_candidates(verdict, changes=one, is_map_style=False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("workers=2", "is not a change that can be tried"),
        ("num_workers", "is not a change that can be tried"),
        ("num_workers=-1", "num_workers takes .+, not '-1'"),
        ("pin_memory=maybe", "pin_memory takes .+, not 'maybe'"),
    ],
)
def test_unknown_changes_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_changes([text])


def test_values_take_their_usual_form() -> None:
    parsed = parse_changes(["num_workers=02", "pin_memory=true"])
    assert [change.value for change in parsed] == ["2", "True"]


def test_every_change_names_its_value_in_its_line() -> None:
    for change in CHANGES.values():
        value = change.values[0] if change.values else str(change.min_value)
        assert change.check(value) == value
        assert value in change.write_line(value) or len(change.values) == 1
        assert change.describe(value)


def test_arguments_of_one_call_are_in_one_line() -> None:
    changes = parse_changes(
        ["num_workers=2", "intra_op_threads=1", "prefetch_factor=4", "anomaly_detection=off"]
    )
    (candidate,) = choose_candidates(make_verdict(), changes=changes)
    assert candidate.lines == [
        "DataLoader(..., num_workers=2, prefetch_factor=4)",
        "torch.set_num_threads(1)",
        "remove torch.autograd.set_detect_anomaly and detect_anomaly",
    ]
