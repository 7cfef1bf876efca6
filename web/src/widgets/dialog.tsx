// Modal dialogs.
import { X } from "lucide";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { IconButton } from "./icon_button";

interface Props {
  /** Accessible name. */
  label: string;
  class: string;
  onClose: () => void;
  /** Key that closes it, in addition to Escape. */
  closeKey?: string;
  children: ComponentChildren;
}

export function Dialog({ label, class: name, onClose, closeKey, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  return (
    <dialog
      ref={dialog}
      class={name}
      aria-label={label}
      onClose={onClose}
      onKeyDown={(event) => { if (event.key === closeKey) onClose(); }}
      onClick={(event) => { if (closeKey !== undefined && event.target === dialog.current) onClose(); }}
    >
      {children}
    </dialog>
  );
}

/** Dialog with a heading and a button that closes it. */
export function ClosableDialog({ heading, children, ...props }: Props & { heading: ComponentChildren }) {
  return (
    <Dialog {...props}>
      <header>
        {heading}
        <IconButton icon={X} label="Close" size={18} onClick={props.onClose} />
      </header>
      {children}
    </Dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** Label of the confirmation button. */
  confirmLabel: string;
  onConfirm: () => void;
  onCancel: () => void;
  children: ComponentChildren;
}

export function ConfirmDialog({ title, confirmLabel, onConfirm, onCancel, children }: ConfirmProps) {
  return (
    <Dialog class="confirm" label={title} onClose={onCancel}>
      <h2>{title}</h2>
      {children}
      <div class="buttons">
        <button type="button" class="action" onClick={onCancel}>Cancel</button>
        <button type="button" class="action strong" onClick={onConfirm}>{confirmLabel}</button>
      </div>
    </Dialog>
  );
}
