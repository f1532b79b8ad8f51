"""The tables and the figure of docs/load.md, from docs/load.csv:

python -m tests.bench.load_page --write               # put the tables into the page, and draw docs/load.png
python -m tests.bench.load_page --simulate --write    # first simulate again, from the shipped scores; minutes
python -m tests.bench.load_page --take runs/bench/load.json 2026-11-27 --write    # first take what bench_load measured
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.serving.levels import EFFORTS
from elastic_core.serving.simulation import Replay
from tests.bench.bench_load import ELASTIC, LARGE_REPLICAS, LOADS, REFUSING, large
from tests.pictures import redraw

ROOT = Path(__file__).parents[2]
PAGE, FIGURE, DATA = (ROOT / "docs" / f"load.{suffix}" for suffix in ("md", "png", "csv"))
SCORES, MODEL = ROOT / "reports" / "example" / "scores.parquet", "trained@1"
LEVELS = {"minimal": 0, "low": 48, "medium": 96, "high": 192}
"""Thinking budgets of the simulated levels, in tokens; the last is the largest that the scores have."""
WAYS = (*EFFORTS, REFUSING, ELASTIC)
MEASURED, EARLIER = "2026-11-27", "2026-11-25"
SIMULATED = ("Poisson", "bursty")
FIGURES = ("right_share", "right_low_share", "right_high_share", "late_share", "p95_seconds", "oracle_share")
SCHEMA = {"run": pl.String, "load": pl.Float64, "way": pl.String} | dict.fromkeys(FIGURES, pl.Float64)
Rows = Mapping[tuple[float, str], Mapping[str, float]]


def rows_of(run: str) -> Rows:
    """The figures of a run, by load and way."""
    rows = pl.read_csv(DATA, schema=SCHEMA).filter(run=run).to_dicts()
    return {(row["load"], row["way"]): row for row in rows}


def keep(run: str, found: Mapping[tuple[float, str], Mapping[str, Any]]) -> None:
    """Replace a run's rows."""
    rows = [
        {"run": run, "load": load, "way": way} | {name: figures.get(name) for name in FIGURES}
        for (load, way), figures in found.items()
    ]
    others = pl.read_csv(DATA, schema=SCHEMA).filter(pl.col("run") != run)
    new = pl.DataFrame(rows, SCHEMA).with_columns(pl.col(FIGURES).round(4))
    pl.concat([others, new]).sort("run", "load", maintain_order=True).write_csv(DATA)


def simulate_again() -> None:
    replay = Replay.of(pl.read_parquet(SCORES).filter(model=MODEL))
    found: dict[str, dict[tuple[float, str], Any]] = {run: {} for run in SIMULATED}
    for arriving, load, way, figures, best in large(replay, LEVELS):
        found[arriving][load, way] = figures | {"oracle_share": best}
    for run, rows in found.items():
        keep(run, rows)


def take(file: Path, run: str) -> None:
    """The cells of a real server that bench_load left in a file."""
    cells = {tuple(key.split()): figures for key, figures in json.loads(file.read_text()).items()}
    keep(run, {(float(key[0]), key[1]): figures for key, figures in cells.items() if len(key) == 2})


def percent(row: Mapping[str, float] | None, interval: bool = True) -> str:
    if row is None:
        return ""
    mean, low, high = (100 * row[f"right{part}_share"] for part in ("", "_low", "_high"))
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]" if interval and mean else f"{mean:.1f}"


def measured_table(run: str) -> list[tuple[str, ...]]:
    rows = rows_of(run)
    ways = [way for way in WAYS if any(way == each for _, each in rows)]
    lines = [("load", *ways, "elastic: late, p95")]
    for load in sorted({load for load, _ in rows}):
        last = rows[load, ELASTIC]
        late = f"{100 * last['late_share']:.1f} %, {last['p95_seconds']:.2f} s"
        lines.append((str(load), *(percent(rows.get((load, way))) for way in ways), late))
    return lines


def simulated_table() -> list[tuple[str, ...]]:
    lines = [("arrivals", "load", *WAYS, "elastic: late", "limit, load known")]
    for run in SIMULATED:
        rows = rows_of(run)
        for load in LOADS:
            last = rows[load, ELASTIC]
            ends = (f"{100 * last['late_share']:.1f} %", f"{100 * last['oracle_share']:.1f}")
            lines.append((run, str(load), *(percent(rows[load, way], False) for way in WAYS), *ends))
    return lines


def page_with_tables(text: str) -> str:
    """The page with every table replaced that has the heading of one of ours."""
    for lines in (measured_table(MEASURED), measured_table(EARLIER), simulated_table()):
        heading, *rest = (re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(line)} |") for line in lines)
        table = "\n".join([heading, "|---" * len(lines[0]) + "|", *rest]) + "\n"
        text, found = re.subn(rf"^{re.escape(heading)}\n(?:\|.*\n)+", lambda _, new=table: new, text, flags=re.M)
        assert found == 1, f"{found} tables with the heading {heading}"
    return text


def draw(target: Path) -> None:
    """Right answers in time over load, by way: the newest measured run, and the simulation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    titles = ("miniature, a real server", f"as of 7B on {LARGE_REPLICAS} GPUs, simulated")
    for axis, run, title in zip(axes, (MEASURED, SIMULATED[0]), titles, strict=True):
        rows = rows_of(run)
        for place, way in enumerate(WAYS):
            loads = [load for load in LOADS if (load, way) in rows]
            right = [[100 * rows[load, way][f"right{part}_share"] for load in loads] for part in ("", "_low", "_high")]
            mean, low, high = right
            bars = [[m - e for m, e in zip(mean, low, strict=True)], [e - m for m, e in zip(mean, high, strict=True)]]
            style = {"linewidth": 2.5 if way == ELASTIC else 1.2, "color": f"C{place}", "marker": "os^Dvx"[place]}
            axis.errorbar(loads, mean, bars, label=way, capsize=2, markersize=4, **style)
        known = [
            (load, 100 * row["oracle_share"])
            for (load, way), row in rows.items()
            if row["oracle_share"] and way == ELASTIC
        ]
        if known:
            axis.plot(*zip(*known, strict=True), ":", color="gray", label="limit, load known")
        axis.set(title=title, xlabel="load (1 = the server's capacity at high)", ylim=(-4, 104))
    axes[0].set_ylabel("right within the goal (%)")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.set_dpi(110)
    FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="simulate again, from the shipped scores")
    parser.add_argument("--take", nargs=2, metavar=("FILE", "RUN"), help="take a run's cells from a file of bench_load")
    parser.add_argument("--write", action="store_true", help="put the tables into the page, and draw the figure")
    arguments = parser.parse_args()
    if arguments.take:
        take(Path(arguments.take[0]), arguments.take[1])
    if arguments.simulate:
        simulate_again()
    if arguments.write:
        PAGE.write_text(page_with_tables(PAGE.read_text()))
        redraw(draw, DATA, FIGURE)


if __name__ == "__main__":
    main()
