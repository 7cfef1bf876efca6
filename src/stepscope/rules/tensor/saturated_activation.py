"""Units of tanh and sigmoid layers in the flat part of the function."""

from __future__ import annotations

from stepscope.rules.tensor.stopped_units import StoppedUnitsRule


class SaturatedActivation(StoppedUnitsRule):
    """Checks whether the units of a tanh or sigmoid layer are saturated.

    ## What it checks
    For each recorded call of each `Tanh` and `Sigmoid` module, the share of its units (features or
    channels) whose input is in less than 1% of the elements of the call between -9.4999 and 9.4999
    (tanh), or between -23 and 16.99999 (sigmoid). Outside, the derivative is below 1e-7. The rule
    fires if more than `threshold_layer` percent of the units are saturated. Datapoints are recorded
    calls of all such modules, violations those above the threshold. Record them with
    `--tensors activations`.

    ## Why it matters
    A saturated unit passes almost no gradient on, so the layers before it stop to learn.

    ## What to do
    Initialize the weights with smaller numbers, normalize the input of the layer, lower the
    learning rate, or use ReLU or GELU.

    ## Where the numbers differ from SageMaker Debugger's
    `threshold_inactivity` (1%) and the limits of the inputs are applied when the job is recorded.
    Modules are found by their class instead of their name, so `tensor_regex` is not needed.
    """

    default_collections = ("saturated_units",)
    recommendation = "Normalize the input of the layer, or use smaller initial weights."
    adjective = "saturated"
