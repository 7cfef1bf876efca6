// Button with an icon only: its label is read out, and is its tooltip.
import type { IconNode } from "lucide";

import { Icon } from "./icon";

interface Props {
  icon: IconNode;
  label: string;
  /** Tooltip, if it says more than the label. */
  title?: string;
  /** Key that does the same. */
  shortcut?: string;
  size?: number;
  class?: string;
  /** State of a button that stays pressed. */
  pressed?: boolean | undefined;
  /** State of a button that opens something. */
  expanded?: boolean | undefined;
  tabIndex?: number;
  onClick: (event: MouseEvent) => void;
}

export function IconButton({ icon, label, title = label, shortcut, size = 15, class: name = "quiet", pressed, expanded, tabIndex, onClick }: Props) {
  return (
    <button
      type="button"
      class={pressed === true ? `${name} on` : name}
      title={shortcut === undefined ? title : `${title} (${shortcut})`}
      aria-label={label}
      aria-pressed={pressed}
      aria-expanded={expanded}
      tabIndex={tabIndex}
      onClick={onClick}
    >
      <Icon icon={icon} size={size} />
    </button>
  );
}
