# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# fix = "read values from tensors rarely: keep masks as tensors"
# severities = [2.0, 3.0, 5.0]  # masks per image
# drawn = "traces"
# ///
"""The trace of an instance segmentation model whose loss selects rows by boolean masks.

Each selection needs the number of its rows, so the host waits for the device, and the device then
waits until the host has called the next operator.
"""

# Arithmetic: the device computes 40 * 0.2 (backbone) + 24 * 3 * 0.18 (heads) + 80 * 0.18 (backward)
# + 0.6 (optimizer) = 36 ms a step. A selection (wait, Python, call of the next kernel) leaves it
# idle for about 0.27 ms; with 24 images and 2 masks 48 * 0.27 = 13 ms of 49 ms = 26%. Without the
# waits the host needs about 20 ms a step, and is hidden.

from drawn import ELEMENTWISE, MULTI_TENSOR, Variation, autograd_thread, outer, run_traced

IMAGES = 24
CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_"
    "warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
)
GRADIENT = (
    "sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_stage3_"
    "warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
)
SELECT = "void at_cuda_detail::cub::DeviceSelectSweepKernel<bool, long, 128>"
GATHER = "void at::native::index_elementwise_kernel<128, 4>"
vary = Variation(seed=11, ratio=0.06)


def draw_step(job, masks):
    """Draw a step; with 0 masks the loss is one of weights instead of selected rows."""
    with job.step():
        job.fetch(180, workers=True)
        job.copy(350)
        for _ in range(40):
            with outer(job, "aten::conv2d"):
                job.operator("aten::cudnn_convolution", vary(18), kernel=(CONVOLUTION, vary(200)))
        for _ in range(IMAGES):
            for _ in range(masks):
                select_rows(job)
            if not masks:
                job.operator("aten::where", 12, kernel=(ELEMENTWISE, 12))
                job.python(120)
            for _ in range(3):
                job.operator("aten::cudnn_convolution", vary(18), kernel=(CONVOLUTION, vary(180)))
        with autograd_thread(job):
            job.python(60)
            for _ in range(80):
                with outer(job, "autograd::engine::evaluate_function: ConvolutionBackward0"):
                    job.operator(
                        "aten::convolution_backward", vary(24), kernel=(GRADIENT, vary(180))
                    )
        with job.optimizer("SGD"):
            for _ in range(3):
                job.operator("aten::_foreach_add_", 30, kernel=(MULTI_TENSOR, 200))


def select_rows(job):
    """Select rows: counting them needs the device."""
    with outer(job, "aten::index"):
        with outer(job, "aten::nonzero"):
            job.operator("aten::empty", 4)
            job.launch(SELECT, 6)
            job.copy(1.5, route="DtoH (Device -> Pinned)")
            job.wait()
            job.python(8)
        job.launch(GATHER, 8)
    job.python(vary(220))


if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [int(severity)], [0], draw=draw_step)
