// Folded part of a screen, built when it is opened.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface Props {
  title: string;
  /** What is inside. */
  about: string;
  testid?: string;
  isOpen?: boolean;
  onToggle?: (isOpen: boolean) => void;
  children: ComponentChildren;
}

export function Fold({ title, about, testid, isOpen: isInitiallyOpen = false, onToggle, children }: Props) {
  const [isOpen, setOpen] = useState(isInitiallyOpen);
  const toggle = (open: boolean): void => {
    setOpen(open);
    onToggle?.(open);
  };
  return (
    <details class="fold" data-testid={testid} open={isOpen} onToggle={(event) => { if (event.target === event.currentTarget) toggle(event.currentTarget.open); }}>
      <summary>{title} <span class="muted">{about}</span></summary>
      {isOpen ? children : null}
    </details>
  );
}
