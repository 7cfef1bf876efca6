"""Rectified units that are never active."""

from __future__ import annotations

from stepscope.rules.tensor.stopped_units import StoppedUnitsRule


class DeadRelu(StoppedUnitsRule):
    """Checks whether the units of a ReLU layer have died.

    ## What it checks
    For each recorded call of each `ReLU` and `ReLU6` module, the share of its units (features or
    channels) whose output is positive in less than 1% of the elements of the call. The rule fires
    if more than `threshold_layer` percent of the units are dead. Datapoints are recorded calls of
    all such modules, violations those above the threshold. Record them with
    `--tensors activations`.

    ## Why it matters
    A unit that is never active has no gradient, so it does not come back: the layer has lost it.

    ## What to do
    Lower the learning rate, use LeakyReLU or GELU, initialize biases with small positive numbers,
    or normalize the input of the layer.

    ## Where the numbers differ from SageMaker Debugger's
    `threshold_inactivity` is 1% and applied when the job is recorded. Modules are found by their
    class instead of their name, so `tensor_regex` is not needed.
    """

    default_collections = ("dead_units",)
    recommendation = "Lower the learning rate, or use LeakyReLU or GELU."
    adjective = "dead"
