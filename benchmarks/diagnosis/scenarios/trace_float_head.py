# /// scenario
# suspect = "model"
# cause = "full_precision"
# fix = "use tensor cores: autocast, set_float32_matmul_precision"
# severities = [1.0, 1.5, 2.5]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a model with a bfloat16 backbone, whose large head leaves autocast.

The convolutions of the backbone use tensor cores; the products of the head are float32 ones of
cuBLAS and cuDNN for plain cores.
"""

# Arithmetic: backbone 30 * 3 * 0.18 = 16.2 ms, normalisation 30 * 3 * 0.03 = 2.7 ms, head 12 * 3 *
# 0.42 = 15.1 ms, optimizer 0.5 ms: 34.5 ms a step on a busy device. On tensor cores the head takes
# a quarter (an A100 has 156 TFLOPS of TF32 and 19.5 of float32; a quarter is careful): 11.3 of 34.5
# ms = 33% at the mildest severity.

import random

from traced import MULTI_TENSOR, autograd_thread, run_traced

BACKBONE = (
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_"
    "warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
)
BACKBONE_GRADIENT = (
    "sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_"
    "stage3_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
)
NORMALISATION = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<__nv_bfloat16, float, 512, true, 1, true>"
NORMALISATION_GRADIENT = "void at::native::batch_norm_backward_elemt_kernel<c10::BFloat16, float>"
HEAD = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_"
    "alignc4_execute_kernel__5x_cublas"
)
HEAD_GRADIENT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(Params)"
HEAD_ON_TENSOR_CORES = (
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize256x128x32_stage3_warpsize4x2x1_"
    "tensor16x8x16_execute_kernel__5x_cublas"
)
random_times = random.Random(5)


def draw_step(job, head):
    """Draw a step with the kernels of the head: names of both passes, and a duration."""
    forward, backward, duration = head
    with job.step():
        job.fetch(250, workers=True)
        job.copy(500)
        for _ in range(30):
            job.operator("aten::cudnn_convolution", vary(20), kernel=(BACKBONE, vary(180)))
            job.operator("aten::cudnn_batch_norm", vary(14), kernel=(NORMALISATION, 30))
        job.operator("aten::_to_copy", 10, kernel=("void at::native::float_copy_kernel", 25))
        for _ in range(12):
            job.operator("aten::addmm", vary(18), kernel=(forward, vary(duration)))
        with autograd_thread(job):
            job.python(50)
            for _ in range(12):
                for name in (forward, backward):
                    job.operator("aten::mm", vary(16), kernel=(name, vary(duration)))
            for _ in range(30):
                job.operator(
                    "aten::native_batch_norm_backward", 15, kernel=(NORMALISATION_GRADIENT, 60)
                )
                for _ in range(2):
                    kernel = (BACKBONE_GRADIENT, vary(180))
                    job.operator("aten::convolution_backward", vary(22), kernel=kernel)
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(MULTI_TENSOR, 500))
        job.item()


def vary(duration):
    """Vary a duration by some percent, in quarters of a microsecond."""
    return round(duration * random_times.uniform(0.96, 1.04) * 4) / 4


def make_steps(severity):
    """Make the heads of the ranks."""
    return [(HEAD, HEAD_GRADIENT, 420 * severity)]


def make_fixed_steps(severity):
    """Make the heads of the ranks on tensor cores."""
    return [(HEAD_ON_TENSOR_CORES, HEAD_ON_TENSOR_CORES, 105 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, make_fixed_steps, draw=draw_step)
