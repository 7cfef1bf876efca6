"""Tokens that fill too much of the sequences, such as padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import TensorValues
from stepscope.errors import UsageError
from stepscope.quantities import percent
from stepscope.rules.parameters import Regex, Text
from stepscope.rules.tensor.matrices import Judgement, MatrixState, PerMatrixRule, is_searched

DEFAULT_NAMES = r"(^|/)tokens/(\w+|model_input/(0|.*input_ids))$"


@dataclass(frozen=True, slots=True, kw_only=True)
class NLPSequenceRatioParameters:
    """Tokens and their limits."""

    tensor_regex: Regex = DEFAULT_NAMES
    """Regular expression that is searched for in the names of tokens. By default those of
    `stepscope.record`, and of a model's first argument and `input_ids`."""
    token_values: Text = "0"  # noqa: S105 - no password
    """Numbers of tokens, separated by commas."""
    token_thresholds_percent: Text = "50"  # noqa: S105
    """For each of them the share (%) of the tokens of a batch above which the rule fires."""

    def __post_init__(self) -> None:
        if len(self.limits) != len((self.token_values or "").split(",")):
            raise UsageError(
                "NLPSequenceRatio requires as many token_thresholds_percent as token_values, and "
                f"got {self.token_thresholds_percent!r} for {self.token_values!r}."
            )

    @property
    def limits(self) -> dict[str, float]:
        """Limits, as shares from 0 to 1, by token.

        Raises:
            UsageError: a token or a limit is no number.
        """
        values = (self.token_values or "").split(",")
        thresholds = (self.token_thresholds_percent or "").split(",")
        try:
            return {
                str(int(value)): float(threshold) / 100
                for value, threshold in zip(values, thresholds, strict=False)
            }
        except ValueError:
            raise UsageError(
                "NLPSequenceRatio.token_values are whole numbers separated by commas, and "
                f"token_thresholds_percent numbers, not {self.token_values!r} and "
                f"{self.token_thresholds_percent!r}."
            ) from None


class NLPSequenceRatio(PerMatrixRule[NLPSequenceRatioParameters, MatrixState]):
    """Checks whether tokens such as padding fill the sequences.

    ## What it checks
    The counts of the tokens that a model takes, or that `stepscope.record(inputs=…)` recorded. For
    each recorded batch, the share of each of `token_values` in all tokens; the rule fires if it is
    above its threshold. Datapoints are recorded batches, violations those above a threshold. Of a
    batch the 100 most frequent tokens are recorded: the share of others is below 1%.

    ## Why it matters
    Padding costs the same computation and memory as text, and teaches nothing. If most tokens are
    padding, most of the time is lost; if most are unknown words, the vocabulary does not fit.

    ## What to do
    Group sequences of similar length into batches, pad to the longest of a batch instead of a fixed
    length, or pack several sequences into one. For many unknown tokens, train a tokenizer on the
    data.

    ## Where the numbers differ from SageMaker Debugger's
    The default of `tensor_regex` are the tokens that are recorded here; Debugger's is the input of
    an embedding of MXNet.
    """

    parameters_type = NLPSequenceRatioParameters
    recommendation = "Group sequences of similar length, and pad to the longest one of a batch."
    collections = ("inputs",)
    unit = "tokens"
    missing = "no tokens were recorded"
    advice = (
        "run the job with `--tensors inputs`, or call `stepscope.record(inputs=…)` in the script"
    )
    missing_in_traces = "imported traces have no tokens"

    def selects(self, matrix: TensorValues) -> bool:
        is_token = "tokens" in matrix.name.split("/")
        return is_token and is_searched(self.parameters.tensor_regex, matrix)

    def judge(self, state: MatrixState, matrix: TensorValues) -> Judgement | None:
        counts = dict(zip(matrix.rows, matrix.column("count").tolist(), strict=True))
        total = float(np.sum(matrix.column("count")))
        if not total:
            return None
        state.seen_count += int(total)
        shares = {token: counts.get(token, 0.0) / total for token in self.parameters.limits}
        for token, limit in self.parameters.limits.items():
            if shares[token] > limit:
                text = f"{percent(shares[token])} of the tokens are {token}, above {percent(limit)}"
                return Judgement(shares[token], text)
        return Judgement(max(shares.values()), "")
