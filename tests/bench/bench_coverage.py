"""How often the intervals of a report hold the truth, and how seldom its sentences and its advice are false, by drawing
tables whose truth is known; then what a report says of tables that mislead. Writes runs/bench/coverage.json.

Run by hand for less: `python -m tests.bench.bench_coverage --draws 100 --kind advice`.
"""

from __future__ import annotations

import argparse
import sys
import time
from zlib import crc32

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from tests.bench import coverage_advice, coverage_settings, results
from tests.bench.coverage_settings import Kind, Setting
from tests.known_truth import all_told

AGAIN, WORST = 4, 3
"""So many settings that came out worst are drawn anew, so many times as often: the least of many is luck as well."""
WANTED = 0.94
"""The bench fails where the least share of a kind, drawn anew, lies below this by more than two Monte-Carlo errors."""


def measured(setting: Setting, draws: int, again: bool = False) -> tuple[float, float]:
    """Share of the draws in which what was said is true, and mean half width in points of the draws
    that have one."""
    random = np.random.default_rng([crc32(setting.name.encode()), again])
    found = np.array([setting.draw(random) for _ in range(draws)], dtype=float)
    widths = found[~np.isnan(found[:, 1]), 1]
    return float(found[:, 0].mean()), float(widths.mean()) if len(widths) else np.nan


def row(kind: Kind, draws: int) -> dict[str, object]:
    number = max(100, round(kind.share * draws))
    began = time.process_time()
    found = [measured(setting, number) for setting in tqdm(kind.settings, kind.what, mininterval=1)]
    shares, widths = np.array(found).T
    candidates = [kind.settings[place] for place in shares.argsort(kind="stable")[:WORST]]
    least, name = min((measured(each, AGAIN * number, again=True)[0], each.name) for each in candidates)
    error = float(np.sqrt(max(least * (1 - least), 1 / AGAIN / number) / (AGAIN * number)))
    return {
        "over": kind.over,
        "settings": len(found),
        "draws": number,
        "least_share": least,
        "error_share": error,
        "short": least + 2 * error < WANTED,
        "setting": name,
        "median_share": float(np.median(shares)),
        "half_width": float(np.nanmean(widths)) if np.isfinite(widths).any() else np.nan,
        "seconds": time.process_time() - began,
    }


def shown(figures: dict[str, dict[str, object]]) -> Table:
    table = Table("what", "over", "settings × draws", "least % true", "there", "median", "± points")
    for what, found in figures.items():
        width = float(found["half_width"])  # type: ignore[arg-type]
        table.add_row(
            what,
            str(found["over"]),
            f"{found['settings']} × {found['draws']}",
            f"{100 * found['least_share']:.1f} ± {100 * found['error_share']:.1f}",  # type: ignore[operator]
            str(found["setting"]),
            f"{100 * found['median_share']:.1f}",  # type: ignore[operator]
            "" if np.isnan(width) else f"{width:.1f}",
        )
    return table


def main(options: argparse.Namespace) -> int:
    figures: dict[str, dict[str, object]] = {}
    for kind in [*coverage_settings.kinds(), *coverage_advice.kinds()]:
        if any(name in kind.what for name in options.kind):
            figures[kind.what] = row(kind, options.draws)
            results.write("coverage", figures)
    console = Console(soft_wrap=True, width=200)
    console.print(shown(figures))
    for told in all_told():
        console.print(f"| {told.what} | {told.truth} | {told.said} |", markup=False)
    short = [what for what, found in figures.items() if found["short"]]
    for what in short:
        console.print(f"{what}: true in fewer than {WANTED:.0%}, where it is least")
    return int(bool(short))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500, help="of each setting; a kind that takes long has fewer")
    parser.add_argument("--kind", nargs="*", default=[""], help="only kinds whose name holds one of these")
    sys.exit(main(parser.parse_args()))
