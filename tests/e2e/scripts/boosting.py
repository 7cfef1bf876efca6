"""Train small XGBoost models in every way, and print a hash of each, and predictions of some."""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import xgboost as xgb

ROUNDS = 12
LAST_RECORDED = 10
SHARED = {"max_depth": 3, "nthread": 1, "seed": 7}


def hash_of(booster):
    return hashlib.sha256(booster.save_raw()).hexdigest()


def squared_error(predictions, data):
    return predictions - data.get_label(), np.ones_like(predictions)


class Batches(xgb.DataIter):
    """Two halves of the rows."""

    def __init__(self, x, y):
        self.halves = [(x[:300], y[:300]), (x[300:], y[300:])]
        self.position = 0
        super().__init__()

    def reset(self):
        self.position = 0

    def next(self, input_data):
        if self.position == len(self.halves):
            return False
        x, y = self.halves[self.position]
        input_data(data=x, label=y)
        self.position += 1
        return True


parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
out = parser.parse_args().out

generator = np.random.default_rng(0)
x = generator.normal(size=(900, 6)).astype(np.float32)
score = x[:, 0] + x[:, 1] ** 2 + 0.3 * generator.normal(size=900).astype(np.float32)
binary, classes = (score > 1).astype(int), np.digitize(score, [0, 1.5])
names = [f"feature {n}" for n in range(6)]


def data_of(labels, rows, **fields):
    return xgb.DMatrix(x[rows], label=labels[rows], feature_names=names, **fields)


TRAIN, TEST = slice(0, 600), slice(600, 900)
hashes, expected = {}, {}


def train(name, labels, parameters, **arguments):
    training, test = data_of(labels, TRAIN), data_of(labels, TEST)
    booster = xgb.train(
        {**SHARED, **parameters}, training, ROUNDS,
        evals=[(training, "train"), (test, "test")], verbose_eval=False, **arguments,
    )  # fmt: skip
    hashes[name] = hash_of(booster)
    is_linear = parameters.get("booster") == "gblinear"
    end = 0 if is_linear else min(LAST_RECORDED + 1, booster.num_boosted_rounds())
    predictions = booster.predict(test, iteration_range=(0, end))
    expected[name] = {
        "labels": labels[TEST].tolist(),
        "predictions": predictions.tolist(),
        "gain": booster[:end].get_score(importance_type="gain") if end else {},
        "rounds": booster.num_boosted_rounds(),
    }


train("binary", binary, {"objective": "binary:logistic", "subsample": 0.8})
train("classes", classes, {"objective": "multi:softprob", "num_class": 3})
train("regression", score, {"objective": "reg:squarederror"})
train("own objective", score, {}, obj=squared_error)
train("dart", binary, {"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.3})
train("linear", score, {"objective": "reg:squarederror", "booster": "gblinear"})
train("stopped", binary, {"objective": "binary:logistic", "eta": 1}, early_stopping_rounds=2)

ranking = data_of(classes, TRAIN)
ranking.set_group([20] * 30)
parameters = {**SHARED, "objective": "rank:ndcg"}
hashes["ranking"] = hash_of(xgb.train(parameters, ranking, ROUNDS))
quantile = xgb.QuantileDMatrix(Batches(x[TRAIN], score[TRAIN]))
hashes["quantile"] = hash_of(xgb.train(SHARED, quantile, ROUNDS))

loop = xgb.Booster(SHARED, [quantile])
for number in range(ROUNDS):
    loop.update(quantile, number)
hashes["loop"] = hash_of(loop)

folds = xgb.cv(
    {**SHARED, "objective": "binary:logistic"}, data_of(binary, TRAIN), ROUNDS, nfold=3,
    as_pandas=False, seed=1,
)  # fmt: skip
hashes["cv"] = folds["test-logloss-mean"]

out.write_text(json.dumps({"hashes": hashes, "expected": expected}))
