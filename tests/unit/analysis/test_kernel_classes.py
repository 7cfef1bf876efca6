"""Classification of kernels by name."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.kernel_classes import (
    classify_precision,
    is_collective_operator,
    is_communication,
    is_narrow_communication,
    match_rows,
    may_communicate,
    uses_tensor_cores,
)
from stepscope.store import DictColumn

VOLTA = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"
HOPPER = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas"
BLACKWELL = "nvjet_sm100_tst_256x128_64x4_2x1_2cta_v_bz_TNN"
CK = "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weight"
TENSILE = "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"


COMMUNICATION: dict[bool, list[str]] = {
    True: [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
        "NCCL_something",
    ],
    False: [
        ADD,
        "hipMemcpy",
        "elementwise_reduce_kernel",
        "triton_poi_fused_all_gather_into_tensor_0",
        "softmax_warp_all_reduce_kernel",
        "LayerNormForward<BlockAllReduce<float>>",
        "segment_all_reduce_softmax_kernel",
        "block_all_gather_embedding_kernel",
    ],
}


@pytest.mark.parametrize(
    ("name", "expected"), [(name, key) for key, names in COMMUNICATION.items() for name in names]
)
def test_communication(name: str, expected: bool) -> None:
    assert is_communication(name) == expected


LIBRARIES = {
    "symmetric memory": [
        "void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**)",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 8>",
        "put_signal_kernel(unsigned int**, int, int)",
    ],
    "multimem": [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "multimem_all_gather_kernel<16>",
    ],
    "one- and two-shot": [
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>",
        "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, true>",
        "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__half>",
        "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot>",
    ],
    "NVSHMEM": [
        "nvshmemi_barrier_threadgroup",
        "void nvshmemx_alltoall_kernel<int>",
        "rocshmem_put_kernel",
    ],
    "Transformer Engine": ["userbuffers_fp16_sum_inplace_gpu_rr_rs<8>", "kuserbuffers_pushrecv"],
    "XLA": ["all-reduce-start.1", "reduce-scatter.7", "collective-permute"],
    "DeepEP": [
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void deep_ep::internode_ll::combine<false, 7168, 10>(void*)",
        "_ZN7deep_ep9internode15notify_dispatchILb0ELi8EEEvPKiPii",
    ],
    "MSCCL++": [
        "void mscclpp::executionKernel<__half, mscclpp::LL16Packet>",
        "mscclKernel_Sum_half_Simple_false",
    ],
    "RCCL": ["rcclGenericKernel<1, false>", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)"],
    "oneCCL": [
        "oneccl_allreduce_large_read_kernel",
        "ccl::v1::allreduce_medium<sycl::half>",
        "typeinfo name for oneapi::ccl::arc_ll256",
    ],
}


@pytest.mark.parametrize(
    ("library", "name"), [(library, name) for library, names in LIBRARIES.items() for name in names]
)
def test_communication_of_each_library(library: str, name: str) -> None:
    assert is_communication(name), library
    assert is_narrow_communication(name) == ("ccl" in name and library == "RCCL")


@pytest.mark.parametrize(
    ("name", "is_collective"),
    [
        ("c10d::allreduce_", True),
        ("symm_mem::multimem_all_reduce_", True),
        ("record_param_comms", True),
        ("_c10d_functional::all_gather_into_tensor", True),
        ("nccl:all_reduce", True),
        ("aten::mm", False),
        ("my::record_param_comms", False),
    ],
)
def test_operators_of_collectives(name: str, is_collective: bool) -> None:
    assert is_collective_operator(name) == is_collective


@pytest.mark.parametrize(
    ("name", "may"),
    [("my_own_kernel", True), (ADD, False), (HOPPER, False), ("barrier_kernel", True)],
)
def test_copies_and_products_of_collective_operators_are_no_communication(
    name: str, may: bool
) -> None:
    assert may_communicate(name) == may


TENSOR_CORES: dict[bool | None, list[str]] = {
    True: [
        VOLTA,
        HOPPER,
        BLACKWELL,
        CK,
        TENSILE,
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn>",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tensor16x8x8_execute",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>",
        "cudnn_generated_fort_native_sdpa_sm90_knob_6_64x128x128_4x1x1_kernel0_0",
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<float>>>",
        "cutlass3x_sm100_tensorop_s128x256x16gemm_bf16",
        "triton_tem_fused_mm_3",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32",
    ],
    False: [
        ADD,
        "volta_sgemm_128x64_nt",
        "ampere_sgemm_32x32_sliced1x4_tn",
        "SubTensorOpWithCastTensor1d",
        "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1_NLCA1",
        "cutlass_80_simt_sgemm_128x128_8x4_nn_align1",
        "igemm_fwd_gtc_nchw_fp16",
        "triton_poi_fused_add_0",
        "void at::native::reduce_kernel<512, 1, ReduceOp<float, MeanOps<float>>>",
        "void at::native::conv_depthwise2d_forward_kernel<3, float>",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>",
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16>",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "std::enable_if<vllm::_typeConvert<c10::BFloat16>::exists>::type vllm::fused_add_rms_norm",
        "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct)",
        "void cask_cudnn_infer::computeOffsetsKernel<false, false>",
    ],
    None: [  # the name does not show it
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_swiGlu_dynB_sm100f",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        "attn_fwd.kd",
        "kernel_unified_attention_2d",
        "my_own_kernel",
    ],
}


@pytest.mark.parametrize(
    ("name", "expected"), [(name, key) for key, names in TENSOR_CORES.items() for name in names]
)
def test_tensor_cores(name: str, expected: bool | None) -> None:
    assert uses_tensor_cores(name) is expected


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        (VOLTA, "FP16"),
        (HOPPER, "BF16"),
        (BLACKWELL, "BF16"),
        (TENSILE, "BF16"),
        (ADD, "FP32"),
        ("nvjet_hsh_128x128_64x4_1x2_h_bz_coopA_TNT", "FP16"),
        ("nvjet_qqtst_128x128_128x4_1x2_h_bz_TNT", "FP8"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128", "FP8"),
        ("sm80_xmma_gemm_i8f32_i8i32_f32_tn_n_tilesize128x128x64", "INT8"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "TF32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", "TF32"),
        ("volta_sgemm_128x64_nt", "FP32"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", "FP32"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x64_MI16x16x16x1", "FP16"),
        ("volta_dgemm_64x64_nn", "FP64"),
        ("void reduce_kernel<512, 1, ReduceOp<double, MeanOps<double>>>", "FP64"),
        ("void at::native::elementwise_kernel<128, 4, c10::BFloat16, float>", "BF16"),
        ("void at::native::vectorized_elementwise_kernel<4, c10::Half>", "FP16"),
        ("void at::native::elementwise_kernel<2, BinaryFunctor<long, long, bool>>", "INT64"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<int>>", "INT32"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<unsigned char>>", "INT8"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<signed char>>", "INT8"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<short>>", "INT16"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<bool>>", "BOOL"),
        ("void reduce_kernel<512, 1, ReduceOp<int, MaxOps<int>, unsigned int, int, 4>>", "INT32"),
        ("void reduce_kernel<512, 1, ReduceOp<long, SumOps<long>, unsigned int, 4>>", "INT64"),
        ("void my::accumulate<uint8_t, int32_t>", "INT8"),
        ("turing_int8_i8816gemm_int8_128x128_ldg16_relu_tn", "INT8"),
        ("void my::widen<int32_t, int8_t>", "INT8"),
        ("void my::copy<uint4>", None),
        ("void CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>", None),
        ("my_own_kernel", None),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "MXFP4"),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3", "MXFP4"),
        ("bmm_E2m1_E2m1E2m1_Fp32_t128x8x512u2_s6", "FP4"),
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6", "FP8"),
        ("nvfp4_gemm_cutlass", "FP4"),
        ("vectorized_elementwise_kernel<float4>", "FP32"),
        ("reshape_and_cache_flash<__hip_bfloat16, (vllm::Fp8KVCacheDataType)0>", "BF16"),
        ("reshape_and_cache_flash<__hip_bfloat16, (vllm::Fp8KVCacheDataType)1>", "FP8"),
    ],
)
def test_precision(name: str, precision: str | None) -> None:
    assert classify_precision(name) == precision


def test_predicate_is_called_once_per_distinct_name() -> None:
    calls = []

    def test(name: str) -> bool:
        calls.append(name)
        return name == "b"

    names = DictColumn(np.array([0, 1, 1, -1], dtype=np.int32), ["a", "b"])
    assert match_rows(names, test).tolist() == [False, True, True, False]
    assert calls == ["a", "b"]
