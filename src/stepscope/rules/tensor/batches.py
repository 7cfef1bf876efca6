"""Batches: images that are not centered, padding in sequences, classes with few labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope import analysis, errors
from stepscope.quantities import count, number, percent
from stepscope.rules.parameters import Count, NotNegative, Positive, Ratio, Regex, Text
from stepscope.rules.tensor import matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputImagesParameters:
    """Limit of the means of channels."""

    threshold_mean: NotNegative = 0.2
    """The rule fires if the mean of a channel is farther than this from zero."""
    threshold_samples: Count = 500
    """Images before the first check."""
    regex: Regex = None
    """Regular expression that is searched for in the names of the images; all by default."""


class ImageState(matrices.MatrixState, kw_only=True):
    """Images under one name."""

    sums: dict[str, float] = msgspec.field(default_factory=dict)
    """By channel, the sum over all images of their mean."""


class CheckInputImages(matrices.PerMatrixRule[CheckInputImagesParameters, ImageState]):
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

    def selects(self, matrix: analysis.TensorValues) -> bool:
        is_image = "image_count" in matrix.columns
        return is_image and matrices.is_searched(self.parameters.regex, matrix)

    def judge(self, state: ImageState, matrix: analysis.TensorValues) -> matrices.Judgement | None:
        counts, means = matrix.column("image_count"), matrix.column("mean")
        state.seen_count += int(counts[0])
        for channel, images, mean in zip(matrix.rows, counts.tolist(), means.tolist(), strict=True):
            state.sums[channel] = state.sums.get(channel, 0.0) + images * mean
        if state.seen_count < self.parameters.threshold_samples:
            return None
        channel = max(state.sums, key=lambda name: abs(state.sums[name]))
        mean, limit = state.sums[channel] / state.seen_count, self.parameters.threshold_mean
        if not abs(mean) > limit:
            return matrices.Judgement(mean, "")
        return matrices.Judgement(
            mean,
            f"channel {channel} of {count(state.seen_count)} images has the mean {number(mean)}, "
            f"farther than {number(limit)} from 0",
        )


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
            raise errors.UsageError(
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
            raise errors.UsageError(
                "NLPSequenceRatio.token_values are whole numbers separated by commas, and "
                f"token_thresholds_percent numbers, not {self.token_values!r} and "
                f"{self.token_thresholds_percent!r}."
            ) from None


class NLPSequenceRatio(matrices.PerMatrixRule[NLPSequenceRatioParameters, matrices.MatrixState]):
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

    def selects(self, matrix: analysis.TensorValues) -> bool:
        is_token = "tokens" in matrix.name.split("/")
        return is_token and matrices.is_searched(self.parameters.tensor_regex, matrix)

    def judge(
        self, state: matrices.MatrixState, matrix: analysis.TensorValues
    ) -> matrices.Judgement | None:
        counts = dict(zip(matrix.rows, matrix.column("count").tolist(), strict=True))
        total = float(np.sum(matrix.column("count")))
        if not total:
            return None
        state.seen_count += int(total)
        shares = {token: counts.get(token, 0.0) / total for token in self.parameters.limits}
        for token, limit in self.parameters.limits.items():
            if shares[token] > limit:
                text = f"{percent(shares[token])} of the tokens are {token}, above {percent(limit)}"
                return matrices.Judgement(shares[token], text)
        return matrices.Judgement(max(shares.values()), "")


_WRONG, _ALL = "wrong", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassImbalanceParameters:
    """Limits of counts and of wrong predictions."""

    threshold_imbalance: Positive = 10.0
    """The rule fires if the class with the most labels has more than this many times those of the
    class with the fewest."""
    threshold_misprediction: Ratio = 0.7
    """The rule fires if more than this share of the labels of a class is predicted wrong."""
    samples: Count = 500
    """Labels before the first check, and newest labels with predictions that are checked."""
    labels_regex: Regex = None
    """Regular expression that is searched for in the names of the counts of labels; all by
    default."""
    predictions_regex: Regex = None
    """Regular expression that is searched for in the names of the confusion matrices of data sets;
    all by default."""


class ClassState(matrices.MatrixState, kw_only=True):
    """Labels under one name."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    recent: matrices.RecentCounts = msgspec.field(default_factory=matrices.RecentCounts)


