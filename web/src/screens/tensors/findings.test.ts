// @vitest-environment jsdom
import { expect, test } from "vitest";

import type { RecordedTensor, TensorOfFinding } from "../../api/views";
import { isNamed, recordsText } from "./findings";

const NAMED: TensorOfFinding = { name: "fc", rank: null, mode: "TRAIN", first_step: 3, violation_count: 1, record_count: 2000 };

function recorded(name: string, rank: number | null, mode = "TRAIN"): RecordedTensor {
  return {
    name, rank, mode, collection: "weights", shape: "2", dtype: "float32", record_count: 1, step: 0, mean: null, standard_deviation: null,
    min: null, max: null, l2: null, zero_ratio: null, update_ratio: null, non_finite_count: null, l2_by_step: [], rules: [],
  };
}

test("a finding names a tensor of its name, mode and rank; a job without ranks is rank 0", () => {
  expect(isNamed(NAMED, recorded("fc", 3))).toBe(true);
  expect(isNamed({ ...NAMED, rank: 0 }, recorded("fc", null))).toBe(true);
  expect(isNamed({ ...NAMED, rank: 1 }, recorded("fc", null))).toBe(false);
  expect(isNamed(NAMED, recorded("fc", 3, "EVAL"))).toBe(false);
  expect(isNamed(NAMED, recorded("fc.bias", 3))).toBe(false);
});

test("records are counted only where the rule counts them", () => {
  expect(recordsText(NAMED)).toBe(", in 1 of 2,000 records");
  expect(recordsText({ violation_count: null, record_count: null })).toBe("");
});
