"""Verdicts on training programs of others, compared with what their fixes save.

    python -m benchmarks.foreign        scores benchmarks/results/foreign.json

The programs run unchanged, on generated data, outside the repository; neither they nor their data
are part of it. Most are public; some were written on public libraries by someone who did not know
the rules, with one planted fault each. The truth of each is measured: a change is applied to a copy
of the program, and both run alternately. Writes benchmarks/results/foreign.md, and the counts from
which verdicts take their confidence, src/stepscope/diagnosis/accuracy.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from benchmarks.diagnosis.scoring import BOTTLENECK_SUSPECTS, Rate
from stepscope.diagnosis.measured import COUNTS, AccuracyCounts, Counts
from stepscope.diagnosis.verdict import EvidenceKind

RESULTS = Path(__file__).with_name("results")
PROVING_SAVING = 0.15
"""Saving of a fix that makes an accusation of its cause true."""
OBVIOUS_SAVING = 0.20
"""Saving of a fix that makes the verdict `healthy` wrong."""
MIN_SAVING = 0.02
"""Savings below this count as none when the sign of a prediction is checked."""
NO_FAULT = frozenset([("healthy", "none"), ("model", "compute")])
"""Verdicts by which nothing but the model's own arithmetic takes the time."""
Half = Literal["development", "held out"]


