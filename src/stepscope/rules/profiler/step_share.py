"""What rules share that ask how much of the step one part of it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from stepscope.analysis import COMPUTE_PHASES
from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing, last_of_each
from stepscope.rules.inputs import NO_STEPS, recording_scan, recordings, scan_ends
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.phases_at import shares
from stepscope.rules.signals import RankSteps, Recording, Signals, scan_numbers
from stepscope.rules.trailing import Tail
from stepscope.schema import Finding

FEWEST_STEPS = 20
"""Fewer steps than this are no evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShareParameters:
    """Of all these rules."""

    threshold: Percentage
    """Share of the step's wall time (%) above which the rule fires."""
    window: Count = 100
    """Steps of a rank that the share is of: the latest ones, at least 20."""
    patience: Count = 10
    """The first steps of each rank, in which everything starts up, are left out."""


P = TypeVar("P", bound=StepShareParameters)


@dataclass(slots=True)
class RankShare:
    """One rank: what its latest steps consist of, and all of them."""

    node: str
    tail: Tail
    """Rows of (part, wall)."""
    part_ns: int = 0
    phase_ns: dict[str, int] = field(default_factory=dict)
    over_count: int = 0
    """Steps whose own share is above the threshold."""
    highest_ratio: float = 0.0
    """Of the windows in which the rule fired."""

    @property
    def wall_ns(self) -> int:
        """Of all steps that count."""
        return sum(self.phase_ns.values())


@dataclass(slots=True)
class ShareState:
    """By rank; and what recordings showed, for the rules that look at them."""

    ranks: dict[str, RankShare] = field(default_factory=dict)
    recordings: dict[str, dict[str, Any]] = field(default_factory=dict)
    accused_recordings: dict[str, str] = field(default_factory=dict)
    """Rank by recording."""
    firing: Firing = field(default_factory=Firing)


