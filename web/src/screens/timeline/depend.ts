import type { ReadonlySignal } from "@preact/signals";

/** Track signals as dependencies of the enclosing effect or computed value. */
export function dependOn(...signals: readonly ReadonlySignal<unknown>[]): void {
  signals.forEach((dependency) => dependency.value);
}
