# /// scenario
# healthy = true
# severities = [1.0, 1.5, 2.0]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a job that replays a CUDA graph of many short kernels.

The host calls two operators a step and then waits for the loss.
"""

# Arithmetic: 1200 * severity kernels of 16 / severity us compute 19.2 ms a step. Between the
# kernels of a graph the device is idle for 0.25 us: 0.3, 0.45 and 0.6 ms. Between the steps it is
# idle for the batch and the launch of the graph, about 0.5 ms. In total 0.8 to 1.1 ms of 20 ms = 4
# to 6%.

from traced import run_traced

from stepscope.testing.traces import COMPUTE_STREAM

KERNELS = (
    "triton_poi_fused_add_gelu_mul_7",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
    "triton_per_fused_native_layer_norm_2",
    "void at::native::vectorized_elementwise_kernel<8, at::native::BUnaryFunctor<c10::BFloat16>>",
)


def draw_step(job, severity):
    """Draw a step: its input is copied into the memory of the graph."""
    with job.step():
        job.fetch(150, workers=True)
        job.python(60)
        start = job.now
        job.now += 8
        job.copy(180)
        job._host("cpu_op", "aten::copy_", start, job.now - start)
        replay(job, round(1_200 * severity), round(64 / severity) / 4)
        job.python(40)
        job.item()


def replay(job, count, duration):
    """Launch a graph: all its kernels have the correlation of one call."""
    job._launches += 1
    job._host("cuda_runtime", "cudaGraphLaunch", job.now, 130, correlation=job._launches)
    job.now += 130
    for number in range(count):
        name = KERNELS[number % len(KERNELS)]
        moment = max(job.now, job.free.get(COMPUTE_STREAM, 0.0))
        job.free[COMPUTE_STREAM] = moment + 0.25
        grid = {"grid": [864, 1, 1], "block": [256, 1, 1], "blocks per SM": 8.0}
        grid |= {"est. achieved occupancy %": 62, "graph node id": 4_000 + number}
        job._device("kernel", name, duration, job._launches, COMPUTE_STREAM, **grid)


def make_steps(severity):
    """Make the severities of the ranks."""
    return [severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [1.0], draw=draw_step)
