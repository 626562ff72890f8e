#!/usr/bin/env python3
"""Draws docs/headline.svg from what two experiments measured:

slackwater bench target --disturb 5% --rates 10k --queries filter --targets 20 --json target.json
slackwater bench nexmark --json nexmark.json
python3 tools/headline/headline.py target.json nexmark.json > docs/headline.svg
"""

import json
import sys

RATE_PER_S = 10_000
OWN = "auto:20ms"
SETTINGS = [(OWN, "Slackwater"), ("hand", "by hand, blocking reads"), ("interrupt", "waiting for interrupts")]
QUERIES = [
    ("q0", "q0, pass through"),
    ("q4", "q4, join, aggregates"),
    ("q5", "q5, sliding windows"),
    ("q7", "q7, window maximum"),
    ("q8", "q8, window join"),
]
TITLE = "CPU time of Slackwater compared with other ways to wait, and with Apache Flink"
STYLE = (
    ".g{fill:#fff}.t{fill:#1f2328}.m{fill:#57606a;font-size:12px}.b{font-weight:bold}"
    ".own{fill:#15803d}.other{fill:#8c959f}.disturbed{opacity:.55}"
    "@media (prefers-color-scheme:dark){.g{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#8d96a0}"
    ".own{fill:#3fb950}.other{fill:#6e7681}}"
)
WIDTH, BAR_MAX = 860, 176


def text(x, y, words, kind="t", end=False):
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{anchor}>{words}</text>'


def bar(x, y, width, height, kind):
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}"/>'


def shown(disturbance):
    """A disturbance in words."""
    match disturbance:
        case "none":
            return "none"
        case {"bursts": percent}:
            return f"{percent:g} %"
    raise SystemExit(f"the picture is of bursts, not of {disturbance}")


def target_percent(figures, setting, disturbance):
    """The CPU time of a setting at the rate of the picture, in % of a core."""
    for one in figures["measured"]:
        is_it = (one["setting"], one["query"], one["rate_per_s"]) == (setting, "filter", RATE_PER_S)
        if is_it and shown(one["disturbance"]) == disturbance:
            return one["percent"]["median"]
    raise SystemExit(f"no point of {setting} at {RATE_PER_S} records/s, disturbed: {disturbance}")


def targets(figures):
    """The left half: each setting on a quiet and on a disturbed machine."""
    names = list(dict.fromkeys(shown(one["disturbance"]) for one in figures["measured"]))
    if len(names) != 2:
        raise SystemExit(f"the picture needs one disturbance besides none, found {names}")
    quiet, disturbed = names
    lines = [
        text(10, 26, "CPU time to meet a 20 ms latency target", "t b"),
        text(10, 46, "% of a core; 10,000 records/s in and out over TCP;", "m"),
        text(10, 62, f"pale: others take the cores in bursts, {disturbed} of the time", "m"),
    ]
    rows = [(setting, name, [target_percent(figures, setting, under) for under in (quiet, disturbed)])
            for setting, name in SETTINGS]
    most = max(max(percents) for _, _, percents in rows)
    for number, (setting, name, percents) in enumerate(rows):
        y = 80 + 48 * number
        kind, bold = ("own", "t b") if setting == OWN else ("other", "t")
        lines.append(text(170, y + 22, name, bold, end=True))
        for half, percent in enumerate(percents):
            width = BAR_MAX * percent / most
            pale = " disturbed" if half else ""
            lines.append(bar(178, y + 18 * half, width, 16, kind + pale))
            lines.append(text(184 + width, y + 13 + 18 * half, f"{percent:.2f} %", bold))
    return lines


def nexmark(figures):
    """The right half: events per CPU second against Flink's."""
    ratios = {}
    for one in figures["queries"]:
        if one["input"] == "json" and one["parallelism"] == 1 and one["flink"]:
            ratios[one["query"]] = one["flink"]["ratio"]["median"]
    missing = [query for query, _ in QUERIES if query not in ratios]
    if missing:
        raise SystemExit(f"Flink has not run {', '.join(missing)}")
    mean = 1.0
    for ratio in ratios.values():
        mean *= ratio ** (1 / len(ratios))
    lines = [
        text(440, 26, "Nexmark events per CPU second", "t b"),
        text(440, 46, "multiples of Apache Flink 2.2 with the same SQL,", "m"),
        text(440, 62, "from JSON, without Flink’s start-up", "m"),
    ]
    rows = [(name, ratios[query], "t") for query, name in QUERIES]
    rows.append((f"mean of {len(ratios)} queries", mean, "t b"))
    most = max(ratio for _, ratio, _ in rows)
    for number, (name, ratio, kind) in enumerate(rows):
        y = 80 + 28 * number
        width = BAR_MAX * ratio / most
        lines += [
            text(600, y + 16, name, kind, end=True),
            bar(608, y, width, 22, "own"),
            text(614 + width, y + 16, f"{ratio:.1f} ×", "t b"),
        ]
    return lines


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    target_figures, nexmark_figures = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
    lines = targets(target_figures) + nexmark(nexmark_figures)
    height = 256
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" font-family="sans-serif" font-size="13">'
    )
    print(f"<title>{TITLE}</title>\n<style>{STYLE}</style>")
    print(f'<rect class="g" width="{WIDTH}" height="{height}"/>')
    print("\n".join(lines))
    print("</svg>")


if __name__ == "__main__":
    main()
