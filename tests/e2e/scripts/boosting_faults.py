"""Train an XGBoost model: `python boosting_faults.py healthy|leak|deep [ROUNDS]`.

The label depends on six of twelve features alike. With `leak` one feature is the label itself; with
`deep` the trees may have nine levels.
"""

import sys

import numpy as np
import xgboost as xgb

fault, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
generator = np.random.default_rng(3)
x = generator.normal(size=(1500, 12)).astype(np.float32)
y = (np.tanh(x[:, :6]).sum(axis=1) > 0).astype(int)
if fault == "leak":
    x[:, 4] = y + 0.01 * generator.normal(size=1500)
names = [f"f{number}" for number in range(12)]
train = xgb.DMatrix(x[:1000], label=y[:1000], feature_names=names)
test = xgb.DMatrix(x[1000:], label=y[1000:], feature_names=names)
parameters = {
    "objective": "binary:logistic", "nthread": 1, "max_depth": 9 if fault == "deep" else 3,
}  # fmt: skip
evals = [(train, "train"), (test, "test")]
xgb.train(parameters, train, rounds, evals=evals, verbose_eval=False)
