// Views that the server has, among them those of installed packages.
import { computed, signal } from "@preact/signals";

import { get } from "../base/client";
import { describeViews, type OpenApi, type ViewDescription } from "./schema";

const views = signal<readonly ViewDescription[] | null>(null);

/** All views; empty until the server has described them. */
export const describedViews = computed(() => views.value ?? []);
/** The server has described its views, or failed to. */
export const areViewsKnown = computed(() => views.value !== null);

/** Request the views, once: the server does not change them while it runs. */
export async function loadViews(): Promise<void> {
  try {
    views.value = describeViews(await get<OpenApi>("/api/openapi.json"));
  } catch {
    views.value = []; // the requests of the screens report why the server does not respond
  }
}
