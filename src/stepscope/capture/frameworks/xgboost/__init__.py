"""Boosting rounds of an unmodified script that uses XGBoost.

`install` runs once, right after `import xgboost`. It patches methods of `Booster` that every way of
training calls once per round: `xgboost.train`, `cv`, the classes for scikit-learn, and loops of the
script. Boosters, models and data are not changed.

    models    boosters of the process: their numbers and descriptions
    rounds    rounds as optimizer steps, evaluation and its metrics
    tensors   importance of features, labels and predictions, on request
"""

from __future__ import annotations

from stepscope.capture.frameworks.xgboost import rounds, tensors
from stepscope.capture.guard import install_parts


def install() -> None:
    """Patch the imported xgboost."""
    install_parts("XGBoost", rounds.install, tensors.install)
