"""Recording of jobs on each release of PyTorch.

    python -m benchmarks.versions [RELEASE …] [--only CELL …] [--python VERSION]

For each release it makes an environment, runs each job of `jobs.py` alone and under stepscope,
compares what it prints, its exit status and its steps, and removes the environment. Results are in
benchmarks/results/versions.json; a release that is there already is left out unless it is named.
Old releases come with CUDA libraries of 2 to 3 GB and run on the CPU.
"""
