"""Train with XGBoost's classes for scikit-learn, and write hashes and predictions."""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import xgboost as xgb

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
out = parser.parse_args().out

generator = np.random.default_rng(1)
x = generator.normal(size=(900, 5)).astype(np.float32)
score = x[:, 0] + 0.5 * generator.normal(size=900)
SETTINGS = {"n_estimators": 40, "max_depth": 3, "n_jobs": 1}
classes = np.digitize(score, [-0.5, 0.5])
results = {}
for name, model, y in (
    ("classifier", xgb.XGBClassifier(**SETTINGS, early_stopping_rounds=3), classes),
    ("regressor", xgb.XGBRegressor(**SETTINGS), score),
):
    model.fit(x[:600], y[:600], eval_set=[(x[600:], y[600:])], verbose=False)
    booster = model.get_booster()
    results[name] = {
        "hash": hashlib.sha256(booster.save_raw()).hexdigest(),
        "metrics": next(iter(model.evals_result()["validation_0"].values())),
        "labels": y[600:].tolist(),
    }
out.write_text(json.dumps(results))
