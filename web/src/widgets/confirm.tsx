// A question before something is done.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  /** What the button that does it is called. */
  action: string;
  onGo: () => void;
  onCancel: () => void;
  children: ComponentChildren;
}

export function Confirm({ title, action, onGo, onCancel, children }: Props) {
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
        <button type="button" class="action strong" onClick={onGo}>{action}</button>
      </div>
    </dialog>
  );
}
