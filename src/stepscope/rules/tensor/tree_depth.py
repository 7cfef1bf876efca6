"""Trees of XGBoost that are deep."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

from stepscope.quantities import count
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Boolean, Count
from stepscope.rules.tensor.boosted_models import (
    BoostedModelRule,
    JudgedRound,
    ModelState,
    ModelStates,
)

_NAME = re.compile(r"^(?:model \d+/)?trees/(depth|largest_node_id)$")


def estimate_depth(largest_node_id: float) -> int:
    """Estimate the depth of a tree from the largest number of its nodes, as SageMaker Debugger
    does: right for a complete tree, too small for another one.

    >>> [estimate_depth(number) for number in (0, 2, 6, 30, 20)]
    [0, 1, 2, 4, 4]
    """
    return int(math.log2(largest_node_id)) if largest_node_id >= 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDepthParameters:
    """Limit of the depth."""

    depth: Count = 4
    """The rule fires if a tree has more levels of splits than this."""
    by_node_id: Annotated[bool, Boolean()] = False
    """Estimate the depth from the largest number of a node, as Debugger does."""


class TreeDepth(BoostedModelRule[TreeDepthParameters]):
    """Checks whether the trees of an XGBoost model are deep.

    ## What it checks
    For each recorded round of each model, the levels of splits from the root to the deepest leaf
    of the trees of the round. The rule fires if there are more than `depth`. Datapoints are
    recorded rounds, violations those above the limit.

    ## Why it matters
    A deep tree separates single rows: it takes long to build, and the model fits noise of the
    training data. XGBoost's own limit is 6 by default, so that a training with the default often
    exceeds the one of this rule. It is a hint, and no part of the answer to "is the model
    learning?": compare the metrics of training and validation.

    ## What to do
    Lower `max_depth`, or raise `min_child_weight`, `gamma` or `reg_lambda`, if the metrics for
    validation data are no worse then.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger computes the depth as the binary logarithm of the largest number of a node, rounded
    down. That is right for a complete tree. XGBoost numbers the nodes of another one without gaps,
    so that the result is too small; here the depth is that of the tree. With `by_node_id=true` it
    is Debugger's.
    """

    parameters_type = TreeDepthParameters
    recommendation = "Lower max_depth or raise min_child_weight, if validation is no worse then."
    missing = "no trees of XGBoost were recorded"
    advice = "run the job with `--tensors trees`"

    def update(self, state: ModelStates, inputs: RuleInputs) -> ModelStates:
        judged = "largest_node_id" if self.parameters.by_node_id else "depth"
        ranks = {process.process: process.rank for process in inputs.processes}
        for series in inputs.scalars:
            match = _NAME.match(series.name)
            if match is None or match[1] != judged:
                continue
            model = state.find(series.process, series.name, ranks.get(series.process))
            steps = [] if series.step is None else series.step.tolist()
            for row, (t_ns, value) in enumerate(
                zip(series.t_ns.tolist(), series.value.tolist(), strict=True)
            ):
                depth = estimate_depth(value) if self.parameters.by_node_id else int(value)
                number = steps[row] if steps else model.record_count
                is_deep = depth > self.parameters.depth
                model.add(JudgedRound(number, t_ns, float(depth), is_deep), inputs)
        return state

    def describe(self, model: ModelState) -> str:
        first = model.extent[0]
        return (
            f"a tree of round {first.round} has {count(first.value)} levels of splits, more than "
            f"{count(self.parameters.depth)}"
        )