class StepShare(IncrementalRule[P, ShareState], Generic[P]):
    """Fires where a part takes more than a share of the latest steps of some rank."""

    part_name: ClassVar[str]
    """As details have it."""
    part_text: ClassVar[str]
    """As sentences have it."""

    def part_ns(self, steps: RankSteps) -> Int:
        """The part in question of each step."""
        raise NotImplementedError

    def start(self) -> ShareState:
        return ShareState()

    def update(self, state: ShareState, signals: Signals) -> ShareState:
        for steps in signals.steps:
            kept = np.flatnonzero(
                ~steps.profiled & (steps.number >= self.parameters.patience) & (steps.wall_ns > 0)
            )
            if len(kept):
                rank = state.ranks.setdefault(
                    steps.rank, RankShare(steps.node, Tail(self.parameters.window))
                )
                begin, stop = int(kept[0]), int(kept[-1]) + 1
                # Rows that follow each other need not be copied.
                rows = slice(begin, stop) if stop - begin == len(kept) else kept
                state.firing.add(self._take_in(rank, steps, rows, signals))
        return state

    def _take_in(
        self, rank: RankShare, steps: RankSteps, kept: Int | slice, signals: Signals
    ) -> list[int]:
        """Ends of the scans in which the share of the latest steps was too large."""
        p = self.parameters
        part, wall = self.part_ns(steps)[kept], steps.wall_ns[kept]
        rank.part_ns += int(part.sum())
        rank.over_count += int((100 * part > p.threshold * wall).sum())
        for phase, time_ns in steps.phase_ns.items():
            rank.phase_ns[phase] = rank.phase_ns.get(phase, 0) + int(time_ns[kept].sum())
        joined, before = rank.tail.extend(np.stack([part, wall], axis=1).astype(np.int64))
        scans = scan_numbers(signals, steps.end_ns[kept])
        ends = last_of_each(scans)
        scans, ends = scans[ends], ends + before + 1
        begins = np.maximum(ends - p.window, 0)
        part_sums, wall_sums = (np.append(0, np.cumsum(column)) for column in joined.T)
        part_in = part_sums[ends] - part_sums[begins]
        wall_in = wall_sums[ends] - wall_sums[begins]
        fires = (ends - begins >= FEWEST_STEPS) & (100 * part_in > p.threshold * wall_in)
        if fires.any():
            highest = float((part_in[fires] / wall_in[fires]).max())
            rank.highest_ratio = max(rank.highest_ratio, highest)
        return scan_ends(signals, scans[fires])

    def decide(self, state: ShareState) -> Finding | None:
        self.require(state)
        on = self.accused(state)
        details = self.details(state)
        steps = sum(rank.tail.seen for rank in state.ranks.values())
        over = sum(rank.over_count for rank in state.ranks.values())
        return self.finding(
            triggered=state.firing,
            violations=over + len(state.accused_recordings),
            datapoints=steps + len(state.recordings),
            details=details,
            sentences=self.sentences(state, details),
            ranks=[*on, *state.accused_recordings.values()],
            nodes={state.ranks[name].node for name in on},
        )

    def require(self, state: ShareState) -> None:
        """Abstain unless there is enough to decide on."""
        if not state.ranks:
            raise NotApplicable(NO_STEPS)
        most = max(rank.tail.seen for rank in state.ranks.values())
        require_more(most, FEWEST_STEPS - 1, "steps past the first of a rank")

    def accused(self, state: ShareState) -> list[str]:
        """Ranks on which it fired."""
        return [name for name, rank in sorted(state.ranks.items()) if rank.highest_ratio]

    def details(self, state: ShareState) -> dict[str, Any]:
        """The numbers behind the sentences."""
        return {"ranks": self._rank_details(state)}

    def _rank_details(self, state: ShareState) -> dict[str, dict[str, Any]]:
        """By rank; every share is of the wall time of the steps that count."""
        return {
            name: {
                f"{self.part_name}_share_ratio": rank.part_ns / rank.wall_ns,
                "highest_window_share_ratio": rank.highest_ratio or None,
                "steps_above_threshold_count": rank.over_count,
                "compute_share_ratio": sum(rank.phase_ns.get(each, 0) for each in COMPUTE_PHASES)
                / rank.wall_ns,
                "phase_share_ratio": shares(rank.phase_ns),
            }
            for name, rank in sorted(state.ranks.items())
        }

    def sentences(self, state: ShareState, details: dict[str, Any]) -> list[str]:
        """One per rank that it fired on; of the others the worst."""
        ranks, share = details["ranks"], f"{self.part_name}_share_ratio"
        worst = sorted(ranks, key=lambda name: -ranks[name][share])[:1]
        return [
            f"{name}: {self.part_text} takes {ranks[name][share]:.1%} of the step; "
            f"the threshold is {self.parameters.threshold:g} %."
            for name in self.accused(state) or worst
        ]


class RecordedShare(StepShare[P], Generic[P]):
    """Looks at recordings as well, which know more than the steps do."""

    def judge(self, recording: Recording) -> tuple[dict[str, Any], bool] | None:
        """Figures of a recording and whether the rule fires on it; None without device work."""
        raise NotImplementedError

    def recording_sentence(self, name: str, figures: dict[str, Any]) -> str:
        """What is said of a recording on which it fired."""
        raise NotImplementedError

    def update(self, state: ShareState, signals: Signals) -> ShareState:
        for recording in recordings(signals):
            judged = self.judge(recording)
            if judged is None:
                continue
            figures, fires = judged
            state.recordings[recording.name] = {"rank": recording.rank, **figures}
            if fires:
                state.accused_recordings[recording.name] = recording.rank
                state.firing.add(recording_scan(signals, recording))
        return super().update(state, signals)

    def details(self, state: ShareState) -> dict[str, Any]:
        return {**super().details(state), "recordings": state.recordings}

    def sentences(self, state: ShareState, details: dict[str, Any]) -> list[str]:
        return super().sentences(state, details) + [
            self.recording_sentence(name, state.recordings[name])
            for name in state.accused_recordings
        ]
