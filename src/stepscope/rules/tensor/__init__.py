"""The built-in rules about tensors and losses, one file per kind of rule.

Belongs here: rules, and base classes of several of them (`base`, `matrices`, `units`,
`boosted_models`). A new rule is one class, in the file of its kind, and one entry in `RULES`; its
docstring is its page.

    batches         CheckInputImages, NLPSequenceRatio, ClassImbalance
    boosted_models  FeatureImportanceOverweight, TreeDepth
    losses          LossNotDecreasing, NonFiniteLoss
    matrices        Confusion
    precision       LossScaleCollapse, GradientClippingSaturation
    units           DeadRelu, SaturatedActivation
    updates         LearningRateTooHigh, LearningRateTooLow, WeightUpdateRatio, UnchangedTensor
    validation      Overfit, Overtraining
    values          AllZero, ExplodingTensor, TensorVariance, VanishingGradient, SimilarAcrossRuns

Each of the other files holds the rule of its name: `loss_spike` is LossSpike.
"""

from __future__ import annotations

from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.tensor.batches import CheckInputImages, ClassImbalance, NLPSequenceRatio
from stepscope.rules.tensor.boosted_models import FeatureImportanceOverweight, TreeDepth
from stepscope.rules.tensor.loss_spike import LossSpike
from stepscope.rules.tensor.losses import LossNotDecreasing, NonFiniteLoss
from stepscope.rules.tensor.matrices import Confusion
from stepscope.rules.tensor.nan_origin import NanOrigin
from stepscope.rules.tensor.poor_weight_initialization import PoorWeightInitialization
from stepscope.rules.tensor.precision import GradientClippingSaturation, LossScaleCollapse
from stepscope.rules.tensor.stalled_training import StalledTrainingRule
from stepscope.rules.tensor.units import DeadRelu, SaturatedActivation
from stepscope.rules.tensor.updates import (
    LearningRateTooHigh,
    LearningRateTooLow,
    UnchangedTensor,
    WeightUpdateRatio,
)
from stepscope.rules.tensor.validation import Overfit, Overtraining
from stepscope.rules.tensor.values import (
    AllZero,
    ExplodingTensor,
    SimilarAcrossRuns,
    TensorVariance,
    VanishingGradient,
)

RULES: tuple[type[Rule[Any]], ...] = (
    AllZero,
    ClassImbalance,
    Confusion,
    LossNotDecreasing,
    Overfit,
    Overtraining,
    SimilarAcrossRuns,
    StalledTrainingRule,
    UnchangedTensor,
    DeadRelu,
    ExplodingTensor,
    PoorWeightInitialization,
    SaturatedActivation,
    TensorVariance,
    VanishingGradient,
    WeightUpdateRatio,
    CheckInputImages,
    NLPSequenceRatio,
    FeatureImportanceOverweight,
    TreeDepth,
    LossSpike,
    NonFiniteLoss,
    LearningRateTooHigh,
    LearningRateTooLow,
    GradientClippingSaturation,
    LossScaleCollapse,
    NanOrigin,
)
"""Rules that Debugger has, then the others."""
