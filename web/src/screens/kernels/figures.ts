// Pies of kernel time: by name, and by use of Tensor Cores.
import type { Pie } from "../../api/report";
import type { KernelGroup, TraceKernels } from "../../api/views";
import { pieOfShares } from "../../charts/from_payload";

export function kernelPies(rows: readonly KernelGroup[], trace: TraceKernels): Pie[] {
  const { tensor_core_ratio, unknown_tensor_core_ratio } = trace;
  const unknown_ratio = unknown_tensor_core_ratio ?? 0;
  const share_of = "total kernel time";
  return [
    pieOfShares("Kernels by time", share_of, rows.map((row) => [row.name, row.share_ratio])),
    ...(tensor_core_ratio === null
      ? []
      : [
          {
            kind: "pie" as const,
            title: "Tensor Cores",
            share_of,
            slices: [
              { name: "on Tensor Cores", share_ratio: tensor_core_ratio },
              { name: "unknown", share_ratio: unknown_ratio },
              { name: "other", share_ratio: 1 - tensor_core_ratio - unknown_ratio },
            ],
          },
        ]),
  ];
}
