# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# accept = ["framework_overhead/dispatch_overhead"]
# fix = "replace loops over elements by tensor operations: one module for the sequence"
# severities = [1.0, 1.5, 2.5]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a speech model with large convolutions and a recurrent cell in a Python loop.

Every third step validates a batch, without a backward pass.
"""

# Arithmetic: of each of 40 cells the host calls 8 operators forwards, of 11 us, 5 us for the launch
# and 3 us of Python, and 14 backwards, of 13 + 5 us: 40 * (0.15 + 0.25) = 16 ms, for which the
# device needs 40 * 21 * 0.003 = 2.5 ms. The convolutions compute 3 + 6 ms; the 3 ms forwards hide a
# part of the calls. One third of the steps validates for about 6 ms. Mean: about 16 + 6 + 2 = 24
# ms. A recurrent layer of cuDNN computes 0.6 + 1.2 ms with two calls: about 12.5 ms a step. The fix
# saves 45% at the mildest severity.

import random

from traced import MULTI_TENSOR, autograd_thread, run_traced

CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_"
    "warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
)
SMALL_PRODUCT = "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn"
POINTWISE = "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<c10::Half>>"
CELL = ("aten::addmm", "aten::addmm", "aten::add", "aten::unsafe_chunk", "aten::sigmoid_")
FEW = {"blocks per SM": 0.15}
REST = ("aten::tanh", "aten::mul", "aten::addcmul")
random_times = random.Random(8)


def draw_step(job, step):
    """Draw a step: cells, the time of cuDNN if they are one call, and whether it validates."""
    cells, entire_sequence, validates = step
    with job.step():
        job.fetch(vary(220), workers=True)
        job.copy(250)
        draw_forward(job, cells, entire_sequence)
        job.operator("aten::ctc_loss", 40, kernel=("void at::native::ctc_loss_log_alpha", 180))
        with autograd_thread(job):
            job.python(50)
            if cells:
                for _ in range(cells):
                    for number in range(14):
                        name = "aten::mm" if number < 4 else "aten::mul"
                        kernel = (SMALL_PRODUCT, 5.1) if number < 4 else (POINTWISE, 2.2)
                        job.operator(name, vary(13), kernel=kernel, grid=[16, 1, 1], **FEW)
            else:
                name = "void LSTM_elementWise_bp1<__half, __half, float>"
                job.operator("aten::_cudnn_rnn_backward", 90, kernel=(name, 2 * entire_sequence))
            for _ in range(20):
                job.operator("aten::convolution_backward", vary(22), kernel=(CONVOLUTION, 300))
        with job.optimizer("AdamW"):
            job.operator("aten::_foreach_add_", 60, kernel=(MULTI_TENSOR, 350))
        if validates:
            with job.range("validate"):
                job.fetch(vary(220), workers=True)
                draw_forward(job, cells, entire_sequence)
        job.item()


def draw_forward(job, cells, entire_sequence):
    """Draw the convolutions and the recurrent layer."""
    for _ in range(10):
        job.operator("aten::cudnn_convolution", vary(20), kernel=(CONVOLUTION, 300))
    for _ in range(cells):
        for name in (*CELL, *REST):
            if name == "aten::unsafe_chunk":
                job.operator(name, vary(9))
            else:
                kernel = (SMALL_PRODUCT, 5.4) if name == "aten::addmm" else (POINTWISE, 2.1)
                job.operator(name, vary(11), kernel=kernel, grid=[16, 1, 1], **FEW)
            job.python(vary(3))
    if not cells:
        kernel = ("void RNN_blockPersist_fp_LSTM<__half, __half, float>", entire_sequence)
        job.operator("aten::_cudnn_rnn", 80, kernel=kernel)


def vary(duration):
    """Vary a duration: calls of operators have a long tail."""
    return round(duration * (0.9 + random_times.expovariate(10)) * 4) / 4


def make_steps(severity):
    """Make the steps of the ranks."""
    return [[(round(40 * severity), 0, number % 3 == 2) for number in range(6)]]


def make_fixed_steps(severity):
    """Make the steps of the ranks with one call for the sequence."""
    return [[(0, 600 * severity, number % 3 == 2) for number in range(6)]]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, make_fixed_steps, draw=draw_step)
