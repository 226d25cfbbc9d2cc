#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws time and bus bandwidth over size as SVG, from the file that 'fluxccl perf ... --json FILE' writes.

    benchmarks/plot.py rows.json > rows.svg
"""

import json
import math
import sys
from xml.sax.saxutils import quoteattr, escape

COLOURS = "#3987e5 #e66b2e #2e9e6b #b964d0 #c2932b #d64f6f #2aa5b5 #7f8994".split()
STYLE = """<style>.ground{fill:#fff} text{fill:#1f2328} .grid{stroke:#d0d7de} .series{stroke-width:2;fill:none}
@media (prefers-color-scheme: dark){.ground{fill:#0d1117} text{fill:#e6edf3} .grid{stroke:#30363d}}</style>"""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 330, 70, 20, 28, 42


def axis(values, base, start, end):
    """Returns the powers of the base around the values, and the function that places a value."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = max(low + 1, math.ceil(math.log(max(values), base) - 1e-9))
    return range(low, high + 1), lambda v: start + (end - start) * (math.log(v, base) - low) / (high - low)


def size(power):
    return f"{2 ** (power % 10)}{('', 'K', 'M', 'G', 'T')[power // 10]}"


def text(x, y, content, anchor="start", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'


def chart(title, top, series):
    """Returns one chart with logarithmic axes; series are lists of (bytes, value) by name."""
    points = [point for line in series.values() for point in line]
    bottom = top + HEIGHT - BOTTOM
    x_powers, x = axis([p[0] for p in points], 2, LEFT, WIDTH - RIGHT)
    y_powers, y = axis([p[1] for p in points], 10, bottom, top + TOP)
    yield text(LEFT, top + 18, title)
    for power in x_powers[:: 1 + len(x_powers) // 12]:
        yield f'<path class="grid" d="M{x(2.0 ** power):.1f} {bottom}V{top + TOP}"/>'
        yield text(x(2.0**power), bottom + 18, size(power), "middle")
    for power in y_powers:
        yield f'<path class="grid" d="M{LEFT} {y(10.0 ** power):.1f}H{WIDTH - RIGHT}"/>'
        yield text(LEFT - 8, y(10.0**power) + 4, f"{10.0 ** power:g}", "end")
    for (name, line), colour in zip(series.items(), COLOURS * 9):
        places = " ".join(f"{x(b):.1f},{y(v):.1f}" for b, v in line)
        yield f'<polyline class="series" data-series={quoteattr(name)} stroke="{colour}" points="{places}"/>'
        for b, v in line:
            title = escape(f"{name}, {b} bytes: {v:.4g}")
            yield f'<circle cx="{x(b):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'


def main():
    rows = [row for row in json.load(open(sys.argv[1])) if row["bytes"] and row["busbw_gbs"] > 0]
    if not rows:
        sys.exit(f"{sys.argv[1]} has no rows with a size and a bandwidth, so there is nothing to draw")
    times, bandwidths = {}, {}
    for row in rows:
        kind = f" {row['dtype']}" + (f" {row['redop']}" if row["redop"] != "none" else "")
        for name, time in ("FluxCCL", row["time_us"]), (row.get("peer"), row.get("peer_time_us")):
            if time:
                times.setdefault(name + kind, []).append((row["bytes"], time))
                bandwidth = row["busbw_gbs"] * row["time_us"] / time
                bandwidths.setdefault(name + kind, []).append((row["bytes"], bandwidth))
    height = 40 + 2 * HEIGHT + 20 * (len(times) + 1)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">')
    print(STYLE, f'<rect class="ground" width="{WIDTH}" height="{height}"/>')
    print(text(20, 26, f"{rows[0]['op']}, {rows[0]['ranks']} ranks", size=16))
    print(*chart("time (us)", 40, times), *chart("bus bandwidth (GB/s)", 40 + HEIGHT, bandwidths), sep="\n")
    for i, (name, colour) in enumerate(zip(times, COLOURS * 9)):
        y = 50 + 2 * HEIGHT + 20 * i
        print(f'<path class="series" stroke="{colour}" d="M{LEFT} {y}h30"/>', text(LEFT + 40, y + 4, name))
    print("</svg>")


if __name__ == "__main__":
    main()