class MeasuredFix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change made to a copy of the program, and its effect."""

    change: str
    suspect: str
    cause: str
    saving_ratio: float
    """Share of the time per step that the change saves, per sample where it changes the batch."""
    interval: tuple[float, float] | None = None
    """Smallest and largest saving of the pairs."""
    pair_count: int


class GivenVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first verdict on a program."""

    suspect: str
    cause: str
    share_ratio: float
    confidence_ratio: float
    evidence_kind: EvidenceKind
    first_fix: str | None = None
    predicted_saving_ratio: float | None = None
    """Predicted for the first fix; None where it has no prediction."""
    achieved_saving_ratio: float | None = None
    """Measured saving of that fix; None where it was not tried."""


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A public program, its truth and its verdict."""

    id: str
    title: str
    repository: str
    version: str
    command: list[str]
    kind: str
    framework: str
    half: Half
    """Programs of the development half were known to the authors of the rules."""
    frozen_at: str | None = None
    """Revision of the rules at the first verdict on a program that was held out; several rounds
    were frozen one after another, and the rules changed after each."""
    fixes: list[MeasuredFix]
    why: str
    verdict: GivenVerdict
    recording_cost_ratio: float | None = None
    """Relative time per step that recording adds; None where it was not measured."""

    def select_proven(self, min_saving: float = PROVING_SAVING) -> list[MeasuredFix]:
        """Select the fixes that save at least this share, largest first."""
        proven = [fix for fix in self.fixes if fix.saving_ratio >= min_saving]
        return sorted(proven, key=lambda fix: -fix.saving_ratio)


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """Grade of one verdict."""

    abstained: bool
    accuses: bool
    suspect_right: bool
    cause_right: bool
    false_alarm: bool
    """True if it accuses a program that no fix improves."""
    sign_right: bool | None
    """True if the first fix saves time where that is predicted; None where it was not tried."""


def grade(program: Program) -> Grade:
    """Grade a verdict by the measured fixes."""
    verdict, proven = program.verdict, program.select_proven()
    is_fault = (verdict.suspect, verdict.cause) not in NO_FAULT
    accuses = verdict.suspect in BOTTLENECK_SUSPECTS and is_fault
    is_healthy_right = not is_fault and not program.select_proven(OBVIOUS_SAVING)
    sign_right = None
    if verdict.predicted_saving_ratio is not None and verdict.achieved_saving_ratio is not None:
        predicts_saving = verdict.predicted_saving_ratio >= MIN_SAVING
        sign_right = predicts_saving == (verdict.achieved_saving_ratio >= MIN_SAVING)
    return Grade(
        abstained=verdict.suspect == "insufficient_evidence",
        accuses=accuses,
        suspect_right=is_healthy_right or any(fix.suspect == verdict.suspect for fix in proven),
        cause_right=is_healthy_right
        or any((fix.suspect, fix.cause) == (verdict.suspect, verdict.cause) for fix in proven),
        false_alarm=accuses and not proven,
        sign_right=sign_right,
    )


def load_programs() -> list[Program]:
    """Load the programs and their verdicts."""
    return msgspec.json.decode((RESULTS / "foreign.json").read_bytes(), type=list[Program])


def count_verdicts(programs: Iterable[Program]) -> AccuracyCounts:
    """Count right verdicts by cause and by kind of evidence."""
    causes: dict[str, Counts] = {}
    kinds: dict[EvidenceKind, Counts] = {}
    for program in programs:
        graded = grade(program)
        if graded.abstained:
            continue
        cause, kind = program.verdict.cause, program.verdict.evidence_kind
        one = Counts(verdict_count=1, right_count=int(graded.cause_right))
        causes[cause] = causes.get(cause, Counts()) + one
        kinds[kind] = kinds.get(kind, Counts()) + one
    return AccuracyCounts(
        causes=dict(sorted(causes.items())), evidence_kinds=dict(sorted(kinds.items()))
    )


def render(programs: Sequence[Program]) -> str:
    """Render the page."""
    return (
        "\n\n".join(
            [
                "# Verdicts on public programs",
                _PREFACE,
                "## Scores",
                _table(
                    [
                        "programs",
                        "number",
                        "suspect",
                        "cause",
                        "false alarms",
                        "abstentions",
                        "sign",
                    ],
                    [_score(*round_, programs) for round_ in _list_rounds(programs)],
                ),
                "## Programs",
                _table(
                    [
                        "program",
                        "true cause",
                        "saved",
                        "verdict",
                        "confidence",
                        "first fix",
                        "cost",
                    ],
                    [_describe(program) for program in programs],
                ),
                "## Commands",
                _table(
                    ["program", "repository", "version", "command"],
                    [
                        [p.id, p.repository, p.version[:10], f"`{' '.join(p.command)}`"]
                        for p in programs
                    ],
                ),
            ]
        )
        + "\n"
    )


_PREFACE = f"""\
Public training programs, and in the round of 48334ad programs on public libraries with a planted
fault, by someone who did not know the rules; run unchanged on generated data on two cores without a
GPU. Truths are measured: a change to a copy of the program, two or three alternating pairs, time
per step with everything between the steps. An accusation is right if a fix of its cause saves at
least {PROVING_SAVING:.0%}; “healthy” is wrong if a fix saves {OBVIOUS_SAVING:.0%}, and so is
“model: compute”, which says that the hardware is busy with the model. Programs *held out* ran under
stepscope for the first time after the rules were frozen, and show that first verdict; those of the
development half were known to their authors, and show the verdict of the present rules. Suspects
and causes are shares of all verdicts given, false alarms of all programs without an effective fix;
“sign” is the share of first fixes, as far as they were tried, that save time if and only if that
was predicted. Intervals (Wilson, 95 %) are in brackets."""


_BOUNDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def describe_reliability() -> str:
    """Describe the reliability curve of the confidence of verdicts.

    Each program is left out of the counts from which its own accuracy is estimated.
    """
    held_out = [p for p in load_programs() if p.half == "held out" and not grade(p).abstained]
    stated: list[tuple[float, bool]] = []
    for program in held_out:
        counts = count_verdicts(p for p in held_out if p is not program)
        cause, kind = program.verdict.cause, program.verdict.evidence_kind
        accuracy = counts.estimate_accuracy(cause, kind)
        stated.append((accuracy, grade(program).cause_right))
    rows = []
    for low, high in pairwise(_BOUNDS):
        inside = [(ratio, is_right) for ratio, is_right in stated if low <= ratio < high]
        if inside:
            mean = fmean(ratio for ratio, _ in inside)
            rights = _rate([is_right for _, is_right in inside])
            rows.append([f"{low:.0%} to {high:.0%}", str(len(inside)), f"{mean:.0%}", rights])
    return _table(["accuracy", "verdicts", "mean accuracy", "right verdicts"], rows)


def _list_rounds(programs: Iterable[Program]) -> list[tuple[Half, str | None]]:
    """List the development half, then the rounds of programs that were held out."""
    return list(dict.fromkeys((program.half, program.frozen_at) for program in programs))


def _score(half: Half, frozen_at: str | None, programs: Iterable[Program]) -> list[str]:
    selected = [p for p in programs if (p.half, p.frozen_at) == (half, frozen_at)]
    grades = [grade(program) for program in selected]
    answers = [graded for graded in grades if not graded.abstained]
    healthy = [g for p, g in zip(selected, grades, strict=True) if not p.select_proven()]
    signs = [graded.sign_right for graded in grades if graded.sign_right is not None]
    return [
        half if frozen_at is None else f"{half}, rules of {frozen_at}",
        str(len(selected)),
        _rate([graded.suspect_right for graded in answers]),
        _rate([graded.cause_right for graded in answers]),
        _rate([graded.false_alarm for graded in healthy]),
        _rate([graded.abstained for graded in grades]),
        _rate(signs),
    ]


def _rate(values: Sequence[bool]) -> str:
    rate = Rate(count=sum(values), total=len(values))
    if rate.ratio is None or rate.interval is None:
        return ""
    low, high = rate.interval
    return f"{rate.count}/{rate.total} = {rate.ratio:.0%} ({low:.0%} … {high:.0%})"


def _describe(program: Program) -> list[str]:
    verdict, proven, graded = program.verdict, program.select_proven(), grade(program)
    best = max(program.fixes, key=lambda fix: fix.saving_ratio, default=None)
    truth = "healthy" if not proven else "; ".join(f"{f.suspect}: {f.cause}" for f in proven)
    mark = "right" if graded.cause_right else "suspect right" if graded.suspect_right else "wrong"
    first = verdict.first_fix or ""
    if verdict.predicted_saving_ratio is not None:
        first += f" (predicted {verdict.predicted_saving_ratio:.0%}"
        achieved = verdict.achieved_saving_ratio
        first += ")" if achieved is None else f", achieved {achieved:.0%})"
    return [
        program.title,
        truth,
        "" if best is None else f"{best.saving_ratio:.0%} ({best.change})",
        f"{verdict.suspect}: {verdict.cause} ({mark})",
        f"{verdict.confidence_ratio:.0%}",
        first,
        "" if program.recording_cost_ratio is None else f"{program.recording_cost_ratio:+.1%}",
    ]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [titles, ["---"] * len(titles), *rows]
    return "\n".join(
        "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in cells
    )


def main() -> None:
    """Write the page and the counts."""
    programs = load_programs()
    (RESULTS / "foreign.md").write_text(render(programs))
    counts = count_verdicts(program for program in programs if program.half == "held out")
    COUNTS.write_bytes(msgspec.json.format(msgspec.json.encode(counts)) + b"\n")


if __name__ == "__main__":
    main()
