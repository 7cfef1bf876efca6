import { expect, test } from "vitest";

import type { ViewDescription } from "../state/schema";
import { JOBS, SCREENS, missingScreens, otherScreens, screenOf } from "./screens";

const view = (name: string): ViewDescription => ({ name, title: name.toUpperCase() }) as ViewDescription;

test("views that no screen draws have a screen of their own", () => {
  const screens = otherScreens([view("kernels"), view("gpu-time"), view("queues")]);
  expect(screens.map(({ name, title, group }) => [name, title, group])).toEqual([["queues", "QUEUES", "more"]]);
});

test("screens are found by their name, or by that of a view that they draw", () => {
  const screens = [...SCREENS, ...otherScreens([view("queues")])];
  const names = ["", "gpu", "gpu-time", "system-series", "queues", "none"].map((name) => screenOf(name, screens)?.name);
  expect(names).toEqual([JOBS.name, "gpu", "gpu", "system", "queues", undefined]);
});

test("a screen without data has the reason of its first view", () => {
  const screens = [...SCREENS, ...otherScreens([view("queues"), view("tables")])];
  const missing = missingScreens(screens, [{ name: "gpu-time", reason: "no device" }, { name: "idle", reason: "no gap" }, { name: "queues", reason: "no queue" }]);
  expect([...missing].map(([{ name }, reason]) => [name, reason])).toEqual([["gpu", "no device"], ["queues", "no queue"]]);
});

test("no view is drawn by two screens", () => {
  const views = SCREENS.flatMap((entry) => entry.views ?? []);
  expect(new Set(views).size).toBe(views.length);
});
