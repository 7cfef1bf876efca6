"""Recording of jobs on the supported releases of each framework.

    python -m benchmarks.versions [--framework NAME] [RELEASE …] [--only JOB …] [--python VERSION]

For each release it makes an environment, runs each job of its framework alone and under stepscope,
compares what it prints, its exit status, its steps and their records, and removes the environment.
Results are in benchmarks/results/versions.json; a release that is there already is left out unless
it is named. Old releases of PyTorch come with CUDA libraries of 2 to 3 GB and run on the CPU.

    frameworks   releases, and the environments in which these are installed
    cells        jobs, and the records that they must have
    jobs         jobs of PyTorch; those of other frameworks are in NAME_jobs.py

Then it prints what changed since the newest release before in what capture uses: under which names
attributes are found, parameters of replaced functions, events of a trace (`changes.py`). Snapshots
of that are in benchmarks/results/interfaces/. `newest --small` is the early look at a new release.
"""
