"""Reliability plot: share of correct answers by stated confidence. Plain SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarks.diagnosis.scoring import Bin, Calibration

SIZE, MARGIN = 360, 46
COLOURS = ("#0072b2", "#d55e00", "#009e73")
"""Color-blind-safe palette of Okabe and Ito."""


def plot_reliability(curves: Mapping[str, Calibration]) -> str:
    """Draw one curve per name as an SVG file.

    The area of a dot is proportional to its number of answers. Above the diagonal, the share of
    correct answers exceeds the stated confidence.
    """
    parts = [_frame()]
    for index, (name, calibration) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(
            f"{_x(b.stated_ratio):.1f},{_y(b.right_ratio):.1f}" for b in calibration.bins
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        parts += [_dot(point, colour) for point in calibration.bins]
        parts.append(_text(MARGIN + 12, MARGIN + 18 * (index + 1), name, colour))
    size = SIZE + MARGIN + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _x(ratio: float) -> float:
    return MARGIN + ratio * (SIZE - MARGIN)


def _y(ratio: float) -> float:
    return SIZE - ratio * (SIZE - MARGIN)


def _frame() -> str:
    lines = [
        f'<path d="M{_x(0)},{_y(1)}V{_y(0)}H{_x(1)}" fill="none" stroke="#555"/>',
        f'<path d="M{_x(0)},{_y(0)}L{_x(1)},{_y(1)}" stroke="#aaa" stroke-dasharray="4 4"/>',
        _text((_x(0) + _x(1)) / 2 - 60, SIZE + 38, "stated confidence", "#333"),
        f'<g transform="rotate(-90 14 {SIZE / 2 + 40})">'
        + _text(14, SIZE / 2 + 40, "share of correct answers", "#333")
        + "</g>",
    ]
    for tenths in range(0, 11, 2):
        ratio = tenths / 10
        lines.append(_text(_x(ratio) - 10, SIZE + 18, f"{ratio:.0%}", "#555"))
        lines.append(_text(MARGIN - 36, _y(ratio) + 4, f"{ratio:.0%}", "#555"))
    return "\n".join(lines)


def _dot(b: Bin, colour: str) -> str:
    radius = 2 + math.sqrt(b.count)
    title = f"{b.count} answers: stated {b.stated_ratio:.0%}, right {b.right_ratio:.0%}"
    return (
        f'<circle cx="{_x(b.stated_ratio):.1f}" cy="{_y(b.right_ratio):.1f}" '
        f'r="{radius:.1f}" fill="{colour}" fill-opacity="0.6"><title>{title}</title></circle>'
    )


def _text(x: float, y: float, words: str, colour: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}">{words}</text>'
