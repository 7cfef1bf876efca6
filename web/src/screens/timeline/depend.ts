import type { ReadonlySignal } from "@preact/signals";

/** Runs the effect or computation around this again when one of these has changed. */
export function dependOn(...signals: readonly ReadonlySignal<unknown>[]): void {
  signals.forEach((dependency) => dependency.value);
}
