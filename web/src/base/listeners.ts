// Event listeners that are attached and detached together.

type Listeners<Events> = { [Name in keyof Events]?: (event: Events[Name]) => void };

/** Attach listeners, which may prevent defaults, and return a function that detaches them. */
export function addListeners(target: HTMLElement, listeners: Listeners<HTMLElementEventMap>): () => void;
export function addListeners(target: Window, listeners: Listeners<WindowEventMap>): () => void;
export function addListeners(target: EventTarget, listeners: object): () => void {
  const entries = Object.entries(listeners) as [string, EventListener][];
  for (const [name, listener] of entries) target.addEventListener(name, listener, { passive: false });
  return () => {
    for (const [name, listener] of entries) target.removeEventListener(name, listener);
  };
}
