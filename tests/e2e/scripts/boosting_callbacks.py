"""Train XGBoost models with callbacks and early stopping, and print hashes and times."""

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import xgboost as xgb

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
out = parser.parse_args().out

generator = np.random.default_rng(1)
x = generator.normal(size=(900, 5)).astype(np.float32)
y = (x[:, 0] + 0.8 * generator.normal(size=900) > 0).astype(int)
train, test = xgb.DMatrix(x[:600], label=y[:600]), xgb.DMatrix(x[600:], label=y[600:])
PARAMETERS = {"objective": "binary:logistic", "nthread": 1, "max_depth": 3}


class Recorder(xgb.callback.TrainingCallback):
    """Notes the metric of each round, and stops after some."""

    def __init__(self, count):
        self.count, self.losses, self.calls = count, [], []

    def before_training(self, model):
        self.calls.append("before training")
        return model

    def after_iteration(self, model, epoch, evals_log):
        self.losses.append(evals_log["test"]["logloss"][-1])
        return epoch + 1 == self.count

    def after_training(self, model):
        self.calls.append("after training")
        return model


def fit(**arguments):
    evals = [(train, "train"), (test, "test")]
    return xgb.train(PARAMETERS, train, 40, evals=evals, verbose_eval=False, **arguments)


def hash_of(booster):
    return hashlib.sha256(booster.save_raw()).hexdigest()


results, marks = {}, []
recorder = Recorder(7)
booster = fit(callbacks=[recorder, xgb.callback.LearningRateScheduler(lambda r: 0.5 / (1 + r))])
results["callbacks"] = {
    "hash": hash_of(booster), "losses": recorder.losses, "calls": recorder.calls,
    "rounds": booster.num_boosted_rounds(),
}  # fmt: skip
marks.append(time.time_ns())
np.sort(generator.normal(size=3_000_000))  # work of the script between two trainings
marks.append(time.time_ns())
stopping = xgb.callback.EarlyStopping(rounds=3, save_best=True)
recorder = Recorder(40)
booster = fit(callbacks=[recorder, stopping])
results["stopped"] = {
    "hash": hash_of(booster), "losses": recorder.losses, "best": booster.best_iteration,
    "rounds": booster.num_boosted_rounds(),
}  # fmt: skip
out.write_text(json.dumps({"results": results, "marks": marks}))
