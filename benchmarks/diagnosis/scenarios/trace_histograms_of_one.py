# /// scenario
# suspect = "framework_overhead"
# cause = "straggler"
# fix = "log histograms less often: what rank 0 writes, the others wait for"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The traces of four ranks, of which rank 0 writes histograms of its gradients in each step."""

# Arithmetic: each rank computes 20 * 0.36 + 40 * 0.36 + 1 = 22.6 ms a step, and about 1 ms of the
# exchange is not hidden. Rank 0 reads 30 gradients, with 0.25 ms of Python each at the mildest
# severity, and about 0.03 ms for the call and the copy: 30 * 0.28 = 8.4 ms in which its device has
# nothing to do and the others wait in their first all-reduce: 8.4 / 32 = 26%.

from drawn import MULTI_TENSOR, STEPS, TENSOR_CORES, Variation, drawn_arguments, report_traced

from stepscope.testing.traces import COMMUNICATION_STREAM, LAUNCH_US, TraceJob

RANKS = 4
PARAMETERS = 30
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"
HISTOGRAM = "void at::native::kernelHistogram1D<float, long, 1, 2, -1>"


def draw_step(jobs, writing, vary):
    """Draw a step of all ranks."""
    starts = [job.now for job in jobs]
    for job in jobs:
        job.fetch(vary.between(150, 300), workers=True)
        job.copy(vary.between(380, 420))
        with job.range("DistributedDataParallel.forward"):
            for _ in range(20):
                kernel = (TENSOR_CORES, vary(360))
                job.operator("aten::conv2d", vary.between(18, 26), kernel=kernel)
    for _ in range(4):
        for job in jobs:
            for _ in range(10):
                kernel = (TENSOR_CORES, vary(360))
                job.operator("aten::convolution_backward", vary.between(20, 30), kernel=kernel)
        exchange(jobs, 900)
    for job in jobs:
        job.join()
    if writing:
        for _ in range(PARAMETERS):
            jobs[0].operator("aten::histc", 16, kernel=(HISTOGRAM, 9))
            jobs[0].blocking_copy(2, route="DtoH (Device -> Pageable)")
            jobs[0].python(vary.between(0.8 * writing, 1.2 * writing))
    for job, start in zip(jobs, starts, strict=True):
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(MULTI_TENSOR, 1_000))
        end_step(job, start)


def exchange(jobs, duration):
    """Draw an all-reduce, which ends at the same time in all ranks."""
    starts = []
    for job in jobs:
        job.follow(COMMUNICATION_STREAM)
        starts.append(max(job.now + LAUNCH_US, job.free[COMMUNICATION_STREAM]))
    end = max(starts) + duration
    for job, start in zip(jobs, starts, strict=True):
        with job.range("nccl:all_reduce"):
            job.launch(ALL_REDUCE, end - start, stream=COMMUNICATION_STREAM, grid=[24, 1, 1])


def end_step(job, start):
    """End a step that was drawn beside those of other ranks."""
    job._host("user_annotation", f"ProfilerStep#{job._step}", start, job.now - start)
    job._step += 1


def main():
    """Draw the steps of all ranks, which wait for each other."""
    args = drawn_arguments(__doc__)
    vary = Variation(args.seed, ratio=0.03)
    jobs = [TraceJob(rank=rank, world_size=RANKS) for rank in range(RANKS)]
    for _ in range(STEPS):
        draw_step(jobs, 0 if args.fixed else 250 * args.severity, vary)
    report_traced(jobs, args.run)


if __name__ == "__main__":
    main()
