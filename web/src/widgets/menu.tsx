// Button that opens a panel below it. It closes on Escape, on a click elsewhere, and after a choice.
import type { IconNode } from "lucide";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { addListeners } from "../base/listeners";
import { Icon } from "./icon";

interface Props {
  icon: IconNode;
  label: string;
  /** Show the label next to the icon. */
  hasText?: boolean;
  class?: string;
  testid?: string;
  /** Content, which can close the menu. */
  children: (close: () => void) => ComponentChildren;
}

export function Menu({ icon, label, hasText = false, class: name = "quiet", testid, children }: Props) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!open) return undefined;
    return addListeners(window, {
      pointerdown: (event) => { if (!root.current?.contains(event.target as Node)) setOpen(false); },
      focusin: (event) => { if (!root.current?.contains(event.target as Node)) setOpen(false); },
    });
  }, [open]);
  return (
    <div
      ref={root}
      class="menu"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        event.stopPropagation();
        close();
      }}
    >
      <button
        ref={button}
        type="button"
        class={name}
        title={label}
        aria-label={hasText ? undefined : label}
        aria-expanded={open}
        aria-haspopup="true"
        data-testid={testid}
        onClick={() => { setOpen(!open); }}
      >
        <Icon icon={icon} size={16} /> {hasText ? label : null}
      </button>
      {open ? <div class="menu-panel" role="group" aria-label={label}>{children(close)}</div> : null}
    </div>
  );
}
