"""Recording of jobs on each release of PyTorch.

    python -m benchmarks.versions [RELEASE …] [--only CELL …] [--python VERSION]
    python -m benchmarks.versions newest --small

For each release it makes an environment, runs each job of `jobs.py` alone and under stepscope,
compares what it prints, its exit status and its steps, and removes the environment. Results are in
benchmarks/results/versions.json; a release that is there already is left out unless it is named.
Old releases come with CUDA libraries of 2 to 3 GB and run on the CPU.

Then it prints what changed since the newest release before in what capture uses: under which names
attributes are found, parameters of replaced functions, events of a trace (`changes.py`). Snapshots
of that are in benchmarks/results/interfaces/. `newest --small` is the early look at a new release.
"""
