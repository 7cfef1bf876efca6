# /// scenario
# suspect = "model"
# cause = "optimizer"
# fix = "make the optimizer cheaper: AdamW, or orthogonalise every N steps"
# severities = [1.0, 1.5, 2.5]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a compiled model with two micro-batches a step, whose optimizer is Muon.

The update of each matrix is orthogonalised by matrix products, which keep the device busy.
"""

# Arithmetic: a micro-batch computes 24 * (0.22 + 0.04) + 24 * (0.44 + 0.05) = 18 ms; two are 36 ms.
# The optimizer multiplies 24 matrices 5 * 3 times for 0.06 ms, and adds 24 * 5 * 0.01 ms: 22.8 ms
# at the mildest severity. 22.8 / 59 = 38%; AdamW takes 1.5 ms instead: the fix saves 36%.

import random

from traced import MULTI_TENSOR, run_traced

from stepscope.testing.traces import COMPUTE_STREAM

LAYERS = 24
PRODUCT = "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"
FUSED_FORWARD = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3"
FUSED_BACKWARD = "triton_per_fused__to_copy_add_div_mul_native_layer_norm_backward_sum_11"
ORTHOGONALISE = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage3_tensor16x8x16"
random_times = random.Random(3)


def draw_step(job, product):
    """Draw a step; without products the optimizer is AdamW."""
    with job.step():
        for _ in range(2):
            job.fetch(vary(200), workers=True)
            job.copy(150)
            with job.range("Torch-Compiled Region: 0/0"):
                job.python(120)
                for _ in range(LAYERS):
                    job.operator("aten::mm", vary(9), kernel=(PRODUCT, vary(220)))
                    launch_triton(job, FUSED_FORWARD, 40)
            with job.range("CompiledFunctionBackward"):
                job.python(90)
                for _ in range(LAYERS):
                    for _ in range(2):
                        job.operator("aten::mm", vary(9), kernel=(PRODUCT, vary(220)))
                    launch_triton(job, FUSED_BACKWARD, 50)
        if product:
            with job.optimizer("Muon"):
                for _ in range(LAYERS):
                    for _ in range(5):
                        for _ in range(3):
                            kernel = (ORTHOGONALISE, vary(product))
                            job.operator("aten::addmm", vary(13), kernel=kernel)
                        job.operator("aten::add_", 8, kernel=(MULTI_TENSOR, 10))
        else:
            with job.optimizer("AdamW"):
                job.operator("aten::_fused_adamw_", 60, kernel=(MULTI_TENSOR, 1_500))
        job.item()


def launch_triton(job, name, duration):
    """Launch a kernel of Triton, through the driver."""
    start = job.now
    job._launches += 1
    job._host("cuda_driver", "cuLaunchKernelEx", start + 4, 4, correlation=job._launches)
    job.now += 8
    grid = {"grid": [4096, 1, 1], "block": [128, 1, 1], "blocks per SM": 37.9}
    job._device("kernel", name, vary(duration), job._launches, COMPUTE_STREAM, **grid)
    job._host("cpu_op", name, start, job.now - start)


def vary(duration):
    """Vary a duration by some percent, in quarters of a microsecond."""
    return round(duration * random_times.uniform(0.96, 1.04) * 4) / 4


def make_steps(severity):
    """Make the products of the ranks."""
    return [60 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [0], draw=draw_step)
