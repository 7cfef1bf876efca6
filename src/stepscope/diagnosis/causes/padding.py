"""Padding: positions of a batch of sequences for which the model computes and learns nothing.

With a share m of the step that is the model's passes, and rows of L positions where the longest
sequence of the batch has K, padding to the longest sequence saves

    m (1 - K / L)

of the step, if the time of the passes is proportional to the length; attention grows faster. Equal
lengths in each batch would save m (1 - U / (B K)) of what is left, with U positions that are no
padding in B rows: an upper limit, because batches of similar lengths still differ.
"""

from __future__ import annotations

import msgspec

from stepscope import schema
from stepscope.diagnosis.causes.cause import CauseFinding, CauseInputs
from stepscope.diagnosis.shares.shares import Shares
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.quantities import count_of, number, percent
from stepscope.run import Rank, Run

MIN_BATCHES = 4
"""Masks of fewer batches are not enough evidence."""


class Padding(msgspec.Struct, frozen=True, kw_only=True):
    """Padding of the batches whose masks were read."""

    batch_count: int
    mean_length: float
    """Positions of a row, padding included, weighted by rows."""
    mean_used_length: float
    """Positions up to the longest sequence of the batch, weighted by rows."""
    fixed_ratio: float
    """Share of all positions that padding to the longest sequence of each batch saves."""
    uneven_ratio: float
    """Share of the remaining positions that are padding."""

    @property
    def is_fixed(self) -> bool:
        """True if padding to the longest sequence saves more than sequences of equal length."""
        return self.fixed_ratio >= (1 - self.fixed_ratio) * self.uneven_ratio

    @property
    def needless_ratio(self) -> float:
        """Share of all positions that the better of both changes saves."""
        return max(self.fixed_ratio, (1 - self.fixed_ratio) * self.uneven_ratio)


def measure_padding(run: Run) -> Padding | None:
    """Measure the padding of the batches of training; None where too few masks were read."""
    masks = _list_masks(run, run.ranks[0])
    if len(masks) < MIN_BATCHES:
        return None
    rows = sum(mask.rows for mask in masks)
    positions = sum(mask.rows * mask.length for mask in masks)
    needed = sum(mask.rows * mask.used_length for mask in masks)
    if not positions or not needed:
        return None
    return Padding(
        batch_count=len(masks),
        mean_length=positions / rows,
        mean_used_length=needed / rows,
        fixed_ratio=1 - needed / positions,
        uneven_ratio=1 - sum(mask.used_count for mask in masks) / needed,
    )


def _list_masks(run: Run, rank: Rank) -> list[schema.PaddingFact]:
    """List the masks of the loader that feeds training, or else those of the model's inputs."""
    processes = [rank.process, *run.workers_of(rank.process)]
    masks = [mask for process in processes for mask in process.facts_of(schema.PaddingFact)]
    loader = rank.loader
    dataset = loader.dataset.rpartition(".")[2] if loader is not None and loader.dataset else ""
    of_loader = [mask for mask in masks if dataset and mask.dataset == dataset]
    return of_loader or [mask for mask in masks if not mask.dataset]


def measure_padding_share(padding: Padding | None, shares: Shares) -> float:
    """Measure the share of the step that the passes take for needless padding."""
    if padding is None:
        return 0.0
    passes = shares.suspects["model"] - shares.compute_work.get("optimizer", 0.0)
    return max(0.0, passes) * padding.needless_ratio


def find_padding_cause(inputs: CauseInputs) -> CauseFinding:
    """Describe the padding of a run that has some."""
    padding = measure_padding(inputs.run)
    assert padding is not None  # noqa: S101 - without masks there is no padding
    share = measure_padding_share(padding, inputs.shares)
    batches = count_of(padding.batch_count, "batch", "batches")
    length, used = number(padding.mean_length), number(padding.mean_used_length)
    if padding.is_fixed:
        text = (
            f"Rows of {batches} have {length} positions on average; the longest sequence of each "
            f"needs {used} ({percent(padding.fixed_ratio)} less)."
        )
    else:
        text = (
            f"Of the {length} positions of a row, {percent(padding.uneven_ratio)} are padding on "
            f"average ({batches}): sequences of one batch differ much in length."
        )
    return CauseFinding(
        cause="padding",
        stages=[Stage(name="passes over padding", detail="", share_ratio=share)],
        evidence=[Evidence(text=text, value=padding.needless_ratio, unit="ratio", source="steps")],
        evidence_kind="timed" if inputs.run.compute_profile is None else "profiled",
    )
