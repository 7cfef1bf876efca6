import { describe, expect, test } from "vitest";

import { bytes, inNamedUnit, inUnit, knownUnit, title, unitOf, unitSign } from "./format_field";

describe("names of fields", () => {
  test("end in their unit", () => {
    expect(unitOf("host_self_ns")).toBe("ns");
    expect(unitOf("achieved_bytes_per_s")).toBe("bytes_per_s");
    expect(unitOf("name")).toBe("none");
    expect(title("host_self_ns")).toBe("host self");
    expect(title("bytes")).toBe("bytes");
  });
});

describe("values", () => {
  test("have three digits in the largest unit", () => {
    expect(inUnit(1_234_567, "ns")).toBe("1.23 ms");
    expect(bytes(3 * 2 ** 30)).toBe("3 GiB");
    expect(inUnit(5.516e12, "flop")).toBe("5.52 TFLOP");
    expect(inUnit(0.0004, "ratio")).toBe("<0.1 %");
    expect(inUnit(Number.NaN, "ns")).toBe("n/a");
  });

  test("of units by name have a sign, or a form of their own", () => {
    expect(inNamedUnit(250.123, "watt")).toBe("250.1 W");
    expect(inNamedUnit(0.5, "ratio")).toBe("50.0 %");
    expect(inNamedUnit(null, "watt")).toBe("n/a");
    expect(knownUnit("bitmask")).toBe("none");
    expect(unitSign("count")).toBe("");
  });
});
