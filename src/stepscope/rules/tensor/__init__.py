"""The built-in rules about tensors and losses, one per file.

Belongs here: rules, and base classes of several of them (`base`, `matrices`, `stopped_units`,
`boosted_models`). A new rule is one file and one entry in `RULES`; its docstring is its page.
"""

from __future__ import annotations

from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.tensor.all_zero import AllZero
from stepscope.rules.tensor.check_input_images import CheckInputImages
from stepscope.rules.tensor.class_imbalance import ClassImbalance
from stepscope.rules.tensor.confusion import Confusion
from stepscope.rules.tensor.dead_relu import DeadRelu
from stepscope.rules.tensor.exploding_tensor import ExplodingTensor
from stepscope.rules.tensor.feature_importance_overweight import FeatureImportanceOverweight
from stepscope.rules.tensor.gradient_clipping_saturation import GradientClippingSaturation
from stepscope.rules.tensor.learning_rate_too_high import LearningRateTooHigh
from stepscope.rules.tensor.learning_rate_too_low import LearningRateTooLow
from stepscope.rules.tensor.loss_not_decreasing import LossNotDecreasing
from stepscope.rules.tensor.loss_scale_collapse import LossScaleCollapse
from stepscope.rules.tensor.loss_spike import LossSpike
from stepscope.rules.tensor.nan_origin import NanOrigin
from stepscope.rules.tensor.nlp_sequence_ratio import NLPSequenceRatio
from stepscope.rules.tensor.overfit import Overfit
from stepscope.rules.tensor.overtraining import Overtraining
from stepscope.rules.tensor.poor_weight_initialization import PoorWeightInitialization
from stepscope.rules.tensor.saturated_activation import SaturatedActivation
from stepscope.rules.tensor.similar_across_runs import SimilarAcrossRuns
from stepscope.rules.tensor.stalled_training import StalledTrainingRule
from stepscope.rules.tensor.tensor_variance import TensorVariance
from stepscope.rules.tensor.tree_depth import TreeDepth
from stepscope.rules.tensor.unchanged_tensor import UnchangedTensor
from stepscope.rules.tensor.vanishing_gradient import VanishingGradient
from stepscope.rules.tensor.weight_update_ratio import WeightUpdateRatio

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
    LearningRateTooHigh,
    LearningRateTooLow,
    GradientClippingSaturation,
    LossScaleCollapse,
    NanOrigin,
)
"""Rules that Debugger has, then the others."""
