# /// scenario
# suspect = "data_pipeline"
# cause = "host_to_device_copies"
# stage = "copies"
# fix = "pin and overlap the copies: pin_memory and non_blocking"
# severities = [0.7, 1.0, 1.5]  # size of a volume
# drawn = "run"
# ///
"""The record of a job that copies large volumes from pageable memory to its GPU in every step.

A copy from pageable memory holds the host up and waits for what the GPU was told before, so that
the host cannot launch ahead: the GPU idles while it copies and while the next step is launched.
Pinned and asynchronous, the copy of the next batch runs beside the computing.
"""

from drawn import drawn_arguments, report_drawn

STEPS = 120
PASSES = {"forward": 14, "backward": 30, "optimizer": 4}


def main():
    args = drawn_arguments(__doc__)
    copy = 24 * args.severity
    device = " | ".join(f"device:{name} {ms}" for name, ms in PASSES.items())
    host = "forward 4 | backward 6 | optimizer 2"
    if args.fixed:
        step = f"wait=2 1 | h2d=64000000 0.2 | {host} | do 35 ( {device} )"
    else:
        # The copy waits until the GPU has done the passes of the step before.
        passes = sum(PASSES.values())
        step = f"wait=2 1 | h2d=64000000 {passes + copy:.1f} ( {device} ) | {host}"
    run = args.builder
    rank = run.rank(workers=4).draw(step, STEPS, jitter=0.05, seed=args.seed)
    for worker in rank.workers:
        worker.draw("fetch=0.9 60 | do 120", STEPS // 4)
    run.metric("gpu_busy_ratio", 0.95 if args.fixed else 0.6, device="0")
    run.metric("outside_cpu_cores", 0.1).metric("job_cpu_cores", 2.2)
    report_drawn(run, STEPS, 8)


if __name__ == "__main__":
    main()
