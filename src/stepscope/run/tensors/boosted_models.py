"""Models that XGBoost trained: what was recorded of each, by round.

A process numbers its models from 1. Names of metrics and tensors of the others begin with
`model N/`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepscope import analysis, schema
from stepscope.run.job.times import find_current_processes
from stepscope.run.model.rank_numbers import number_ranks
from stepscope.run.model.run import Run
from stepscope.run.tensors.series import select_scalars, select_tensor_values

MAX_RECORDED_ROUNDS = 200
"""Recorded rounds of a matrix that are read; of more rounds some in equal distances, and the
last."""
_OTHER_MODEL = "^model [0-9]+/"


class BoostedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Model of one process."""

    process: str
    rank: int
    fact: schema.BoostedModelFact

    @property
    def title(self) -> str:
        """Name of the model in its process."""
        return f"model {self.fact.number}"

    @property
    def prefix(self) -> str:
        """Beginning of the names of its metrics and tensors."""
        return "" if self.fact.number == 1 else f"{self.title}/"


def list_boosted_models(run: Run) -> list[BoostedModel]:
    """List the models of all processes, by rank and number. Of a job that was restarted, those of
    the incarnation whose ranks the run shows."""
    current = find_current_processes(run)
    ranks = number_ranks(run).by_process
    models = [
        BoostedModel(process=info.process, rank=ranks.get(info.process, info.rank or 0), fact=fact)
        for info in run.processes
        if info.process in current
        for fact in info.facts_of(schema.BoostedModelFact)
    ]
    return sorted(models, key=lambda model: (model.rank, model.process, model.fact.number))


def read_round_scalars(run: Run, model: BoostedModel) -> list[analysis.LoggedScalars]:
    """Read the scalars that XGBoost reports for the rounds of a model: metrics, and `trees/…`.
    Names have no prefix."""
    condition, parameters = _condition(run, model, "name")
    series = select_scalars(run, f"{condition} AND step IS NOT NULL", parameters)
    return [
        analysis.LoggedScalars(
            name=one.name.removeprefix(model.prefix),
            process=one.process,
            t_ns=one.t_ns,
            value=one.value,
            step=one.step,
        )
        for one in series
    ]


def read_model_values(run: Run, model: BoostedModel) -> dict[str, list[analysis.TensorValues]]:
    """Read the small matrices of a model by name, without the prefix, and by round.

    Names are in the order in which they were first recorded.
    """
    condition, parameters = _condition(run, model, "tensor")
    rows = run.reader.sql(
        "SELECT tensor, step, min(seq) AS seq FROM tensor_values "  # noqa: S608 - fixed names
        f"WHERE {condition} GROUP BY tensor, step ORDER BY step, seq",
        parameters,
    )
    steps: dict[str, list[int]] = {}
    for tensor, step in zip(rows["tensor"].tolist(), rows["step"].tolist(), strict=True):
        steps.setdefault(tensor, []).append(step)
    read_steps = {tensor: _thin(recorded) for tensor, recorded in steps.items()}
    values: dict[str, list[analysis.TensorValues]] = {tensor: [] for tensor in steps}
    if steps:
        numbers = sorted({step for recorded in read_steps.values() for step in recorded})
        within = f"{condition} AND step IN ({', '.join(map(str, numbers))})"
        for matrix in select_tensor_values(run, within, parameters):
            if matrix.step in read_steps[matrix.name]:
                values[matrix.name].append(matrix)
    return {
        tensor.removeprefix(model.prefix): sorted(matrices, key=lambda matrix: matrix.step)
        for tensor, matrices in values.items()
    }


def count_label_rows(run: Run, model: BoostedModel) -> dict[str, int]:
    """Return the number of labels of each data set of a model, also of those not counted by
    value."""
    condition, parameters = _condition(run, model, "tensor")
    rows = run.reader.sql(
        "SELECT tensor, max(element_count) AS count FROM tensor_statistics "  # noqa: S608 - fixed names
        f"WHERE {condition} AND collection = 'labels' AND element_count IS NOT NULL "
        "GROUP BY tensor",
        parameters,
    )
    start = f"{model.prefix}labels/"
    return {
        tensor.removeprefix(start): int(count)
        for tensor, count in zip(rows["tensor"].tolist(), rows["count"].tolist(), strict=True)
    }


def _thin(steps: Sequence[int]) -> set[int]:
    """Return some of the steps in equal distances, and the last one."""
    stride = -(-len(steps) // MAX_RECORDED_ROUNDS)
    return {*steps[::-stride]}


def _condition(run: Run, model: BoostedModel, column: str) -> tuple[str, tuple[object, ...]]:
    """Return the SQL condition of the rows of a model, with the name in a column."""
    base = f"{run.period.condition('t_ns')} AND process = ?"
    if model.prefix:
        return f"{base} AND starts_with({column}, ?)", (model.process, model.prefix)
    return f"{base} AND NOT regexp_matches({column}, ?)", (model.process, _OTHER_MODEL)
