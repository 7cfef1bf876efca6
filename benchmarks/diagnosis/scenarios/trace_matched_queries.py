# /// scenario
# suspect = "framework_overhead"
# cause = "python_overhead"
# fix = "move work out of the loop: match boxes with tensor operations"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace without stacks of a detection transformer, which assigns its queries on the CPU.

The costs of a batch are read once, Python assigns queries to boxes, and the device waits for the
indices before the loss and the backward pass.
"""

# Arithmetic: the device computes 36 * (0.2 + 0.1) = 10.8 ms forwards, 72 * (0.2 + 0.1) = 21.6 ms
# backwards, 1.2 ms of optimizer: 33.6 ms. The assignment takes 14 ms on average at the mildest
# severity, with nothing launched: 14 / 48 = 29%. The copy of the costs takes 0.05 ms, and after it
# the host waits for nothing. On the device the assignment takes less than 1 ms.

from drawn import ELEMENTWISE, MULTI_TENSOR, TENSOR_CORES, Variation, outer, run_traced

ATTENTION = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"
ATTENTION_GRADIENT = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<64, 128>"
vary = Variation(seed=100, ratio=0.05)


def draw_step(job, matching):
    """Draw a step, with the mean time to assign queries."""
    with job.step():
        job.fetch(vary(260), workers=True)
        job.copy(700)
        for _ in range(36):
            with outer(job, "aten::linear"):
                job.operator("aten::addmm", vary(17), kernel=(TENSOR_CORES, vary(200)))
            with outer(job, "aten::scaled_dot_product_attention"):
                name = "aten::_flash_attention_forward"
                job.operator(name, vary(25), kernel=(ATTENTION, vary(100)))
        job.operator("aten::cdist", 20, kernel=("void at::native::cdist_kernel_cuda_impl", 60))
        if matching:
            with outer(job, "aten::to"), outer(job, "aten::_to_copy"):
                job.blocking_copy(50, route="DtoH (Device -> Pageable)")
            job.python(round(vary.between(0.75 * matching, 1.25 * matching)))
            for _ in range(2):
                with outer(job, "aten::to"), outer(job, "aten::_to_copy"):
                    job.blocking_copy(2, route="HtoD (Pageable -> Device)")
        else:
            job.operator("auction::assign", 30, kernel=("auction_assign_kernel", 800))
        for _ in range(12):
            job.operator("aten::index", 14, kernel=(ELEMENTWISE, 10))
        for _ in range(72):
            job.operator("aten::mm", vary(18), kernel=(TENSOR_CORES, vary(200)))
            name = "aten::_flash_attention_backward"
            job.operator(name, vary(28), kernel=(ATTENTION_GRADIENT, vary(100)))
        with job.optimizer("AdamW"):
            job.operator("aten::_foreach_norm", 40, kernel=(MULTI_TENSOR, 200))
            job.operator("aten::_fused_adamw_", 50, kernel=(MULTI_TENSOR, 1_000))


if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [14_000 * severity], [0], draw=draw_step)
