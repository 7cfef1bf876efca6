# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# fix = "read values from tensors rarely: keep metrics as tensors"
# severities = [0.7, 1.0, 1.5]  # values that are read in a step
# drawn = "run"
# ///
"""The record of a job that reads hundreds of values from its GPU between two steps.

Each reading waits for the GPU and lets it idle until the next one is launched.
"""

from drawn import drawn_arguments, report_drawn

STEPS = 150
PASSES = {"forward": 8, "backward": 16, "optimizer": 2}


def main():
    args = drawn_arguments(__doc__)
    reading = 30 * args.severity
    device = " | ".join(f"device:{name} {ms}" for name, ms in PASSES.items())
    step = f"wait=2 1 | h2d=3000000 0.2 | forward 3 | backward 5 | optimizer 1 | do 17 ( {device} )"
    if not args.fixed:
        step += f" | do:read {reading:.1f}"
    run = args.builder
    rank = run.rank(workers=2).draw(step, STEPS, jitter=0.05, seed=args.seed)
    for worker in rank.workers:
        worker.draw("fetch 30 | do 70", STEPS // 2)
    run.metric("gpu_busy_ratio", 0.9 if args.fixed else 0.5, device="0")
    run.metric("outside_cpu_cores", 0.1).metric("job_cpu_cores", 1.8)
    report_drawn(run, STEPS, 32)


if __name__ == "__main__":
    main()
