"""Two workers of Ray Train that train without any framework and mark their steps."""

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
    directory = Path(sys.argv[1])
    ray.init(num_cpus=3, include_dashboard=False, _temp_dir=sys.argv[2])
    trainer = DataParallelTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(directory)),
    )
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
