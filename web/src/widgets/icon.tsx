// Lucide icons; used next to text, or with a label on the parent.
import type { IconNode } from "lucide";
import { h } from "preact";

export function Icon({ icon, size = 18 }: { icon: IconNode; size?: number }) {
  return (
    <svg
      class="icon"
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="2"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {icon.map(([tag, attributes], index) => h(tag, { key: index, ...attributes }))}
    </svg>
  );
}
