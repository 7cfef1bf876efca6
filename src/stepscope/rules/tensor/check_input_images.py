"""Images whose channels are not centered."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.analysis import TensorValues
from stepscope.quantities import count, number
from stepscope.rules.parameters import Count, NotNegative, Regex
from stepscope.rules.tensor.matrices import Judgement, MatrixState, PerMatrixRule, is_searched


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputImagesParameters:
    """Limit of the means of channels."""

    threshold_mean: NotNegative = 0.2
    """The rule fires if the mean of a channel is farther than this from zero."""
    threshold_samples: Count = 500
    """Images before the first check."""
    regex: Regex = None
    """Regular expression that is searched for in the names of the images; all by default."""


@dataclass(slots=True, kw_only=True)
class ImageState(MatrixState):
    """Images under one name."""

    sums: dict[str, float] = field(default_factory=dict)
    """By channel, the sum over all images of their mean."""


class CheckInputImages(PerMatrixRule[CheckInputImagesParameters, ImageState]):
    """Checks whether input images are normalized.

    ## What it checks
    The means of the channels of the images that a model takes, or that
    `stepscope.record(inputs=…)` recorded. From `threshold_samples` images on, the rule fires if the
    mean of a channel over all images so far is farther than `threshold_mean` from zero. Datapoints
    are the checks at recorded steps, violations those above the threshold.

    ## Why it matters
    Initial weights and the usual learning rates assume inputs around zero. With values from 0 to
    255, or from 0 to 1, training is slow or does not converge, and a pretrained model predicts
    badly.

    ## What to do
    Subtract the mean of each channel over the training data and divide by the standard deviation
    (`torchvision.transforms.Normalize`); for a pretrained model use the numbers of its training.

    ## Where the numbers differ from SageMaker Debugger's
    `regex` chooses recorded images, all by default; Debugger's default is the input of a model of
    MXNet. Instead of the parameter `channel`, the axis of the channels follows from the shape: the
    second, or the last if only that has the size 1, 3 or 4.
    """

    parameters_type = CheckInputImagesParameters
    recommendation = "Normalize the images: subtract the mean of each channel, divide by its std."
    state_type = ImageState
    collections = ("inputs",)
    unit = "images"
    missing = "no channels of images were recorded"
    advice = (
        "run the job with `--tensors inputs`, or call `stepscope.record(inputs=…)` in the script"
    )
    missing_in_traces = "imported traces have no images"

    @property
    def required_count(self) -> int:
        return self.parameters.threshold_samples

    def selects(self, matrix: TensorValues) -> bool:
        is_image = "image_count" in matrix.columns
        return is_image and is_searched(self.parameters.regex, matrix)

    def judge(self, state: ImageState, matrix: TensorValues) -> Judgement | None:
        counts, means = matrix.column("image_count"), matrix.column("mean")
        state.seen_count += int(counts[0])
        for channel, images, mean in zip(matrix.rows, counts.tolist(), means.tolist(), strict=True):
            state.sums[channel] = state.sums.get(channel, 0.0) + images * mean
        if state.seen_count < self.parameters.threshold_samples:
            return None
        channel = max(state.sums, key=lambda name: abs(state.sums[name]))
        mean, limit = state.sums[channel] / state.seen_count, self.parameters.threshold_mean
        if not abs(mean) > limit:
            return Judgement(mean, "")
        return Judgement(
            mean,
            f"channel {channel} of {count(state.seen_count)} images has the mean {number(mean)}, "
            f"farther than {number(limit)} from 0",
        )
