// Pies of operator self time.
import type { Pie } from "../../api/report";
import type { OperatorGroup } from "../../api/views";
import { pieOfShares } from "../../charts/from_payload";

/** Pies of device and host self time, without those that have no data. */
export function operatorPies(rows: readonly OperatorGroup[]): Pie[] {
  return [
    pieOfShares("Device self time", "device self time of all operators", rows.map((row) => [row.name, row.device_self_ratio])),
    pieOfShares("Host self time", "host self time of all operators", rows.map((row) => [row.name, row.host_self_ratio])),
  ].filter((pie) => pie.slices.length > 0);
}