class ClassImbalance(matrices.PerMatrixRule[ClassImbalanceParameters, ClassState]):
    """Checks whether classes have similar numbers of labels, and each is recognized.

    ## What it checks
    The counts of labels that `stepscope.record(labels=…, predictions=…)` recorded, or XGBoost. From
    `samples` labels on, at each recorded step: the number of labels of the most frequent class as a
    multiple of that of the rarest one that occurred, over all labels so far; and for each class the
    share of wrong predictions in its labels, over the newest `samples` labels. The rule fires if at
    the last step one of them is above its threshold. Datapoints are the checks, violations those
    above a threshold.

    ## Why it matters
    A model that is trained mostly on some classes predicts those. The loss and the overall accuracy
    are good, and rare classes are wrong.

    ## What to do
    Sample rare classes more often (`WeightedRandomSampler`), give them a larger weight in the loss,
    or collect more of them. Compare wrong predictions by class, not the accuracy.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger counts wrong predictions from the start, where an untrained model makes many; here the
    newest ones count. `argmax` is not needed: scores have one more dimension than labels.
    """

    parameters_type = ClassImbalanceParameters
    recommendation = "Sample rare classes more often, or give them a larger weight in the loss."
    state_type = ClassState
    collections = ("labels", "predictions")
    unit = "labels"
    fires_on_last = True
    missing = "no counts of labels were recorded"
    advice = (
        "call `stepscope.record(labels=…, predictions=…)` in the script, and run it with "
        "`--tensors labels,predictions`"
    )
    missing_in_traces = "imported traces have no counts of labels"

    @property
    def required_count(self) -> int:
        return self.parameters.samples

    def selects(self, matrix: analysis.TensorValues) -> bool:
        if matrix.collection == "predictions":  # of whole data sets, which have no such column
            is_selected = matrices.is_searched(self.parameters.predictions_regex, matrix)
            return matrices.has_name(matrix, "confusion") and is_selected
        is_bin = "low" in matrix.columns  # of labels that are no classes
        return not is_bin and matrices.is_searched(self.parameters.labels_regex, matrix)

    def judge(self, state: ClassState, matrix: analysis.TensorValues) -> matrices.Judgement | None:
        if matrices.has_name(matrix, "confusion"):
            self._add_confusion(state, matrix)
        else:
            self._add_labels(state, matrix)
        if state.seen_count < self.parameters.samples:
            return None
        return self._judge_counts(state.counts) or self._judge_predictions(state.recent)

    def _add_confusion(self, state: ClassState, matrix: analysis.TensorValues) -> None:
        counts: Counter[tuple[str, str]] = Counter()
        for label, predicted, pair_count in matrices.list_pairs(matrix):
            counts[label, _ALL] += pair_count
            counts[label, _WRONG] += pair_count if predicted != label else 0
        state.recent = matrices.RecentCounts(
            counts, sum(counts[key] for key in counts if key[1] == _ALL)
        )
        state.seen_count = max(state.seen_count, state.recent.sample_count)

    def _add_labels(self, state: ClassState, matrix: analysis.TensorValues) -> None:
        labels = dict(zip(matrix.rows, matrix.column("count").astype(int).tolist(), strict=True))
        state.seen_count += sum(labels.values())
        state.counts.update(labels)
        if "mispredicted" in matrix.columns:
            wrong = matrix.column("mispredicted").astype(int).tolist()
            counts = Counter({(label, _ALL): labels[label] for label in labels})
            counts.update({(row, _WRONG): n for row, n in zip(matrix.rows, wrong, strict=True)})
            state.recent.add(counts, sum(labels.values()), self.parameters.samples)

    def _judge_counts(self, counts: Counter[str]) -> matrices.Judgement | None:
        of_class = {
            label: n for label, n in counts.items() if label != matrices.OTHER_CLASSES and n
        }
        if not of_class:
            return None
        frequent, rare = (choose(of_class, key=of_class.__getitem__) for choose in (max, min))
        ratio, limit = (of_class[frequent] / of_class[rare], self.parameters.threshold_imbalance)
        if ratio <= limit:
            return None
        return matrices.Judgement(
            ratio,
            f"class {frequent} has {count(of_class[frequent])} labels, {number(ratio)} times as "
            f"many as class {rare} with {count(of_class[rare])} (limit {number(limit)})",
        )

    def _judge_predictions(self, recent: matrices.RecentCounts) -> matrices.Judgement:
        shares = {
            label: recent.sums[label, _WRONG] / label_count
            for (label, kind), label_count in recent.sums.items()
            if kind == _ALL and label != matrices.OTHER_CLASSES and label_count
        }
        worst = max(shares, key=shares.__getitem__, default=None)
        if worst is None or shares[worst] <= self.parameters.threshold_misprediction:
            return matrices.Judgement(0.0 if worst is None else shares[worst], "")
        return matrices.Judgement(
            shares[worst],
            f"{percent(shares[worst])} of the {count(recent.sums[worst, _ALL])} newest labels of "
            f"class {worst} are predicted wrong (limit "
            f"{percent(self.parameters.threshold_misprediction)})",
        )
