"""The verdict and the rules state one share for one thing, or the sentence names the difference.

Runs are drawn: phases of the step, number of steps and ranks, data preparation by the training
thread, other processes on its cores. Every share in a rule's sentence is compared with the steps
themselves, and with the verdict.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from stepscope.diagnosis import Suspect, Verdict, diagnose
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.run import Rank, Run
from stepscope.schema import Finding
from stepscope.testing import RunBuilder
from stepscope.testing.traces import TraceJob
from tests.support.drawn_verdicts import compute, draw_steps
from tests.support.imported_runs import import_into

PHASE_OF_RULE = {
    "DataloaderBottleneck": "data_wait",
    "FrameworkOverhead": "other",
    "CommunicationBound": "communication",
    "CheckpointStall": "checkpoint",
}
SUSPECT_OF_RULE = {
    "DataloaderBottleneck": "data_pipeline",
    "FrameworkOverhead": "framework_overhead",
    "CommunicationBound": "communication",
}
FIRST_STEPS = 10
"""Steps that the rules leave out; the verdict leaves out a tenth, at most as many."""
MS = 1_000_000
ROUNDING = 0.00051
"""Of shares with one decimal."""
SHARE = re.compile(
    r"^(?P<rank>[\w ]+): [\w ,]+ takes (?P<share><?[\d.]+)% of step time after the first 10 steps "
    r"\(threshold"
)
PART = re.compile(
    r"^(?P<rank>[\w ]+): [\w ,]+ takes up to (?P<highest>[\d.]+)% of (?P<steps>\d+) consecutive "
    r"steps \(threshold [\d.]+%\), (?P<share><?[\d.]+)% of all steps after the first 10 steps\."
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job whose steps have these phases, in milliseconds, one row per rank."""

    wait: tuple[int, ...]
    collective: int = 0
    preparation: int = 0
    script: int = 0
    save: int = 0
    delay: int = 0
    """Time without a core per step."""
    step_count: int = 60
    waits_in: float = 1.0
    """Share of the steps that wait, the first ones."""

    def draw(self, path: Path) -> Run:
        code = {"decode": "main > train > decode", "log": "main > train # print(step)"}
        run = RunBuilder(path, code=code, cores=2)
        is_parallel = len(self.wait) > 1
        for number, wait in enumerate(self.wait):
            rank = run.rank(number if is_parallel else None, workers=1)
            parts = ["forward 30", "backward 30", "optimizer 10"]
            parts += [f"do:decode {self.preparation}"] * bool(self.preparation)
            parts += [f"do:log {self.script}"] * bool(self.script)
            parts += [f"save {self.save}"] * bool(self.save)
            # The other ranks are waited for in the collective.
            collective = self.collective + max(self.wait) - wait if is_parallel else 0
            parts += [f"communication {collective}"] * bool(collective)
            waiting = round(self.waits_in * self.step_count)
            rank.draw(" | ".join([f"wait=1 {wait}" if wait else "do 0.01", *parts]), waiting)
            rank.draw(" | ".join(["wait=1 0.01", *parts]), self.step_count - waiting)
            if self.delay:
                rank.thread().draw(f"run_queue={self.delay * MS} 100", self.step_count)
                rank.fact("stack_sampler", period_ns=100 * MS, counts_delays=True)
                run.metric("process_cpu_cores", 0.5, device=str(rank.info.pid))
                run.metric("process_runqueue_ratio", self.delay / 100, device=str(rank.info.pid))
        run.metric("job_cpu_cores", 0.5).metric("outside_cpu_cores", 1.5 if self.delay else 0.0)
        return run.open()


jobs = st.builds(
    Job,
    wait=st.lists(st.sampled_from([0, 5, 20, 40, 90]), min_size=1, max_size=3).map(tuple),
    collective=st.sampled_from([0, 5, 40]),
    preparation=st.sampled_from([0, 3, 30, 60]),
    script=st.sampled_from([0, 3, 30, 60]),
    save=st.sampled_from([0, 2, 10]),
    delay=st.sampled_from([0, 0, 15, 50]),
    step_count=st.integers(31, 160),
    waits_in=st.sampled_from([1.0, 1.0, 0.3]),
)


def measure_share(rank: Rank, phase: str, rows: np.ndarray) -> float:
    return float(rank.steps.phase_ns[phase][rows].sum() / rank.steps.wall_ns[rows].sum())


def read_share(text: str) -> float:
    return 0.0 if text.startswith("<") else float(text) / 100


