// Changes as text with their sign.
import { number } from "../../base/format";
import { inUnit } from "../../base/format_field";

export function signed(ns: number): string {
  return `${ns > 0 ? "+" : ""}${inUnit(ns, "ns")}`;
}

export function signedRatio(ratio: number | null): string {
  return ratio === null ? "n/a" : `${ratio > 0 ? "+" : ""}${number(100 * ratio, 1)} %`;
}

export function Noise({ beyond, worse }: { beyond: boolean; worse: boolean }) {
  if (!beyond) return <span class="sign-word quiet">within noise</span>;
  return <span class={`sign-word ${worse ? "bad" : "good"}`}><span aria-hidden="true">{worse ? "▲" : "▼"}</span> {worse ? "slower" : "faster"}</span>;
}
