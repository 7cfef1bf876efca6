// Confirmation dialog.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  /** Label of the confirmation button. */
  confirmLabel: string;
  onConfirm: () => void;
  onCancel: () => void;
  children: ComponentChildren;
}

export function ConfirmDialog({ title, confirmLabel, onConfirm, onCancel, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} class="confirm" aria-label={title} onClose={onCancel}>
      <h2>{title}</h2>
      {children}
      <div class="buttons">
        <button type="button" class="action" onClick={onCancel}>Cancel</button>
        <button type="button" class="action strong" onClick={onConfirm}>{confirmLabel}</button>
      </div>
    </dialog>
  );
}
