"""The plots of the page as inline SVG, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from .findings import Row

_WIDTH, _HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 44
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "4 2", "1 2")


def plot(
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    x_label: str,
    y_label: str,
    *,
    mark: tuple[float, float, str] | None = None,
    log_x: bool = False,
) -> str:
    """A line plot of at most six (name, x, y), its y axis logarithmic, with one point (x, y, text) marked.

    Points that a logarithm cannot show are left out.
    """
    shown = [
        (name, [(x, y) for x, y in zip(xs, ys, strict=True) if y > 0 and (x > 0 or not log_x)])
        for name, xs, ys in series
    ]
    x_axis = Axis([x for _, points in shown for x, _ in points], _LEFT, _WIDTH - _RIGHT, log_x)
    y_axis = Axis([y for _, points in shown for _, y in points], _HEIGHT - _BOTTOM, _TOP, True)
    names = ", ".join(name for name, _ in shown)
    out = _frame(x_axis, y_axis, x_label, y_label, f"{y_label} against {x_label}: {names}", 16 * len(shown))
    for n, (name, points) in enumerate(shown):
        path = "M" + "L".join(f"{x_axis(x):.1f} {y_axis(y):.1f}" for x, y in points)
        dash = f' stroke-dasharray="{_DASHES[n % 6]}"' if _DASHES[n % 6] else ""
        out.append(f'<g class="s{n % 6}"><path class="series"{dash} d="{path}"/>')
        if len(shown) > 1:
            line = _HEIGHT + 16 * n + 8
            out.append(f'<path class="series"{dash} d="M{_LEFT} {line - 4}h34"/>')
            out.append(f'<text class="name" x="{_LEFT + 42}" y="{line}">{escape(name)}</text>')
        out.append("</g>")
    if mark is not None:
        x, y = x_axis(mark[0]), y_axis(mark[1])
        right = x > 0.7 * _WIDTH  # the text goes where there is room
        at = f'x="{x + (-9 if right else 9):.1f}" y="{max(y - 7, _TOP + 12):.1f}"'
        out.append(f'<g class="s1"><circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>')
        out.append(f'<text {at} text-anchor="{"end" if right else "start"}">{escape(mark[2])}</text>')
    return "".join(out) + "</svg>"


def _frame(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str, label: str, below: int = 0) -> list[str]:
    """The opening of a plot: its axes, ticks and their labels, with so many pixels left below them."""
    out = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + below}" role="img" aria-label="{escape(label)}">']
    for value, text in x_axis.ticks():
        x = x_axis(value)
        out.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        out.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">{text}</text>')
    for value, text in y_axis.ticks():
        y = y_axis(value)
        out.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        out.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    out.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>')
    centre, middle = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + _HEIGHT - _BOTTOM) / 2
    out.append(f'<text x="{centre}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="rotate(-90 13 {middle})"'
    out.append(f'<text x="13" y="{middle}" text-anchor="middle" {turned}>{escape(y_label)}</text>')
    return out


def quality_against_time(rows: Sequence[Row], blurred: float) -> tuple[str, int]:
    """Every method as a point, PSNR over seconds, and how many were left out: 3 dB below the blurred picture.

    Those that no other beats in both are named. The plot is an empty text if fewer than two points remain.
    """
    points = sorted(
        ((row.setup_s or 0) + row.solve_s, row.psnr, row.label)
        for row in rows
        if row.psnr is not None and math.isfinite(row.psnr) and row.solve_s
    )
    shown = [point for point in points if point[1] >= blurred - 3]
    if len(shown) < 2:
        return "", len(points) - len(shown)
    x_axis = Axis([0.7 * shown[0][0], *(1.4 * x for x, _, _ in shown)], _LEFT, _WIDTH - _RIGHT, True)
    values = [blurred, *(y for _, y, _ in shown)]
    room = 0.06 * (max(values) - min(values))
    y_axis = Axis([min(values) - room, max(values) + 2 * room], _HEIGHT - _BOTTOM, _TOP, False)
    out = _frame(
        x_axis, y_axis, "seconds, set-up and solve", "PSNR dB", "PSNR against seconds of each method"
    )
    level = y_axis(blurred)
    out.append(f'<path class="axis" stroke-dasharray="4 3" d="M{_LEFT} {level:.1f}H{_WIDTH - _RIGHT}"/>')
    out.append(f'<text x="{_WIDTH - _RIGHT - 4}" y="{level - 4:.1f}" text-anchor="end">blurred</text>')
    best, lowest = -math.inf, math.inf
    for seconds, psnr, label in shown:
        x, y = x_axis(seconds), y_axis(psnr)
        unbeaten = psnr > best + 0.005  # all that came before were faster
        colour, radius = ("s0", 5) if unbeaten else ("s1", 3.5)
        out.append(
            f'<g class="{colour}"><circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
            f"<title>{escape(label)}: {psnr:.2f} dB, {seconds:.3g} s</title></circle></g>"
        )
        if unbeaten:
            best = psnr
            right = x > 0.6 * _WIDTH
            height = min(y - 8, lowest - 13)  # above the name before it
            lowest = height
            out.append(
                f'<text x="{x + (4 if right else -4):.1f}" y="{max(height, _TOP + 9):.1f}" '
                f'text-anchor="{"end" if right else "start"}">{escape(label)}</text>'
            )
    return "".join(out) + "</svg>", len(points) - len(shown)


class Axis:
    """Values to pixels."""

    def __init__(self, values: Iterable[float], start: float, end: float, log: bool) -> None:
        self.log, self.start, self.end = log, start, end
        numbers = [self._scale(v) for v in values] or [0.0, 1.0]
        self.low, self.high = min(numbers), max(numbers)
        if self.high - self.low < 1e-9:
            self.low, self.high = self.low - 0.5, self.high + 0.5

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        return self.start + (self._scale(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """At most six round values with their texts."""
        span = self.high - self.low
        if self.log and span >= 1.5:
            step = math.ceil(span / 5)
            exponents = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1, step)
            return [(10.0**e, f'10<tspan dy="-5" font-size="9">{e}</tspan>') for e in exponents]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        step = 10 ** math.floor(math.log10((high - low) / 3))
        step *= next(f for f in (5, 2, 1) if (high - low) / (f * step) >= 2)
        first = math.ceil(low / step - 1e-9)
        return [(k * step, f"{k * step:.4g}") for k in range(first, math.floor(high / step + 1e-9) + 1)]
