import { expect, test } from "vitest";

import { shortName } from "./short_name";

test.each([
  ["void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8>(Params)", "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8"],
  ["void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>)", "vectorized_elementwise_kernel: CUDAFunctor_add"],
  ["void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)", "vectorized_layer_norm_kernel"],
  ["void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>, false>(Params)", "flash_fwd_kernel"],
  ["transformers/models/bert/modeling_bert.py(1306): forward", "modeling_bert.py(1306): forward"],
  ["autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"],
  ["aten::addmm", "aten::addmm"],
  ["Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"],
  ["ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"],
  ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"],
  ["triton_poi_fused_add_0", "triton_poi_fused_add_0"],
  ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"],
])("%s", (name, short) => {
  expect(shortName(name)).toBe(short);
});
