"""Two workers of Ray Train that train without any framework and mark their steps.

stepscope run -- python ray_training.py RESULTS

Args:
    RESULTS: directory for the results of Ray.
    SOCKETS: directory with a short path for its sockets; by default, Ray chooses one.
"""

import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import stepscope


def train():
    for _ in stepscope.steps(range(30)):
        sum(range(1_000_000))


def main():
    results, *sockets = sys.argv[1:]
    ray.init(num_cpus=3, include_dashboard=False, _temp_dir=sockets[0] if sockets else None)
    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(Path(results).resolve())),
    )
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