@pytest.mark.slow("diagnoses dozens of drawn runs")
@given(job=jobs)
@example(Job(wait=(30,), delay=50, step_count=60))
@example(Job(wait=(30,), preparation=40, step_count=120))
@example(Job(wait=(0,), preparation=60, step_count=120))
@example(Job(wait=(90, 5), step_count=120))
@example(Job(wait=(20,), waits_in=0.3, step_count=150))
@example(Job(wait=(18,), step_count=40))
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.seed("DIAG-02")
def test_shares_of_rules_and_verdict_agree_or_the_sentence_names_the_difference(job: Job) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = job.draw(Path(directory) / "run")
        verdict = diagnose(run)
        report = check_rules(run.reader, choose_rules(PHASE_OF_RULE))
        for finding in report.findings:
            if finding.missing is None:
                check_sentences(finding, verdict, run)
                check_against_verdict(finding, verdict, run)


def check_sentences(finding: Finding, verdict: Verdict, run: Run) -> None:
    """Compare the shares in the sentences of a rule with the steps and with the verdict."""
    phase, ranks = PHASE_OF_RULE[finding.rule], {rank.name: rank for rank in run.ranks}
    matches = [SHARE.match(text) or PART.match(text) for text in finding.sentences]
    if finding.rule == "DataloaderBottleneck":  # its other sentences are about computation
        matches = [match for match in matches if match is not None]
    assert matches
    assert all(matches), finding.sentences
    for match in filter(None, matches):
        rank = ranks[match["rank"]]
        after_first = np.arange(len(rank.steps)) >= FIRST_STEPS
        share = read_share(match["share"])
        assert share == pytest.approx(measure_share(rank, phase, after_first), abs=ROUNDING)
        if "highest" in match.groupdict():
            assert read_share(match["highest"]) > share
        is_same = len(ranks) == 1 and (after_first == rank.steps.measured()).all()
        if is_same:
            assert share == pytest.approx(verdict.phases[phase], abs=ROUNDING)
        else:
            assert len(ranks) > 1 or len(rank.steps) < 10 * FIRST_STEPS


def check_against_verdict(finding: Finding, verdict: Verdict, run: Run) -> None:
    """Require a reason in the verdict where a rule fires on all steps of a single rank, and the
    verdict says that the suspect has less than the phase."""
    suspect = SUSPECT_OF_RULE.get(finding.rule)
    phase = PHASE_OF_RULE[finding.rule]
    reasons = {ruled_out.suspect: ruled_out for ruled_out in verdict.ruled_out}
    if suspect not in reasons or not finding.fired:
        return
    ruled_out = reasons[suspect]
    if "several parts of which none" in ruled_out.why:
        return
    if any(PART.match(text) for text in finding.sentences):
        return
    if ruled_out.share_ratio < verdict.phases[phase] - 0.005:
        measured = f"{100 * verdict.phases[phase]:.0f}% of step time as measured"
        explained = f"The phase {phase} has {measured}: "
        assert explained in ruled_out.why or "Ranks wait for the slowest" in ruled_out.why


TRACED_SHARE = re.compile(r"^Trace [\w.]+: [\w ]+ takes? (<?[\d.]+)% of step time \(threshold")
TRACE_RULES: dict[str, Suspect] = {
    "DataloaderBottleneck": "data_pipeline",
    "FrameworkOverhead": "framework_overhead",
}


@pytest.mark.slow("diagnoses dozens of drawn traces")
@given(
    fetch=st.integers(10, 40_000), script=st.integers(0, 30_000), kernels=st.integers(2_000, 30_000)
)
@example(fetch=20_000, script=0, kernels=20_000)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
def test_shares_of_rules_and_verdict_agree_on_a_trace(
    fetch: int, script: int, kernels: int
) -> None:
    """A step fetches, runs Python and computes; microseconds."""

    def draw(job: TraceJob, _severity: float) -> None:
        job.wait()
        job.fetch(fetch)
        job.python(script)
        compute(job, kernels)

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "trace.json"
        file.write_bytes(draw_steps(draw, 1).encode())
        run = import_into(Path(directory) / "run", file)
        verdict = diagnose(run)
        findings = check_rules(run.reader, choose_rules(TRACE_RULES)).findings
        for finding in findings:
            (match,) = [match for text in finding.sentences if (match := TRACED_SHARE.match(text))]
            share = verdict.get_share(TRACE_RULES[finding.rule])
            assert share == pytest.approx(read_share(match[1]), abs=1.1 * ROUNDING)
