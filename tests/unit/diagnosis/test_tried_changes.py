"""Changes by which fixes are tried, and measured effects beside the fixes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stepscope.capture.trial import CHANGES
from stepscope.cli.writers.verdict import write_verdict
from stepscope.diagnosis import Fix, Verdict, describe_outcome, diagnose
from stepscope.diagnosis.causes.job_facts import JobFacts
from stepscope.diagnosis.fixes import fact_fixes
from stepscope.diagnosis.fixes.framework_fixes import list_changes
from stepscope.diagnosis.measured import attach_outcomes
from stepscope.run import Run
from stepscope.schema import (
    Change,
    DataLoaderFact,
    OptimizerFact,
    SettingsFact,
    TrialPair,
    TriedChange,
)
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from tests.support.cause_runs import SETTINGS

WORKERS = [
    Change(name="num_workers", value="2"),
    Change(name="prefetch_factor", value="4"),
    Change(name="persistent_workers", value="True"),
]


def make_outcome(
    savings: tuple[float, float, float], *, changes: list[Change] = WORKERS, created_ns: int = 1
) -> TriedChange:
    """Make an outcome of median saving and interval."""
    saving, low, high = savings
    return TriedChange(
        created_ns=created_ns,
        changes=changes,
        predicted_saving_ratio=0.15,
        pairs=[TrialPair(base_step_ns=1e8, changed_step_ns=1e8 * (1 - saving))] * 5,
        saving_ratio=saving,
        min_saving_ratio=low,
        max_saving_ratio=high,
        confidence_ratio=0.94,
        warmup_step_count=10,
        step_count=30,
        is_isolated=True,
        node="n0",
    )


@pytest.mark.parametrize(
    ("savings", "text"),
    [
        ((0.12, 0.09, 0.14), "12% shorter (9% to 14%, 5 pairs)"),
        ((-0.5, -0.6, -0.4), "50% longer (40% to 60%, 5 pairs)"),
        ((0.01, -0.02, 0.03), "about even (2% longer to 3% shorter, 5 pairs)"),
    ],
)
def test_outcomes_in_words(savings: tuple[float, float, float], text: str) -> None:
    assert describe_outcome(make_outcome(savings)) == text


def test_the_last_outcome_of_the_same_changes_belongs_to_a_fix() -> None:
    fixes = [
        Fix(title="a", instructions="", why="", changes=WORKERS),
        Fix(title="b", instructions="", why="", changes=WORKERS[:1]),
        Fix(title="c", instructions="", why=""),
    ]
    outcomes = [
        make_outcome((0.5, 0.4, 0.6), created_ns=1),
        make_outcome((0.12, 0.09, 0.14), created_ns=2, changes=WORKERS[::-1]),
    ]
    first, second, third = attach_outcomes(fixes, outcomes)
    assert first.tried.text == "12% shorter (9% to 14%, 5 pairs), predicted 15% shorter"
    assert second.tried is None
    assert third.tried is None


def draw_run(path: Path) -> Path:
    """Draw a job that waits for a single worker most of the time."""
    builder = RunBuilder(path, code={"decode": "fetch > Rows.__getitem__ > decode"})
    rank = builder.rank(workers=1)
    rank.draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100, jitter=0.1)
    for worker in rank.workers:
        worker.draw("fetch ( samples ( do:decode 98 ) | collate 2 )", 100)
    builder.metric("outside_cpu_cores", 0)
    return builder.write()


def write_text(verdict: Verdict, location: str) -> str:
    out = io.StringIO()
    write_verdict(Console(file=out, width=200), verdict, location)
    return out.getvalue()


def test_diagnose_offers_a_trial_and_then_shows_its_outcome(tmp_path: Path) -> None:
    location = draw_run(tmp_path / "my run")
    verdict = diagnose(Run(open_run(location)))
    number, fix = next((n, f) for n, f in enumerate(verdict.fixes, 1) if f.changes)
    text = write_text(verdict, str(location))
    assert f"Try it: stepscope try '{location}' --fix {number}" in text
    with RunWriter(location, "n0") as writer:
        outcome = make_outcome((0.12, 0.09, 0.14), changes=fix.changes)
        assert writer.add_document("tries", "first", outcome)
        assert not writer.add_document("tries", "first", outcome)
    verdict = diagnose(Run(open_run(location)))
    tried = verdict.fixes[number - 1].tried
    assert tried.pair_count == 5
    text = write_text(verdict, str(location))
    assert f"Tried: {tried.text}." in text
    assert f"--fix {number}" not in text


LOADER = DataLoaderFact(name="Rows#0", batch_size=8, num_workers=2, iterable=False)
INLINE_LOADER = DataLoaderFact(name="Rows#0", batch_size=8, num_workers=0, iterable=True)
SWITCHES = {"anomaly_detection": True, "variables": {"PYTHONMALLOC": "debug"}}


def make_facts(**facts: Any) -> JobFacts:
    defaults: dict[str, Any] = dict.fromkeys(JobFacts.__struct_fields__)
    return JobFacts(**(defaults | {"has_fused_attention": False} | facts))


ADAM = OptimizerFact(name="AdamW", parameter_count=9, tensor_count=2, devices=["cpu"])


@pytest.mark.parametrize(
    ("title", "facts", "changes"),
    [
        (fact_fixes.COMPILE, {}, {"compile": "default"}),
        (fact_fixes.TWICE_THE_BATCH, {"loader": LOADER}, {"batch_size": "16"}),
        (fact_fixes.TWICE_THE_BATCH, {}, {}),
        (fact_fixes.CACHE, {"loader": LOADER}, {"cached_samples": "memory"}),
        (fact_fixes.CACHE, {"loader": INLINE_LOADER}, {}),
        (fact_fixes.KEEP_WORKERS, {"loader": LOADER}, {"persistent_workers": "True"}),
        (fact_fixes.KEEP_WORKERS, {"loader": INLINE_LOADER}, {}),
        (fact_fixes.OVERLAP, {"loader": LOADER}, {"num_workers": "4"}),
        (fact_fixes.OVERLAP, {"loader": INLINE_LOADER}, {"num_workers": "2"}),
        (fact_fixes.PIN, {"loader": LOADER, "has_gpus": True}, {"pin_memory": "True"}),
        (fact_fixes.PIN, {"loader": LOADER, "has_gpus": False}, {}),
        (fact_fixes.PIN, {"loader": LOADER, "optimizer": ADAM}, {}),
        (fact_fixes.OPTIMIZER_KERNELS, {"optimizer": ADAM}, {"optimizer": "fused"}),
        (fact_fixes.DEBUG, {}, {}),
        (
            fact_fixes.DEBUG,
            {"settings": SettingsFact(**{**SETTINGS, **SWITCHES})},
            {"anomaly_detection": "off", "debug_variables": "off"},
        ),
        ("Move work out of the loop", {"loader": LOADER}, {}),
    ],
)
def test_changes_of_fixes(title: str, facts: Mapping[str, Any], changes: Mapping[str, str]) -> None:
    listed = list_changes(title, make_facts(**facts))
    assert {change.name: change.value for change in listed} == changes
    for change in listed:
        assert CHANGES[change.name].check(change.value) == change.value
