"""docs/results.md and the results in README.md, from the scores that this repository ships.

    python -m tests.results          # print them, every number computed anew
    python -m tests.results --write  # and put them into the two files

Their words are in `tests/results.md` and `tests/readme.md`, with a name for each number.

`reports/example/scores.parquet` has a row for every response of the embedded run, without its text; `keep` makes it of
a run's table. `tests/experiments/credit/` has the counts of docs/credit.md. Of SmolLM2's run there are the cells, in
`reports/example/smollm2-words/summary.json`, and no rows any more.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from elastic_core.budget import Budget
from elastic_core.statistics.accuracy import paired_difference
from elastic_core.statistics.budgets import anytime_differences, falls
from elastic_core.statistics.curves import log_law
from elastic_core.statistics.estimates import paired_ratio, problem_table, sampled_tokens, seeds_as_one
from elastic_core.statistics.intervals import Estimate
from elastic_core.statistics.responses import ResponseKind, is_cut
from elastic_core.strategies import FREE
from elastic_core.sweep.sound import Whole
from elastic_core.sweep.table import SweepTable
from elastic_core.system.files import replacing
from flows import presets
from reports.build import Report
from reports.claims import separate_leads
from reports.content import ReportFigure, ReportSources
from reports.figures import Sheet, accuracy, model_colours, strategy_styles
from reports.summary import over_budgets, report_rows, write_summary_json
from tests.experiments import credit
from tests.pictures import stamp

ROOT = Path(__file__).parents[1]
README, PAGE, EXAMPLE = ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "reports" / "example"
TEXTS = {PAGE: Path(__file__).with_suffix(".md"), README: Path(__file__).with_name("readme.md")}
SCORES, WORDS = EXAMPLE / "scores.parquet", EXAMPLE / "smollm2-words" / "summary.json"
TITLE, NEXT = "## Results\n", "## Read on\n"
EASY, HARD = "miniature-easy", "miniature-hard"
BUDGETS = (0, 16, 32, 48, 64, 96, 128, 192)
STAR = 48
MODELS = ("base", "trained")
WIDTH, AS_ONE = 130, {"break_long_words": False, "break_on_hyphens": False}
TEMPLATES = "reasonflux_zero"
HEADER = ("t", "base vanilla", "trained vanilla", "base separate", "trained separate", "base templates",
          "trained templates", "tokens: separate base → trained, templates")  # fmt: skip


def keep(table: Path) -> None:
    """Ship the rows of a run's table, whose models are base and trained@1, trained@2, …"""
    rows = report_rows(SweepTable(table).scan(), is_cut().alias("cut")).collect()
    with replacing(SCORES) as temporary:
        rows.sort(*rows.columns[:7]).write_parquet(temporary, compression="zstd", compression_level=22)


def between(mean: float | None, low: float | None, high: float | None, form: str = ".1f") -> str:
    assert None not in (mean, low, high)
    return f"{100 * mean:{form}} [{100 * low:{form}}, {100 * high:{form}}]"  # type: ignore[operator]


def signed(estimate: Estimate) -> str:
    return between(*estimate[:3], "+.1f")


def share(estimate: Estimate) -> str:
    """By how many percent a ratio is below 1, in whole numbers."""
    return f"{100 * (1 - estimate.mean):.0f} %"


def as_table(lines: list[tuple[str, ...]]) -> str:
    first, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return re.sub(r"\|  (?=\|)", "| ", "\n".join([first, "|---" * len(lines[0]) + "|", *rest]))


class Embedded:
    """The embedded run: its rows, and what its report makes of them."""

    def __init__(self) -> None:
        scores, parameters = pl.read_parquet(SCORES), presets.resolve("embedded").report
        unread = {"kind": pl.lit(ResponseKind.ANSWERED), "leak": pl.lit(False), "marked": pl.lit(False)}
        scores = scores.with_columns(**unread)  # Their texts were not kept.
        sources = ReportSources(scores.lazy(), parameters=parameters, preset="embedded")
        self.found = Report(sources, Path(), scores, Whole(scores, scores.clear()))
        self.rows, self.brief = self.found.rows, self.found.brief

    @cached_property
    def cells(self) -> Mapping[tuple[Any, ...], dict[str, Any]]:
        key = ("benchmark", "model", "strategy", "think_budget")
        return {tuple(cell[name] for name in key): cell for cell in self.found.summary.iter_rows(named=True)}

    def accuracy(self, benchmark: str, model: str, strategy: str, think: int | None) -> str:
        cell = self.cells[benchmark, model, strategy, think]
        return between(cell["avg_at_k"], cell["ci_low"], cell["ci_high"])

    def tokens(self, *key: Any, of: str = "tokens_mean") -> str:
        return f"{self.cells[key][of]:.0f}"

    def side(self, benchmark: str, model: str, strategy: str, budgets: Iterable[int] = BUDGETS) -> pl.DataFrame:
        rows = self.rows.filter(benchmark=benchmark, model=model, strategy=strategy)
        return rows if strategy == FREE else rows.filter(pl.col("think_budget").is_in(list(budgets)))

    def gain(self, benchmark: str, budgets: Iterable[int] = BUDGETS, strategy: str = "separate") -> str:
        return signed(paired_difference(*(self.side(benchmark, m, strategy, budgets) for m in ("trained", "base"))))

    def over_vanilla(self, benchmark: str, model: str) -> str:
        return signed(paired_difference(*(self.side(benchmark, model, name) for name in ("separate", "vanilla"))))

    def together(self) -> dict[str, str]:
        """The gain over all budgets by benchmark, both intervals at once, as the report's first sentence has it."""
        problems = self.found.problems.filter(pl.col("think_budget").is_not_null(), strategy="separate")
        both = {"trained": (problems.filter(model="trained"), problems.filter(model="base"))}
        return {name: signed(each.difference) for name, each in over_budgets(both)["trained"].items()}

    def saved(self, benchmark: str) -> str:
        """Tokens that the trained model saves without a budget."""
        sides = (self.side(benchmark, model, FREE) for model in ("trained", "base"))
        return share(paired_ratio(*(rows.with_columns(tokens=sampled_tokens()) for rows in sides), "tokens"))

    def anytime(self, benchmark: str, model: str, strategy: str = "separate") -> str:
        (row,) = self.found.anytime.filter(benchmark=benchmark, model=model, strategy=strategy).to_dicts()
        return f"{100 * row['anytime']:.1f}"

    def fall(self, benchmark: str, model: str) -> dict[str, Any]:
        line = falls(self.found.problems).filter(benchmark=benchmark, model=model, strategy="separate").to_dicts()
        return line[0] | {"by": between(-line[0]["difference"], -line[0]["high"], -line[0]["low"])}

    def table(self, benchmark: str) -> str:
        lines = [HEADER]
        for t in (*BUDGETS, None):
            limited = t is not None
            separate, spent = ("separate" if limited else FREE), "{} → {}"
            names = [("vanilla", limited), (separate, True), (TEMPLATES, limited)]
            shown = [
                self.accuracy(benchmark, model, name, t) if there else ""
                for name, there in names
                for model in ("base", "trained")
            ]
            tokens = spent.format(*(self.tokens(benchmark, model, separate, t) for model in ("base", "trained")))
            guided = f", {self.tokens(benchmark, 'base', TEMPLATES, t)}" if limited else ""
            lines.append((str(t) if limited else "free", *shown, tokens + guided))
        return as_table(lines)


def words() -> dict[str, str]:
    """Of SmolLM2: the mean over all budgets, so that none is picked, of both ways to limit at equal t + s."""
    told = json.loads(WORDS.read_text())
    anytime = {(each["benchmark"], each["strategy"], each["model"]): each for each in told["anytime"]}
    cells = {(c["benchmark"], c["strategy"], c["think_budget"], c["model"]): c for c in told["cells"]}
    models = {"base": "base", "trained": "trained under (96, 32)", "control": "as many steps without a budget"}
    lines, found = [("", *models.values())], {}
    for level in ("easy", "hard"):
        for strategy, how in {"separate": "t and s apart", "vanilla": "cut off at t + s (vanilla)"}.items():
            of = (anytime[f"words-{level}", strategy, model] for model in models)
            ends = (between(*(each[f"anytime{end}"] for end in ("", "_low", "_high"))) for each in of)
            ends = list(ends)
            lines.append((f"{level}, {how}", *ends))
            found |= {f"words_{strategy}_{level}_{model}": end for model, end in zip(models, ends, strict=True)}
            for t in (32, 64):
                cell = cells[f"words-{level}", strategy, t, "trained"]
                found[f"{level}_{strategy}_{t}"] = f"{100 * cell['avg_at_k']:.1f}"
        free = {model: cells[f"words-{level}", FREE, None, model] for model in models}
        for name, model in {"free": "trained", "base": "base"}.items():
            found[f"words_{name}_{level}"] = between(*(free[model][end] for end in ("avg_at_k", "ci_low", "ci_high")))
        for name, model in {"saved": "trained", "control": "control"}.items():
            ratio = free[model]["tokens_mean"] / free["base"]["tokens_mean"]
            found[f"words_{name}_{level}"] = f"{100 * (1 - ratio):.0f}"
    return found | {"words_table": as_table(lines)}


def pictures(run: Embedded, directory: Path) -> dict[Path, ReportFigure]:
    """Draw the figures that README and docs show, from what is shipped, by the file in which each is shown."""

    def sheet(name: str, cells: pl.DataFrame) -> Sheet:
        (directory / name).mkdir()
        return Sheet(directory / name, model_colours(cells["model"]), strategy_styles(cells["strategy"]))

    found = run.found
    cells = pl.DataFrame(json.loads(WORDS.read_text())["cells"], infer_schema_length=None)
    of_run, nothing = sheet("embedded", found.beside), found.theirs.clear()
    frontier = accuracy.pareto_frontier(found.priced, found.chosen, of_run, found.unit)
    strategies = accuracy.strategies_vs_tokens(found.beside, of_run)
    assert frontier is not None and strategies is not None
    return {
        EXAMPLE / "accuracy_vs_tokens.png": accuracy.accuracy_vs_tokens(
            found.beside, of_run, Budget(STAR, 32), found.theirs
        ),
        EXAMPLE / "strategies_vs_tokens.png": strategies,
        EXAMPLE / "pareto_frontier.png": frontier,
        WORDS.with_name("accuracy_vs_tokens.png"): accuracy.accuracy_vs_tokens(
            cells, sheet("words", cells), Budget(96, 32), nothing
        ),
    }


def fill(text: str) -> str:
    """The text filled to the width of the page; headings, tables, quotations and pictures as they are."""
    done: list[str] = []
    for block in re.split(r"\n(?=\n|- )", text):
        part = block.strip("\n")
        if not part.startswith(("#", "|", "!", ">")):
            indent = "  " if part.startswith("- ") else ""
            part = textwrap.fill(" ".join(part.split()), WIDTH, subsequent_indent=indent, **AS_ONE)
        done.append("\n" * block.startswith("\n") + part)
    return "\n".join(done)


def over_e1(level: str = "") -> tuple[str, dict[int, str]]:
    """Differences of docs/credit.md's first stage, over both levels or at one: in anytime accuracy, and at each t."""
    rows = credit.rows_of([credit.BASELINE, credit.PRIMARY])
    seeds = seeds_as_one(rows.filter(pl.col("problem").str.starts_with(level)))
    place = ["model", "benchmark", "strategy", "think_budget", "solution_budget"]
    pair = credit.BASELINE, credit.PRIMARY
    (over,) = anytime_differences(problem_table(seeds, ["score"], place), [pair]).to_dicts()
    at = {
        t: signed(paired_difference(*(cells.filter(model=name) for name in pair[::-1])))
        for (t,), cells in seeds.group_by("think_budget")
    }
    return between(over["difference"], over["low"], over["high"], "+.1f"), dict(sorted(at.items()))


def texts(run: Embedded) -> dict[Path, str]:
    """The page, and the part of README, by their files."""
    levels = {"hard": HARD, "easy": EASY}
    at, together = run.accuracy, run.together()
    tight = [t for t in BUDGETS if t <= 96]
    found = words() | {
        "brief": "> " + textwrap.fill(f"**{' '.join(run.brief)}**", WIDTH - 2, **AS_ONE).replace("\n", "\n> "),
        "many": over_e1()[0],
        "many_star": over_e1(EASY)[1][STAR],
    }
    for level, benchmark in levels.items():
        found |= {
            f"table_{level}": run.table(benchmark),
            f"gain_{level}": together[benchmark],
            f"gain_tight_{level}": run.gain(benchmark, tight),
            f"over_vanilla_{level}": run.over_vanilla(benchmark, "trained"),
            f"base_over_vanilla_{level}": run.over_vanilla(benchmark, "base"),
            f"free_{level}": run.gain(benchmark, strategy=FREE),
            f"saved_{level}": run.saved(benchmark),
            f"anytime_base_{level}": run.anytime(benchmark, "base"),
            f"anytime_trained_{level}": run.anytime(benchmark, "trained"),
            f"written_{level}": run.tokens(benchmark, "base", TEMPLATES, 128, of="forced_tokens_mean"),
        }
    seeds = run.cells[EASY, "trained", "separate", 32]["avg_at_k_by_seed"]
    lowered = [
        f"on {benchmark} at t = {t} from {at(benchmark, 'base', name, t)} to {at(benchmark, 'trained', name, t)} %"
        for (benchmark, model, name, t), cell in sorted(run.cells.items(), key=str)
        if model == "base" and cell["ci_low"] > run.cells[benchmark, "trained", name, t]["ci_high"]
    ]
    found |= {"seeds": ", ".join(f"{100 * score:.1f}" for score in seeds), "lowered": "; ".join(lowered)}
    for model, name in {"base": "", "trained": "_trained"}.items():
        fall = run.fall(EASY, model)
        ends = [(fall[end], at(EASY, model, "separate", fall[end])) for end in ("think_budget", "next_budget")]
        found |= {f"fall_{model}": fall["by"]}
        found |= {
            f"fall{name}_{end}": f"{shown} % at t = {t}" for end, (t, shown) in zip(("from", "to"), ends, strict=True)
        }
    laws = {(level, model): log_law(run.side(level, model, "separate")) for level in (HARD, EASY) for model in MODELS}
    fits = [law.lack_of_fit for law in laws.values() if law and law.lack_of_fit is not None]
    assert len(fits) == len(laws)
    r2 = [law.r2 for model in MODELS if (law := laws[HARD, model])]
    order = separate_leads(run.rows.filter(benchmark=EASY), EASY, "base").evidence
    first, second = re.findall(r"(?:forcing|vanilla) ([+-]\S+ \[\S+ \S+\])", order.split("points:")[1])
    strategies = ("vanilla", "budget_forcing", "separate")
    most = max(run.cells[HARD, "base", name, t]["avg_at_k"] for name in strategies for t in (0, 16, 32))
    guided, free = (run.cells[HARD, "base", *key] for key in ((TEMPLATES, 128), (FREE, None)))
    work, drawn = (
        1 - sum(guided[name] for name in names) / sum(free[name] for name in names)
        for names in (("input_tokens_mean", "output_tokens_mean"), ("tokens_mean",))
    )
    found |= {
        "lack_of_fit": f"{max(fits):.0e}",
        **dict(zip(("r2_base", "r2_trained"), (f"{each:.2f}" for each in r2), strict=True)),
        "order_first": first,
        "order_second": second,
        "order_hard": f"{100 * most:.1f}",
        "guided_hard": at(HARD, "base", TEMPLATES, 128),
        "guided_tokens": run.tokens(HARD, "base", TEMPLATES, 128),
        "unguided_hard": at(HARD, "base", "separate", 128),
        "unguided_trained": at(HARD, "trained", "separate", 128),
        "less_work": f"{100 * work:.0f}",
        "less_drawn": f"{100 * drawn:.0f}",
        "navigator": run.tokens(HARD, "base", TEMPLATES, 64, of="navigator_tokens_mean"),
        "guided_early": at(HARD, "trained", TEMPLATES, 64),
        "unguided_early": at(HARD, "trained", "separate", 64),
    }
    return {file: fill(text.read_text().strip().format(**found)) for file, text in TEXTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--write", action="store_true", help="put them into their files, cells into summary.json; draw the figures"
    )
    parser.add_argument("--keep", type=Path, metavar="TABLE", help="take the rows from this table of the embedded run")
    arguments = parser.parse_args()
    if arguments.keep:
        keep(arguments.keep)
    run = Embedded()
    made = texts(run)
    if arguments.write:
        PAGE.write_text(made[PAGE] + "\n")
        before, _, rest = README.read_text().partition(TITLE)
        README.write_text(f"{before}{TITLE}\n{made[README]}\n\n{NEXT}{rest.partition(NEXT)[2]}")
        found = run.found
        cells = found.summary.select(~cs.starts_with("leak"))  # Which texts would tell, that were not kept.
        write_summary_json(cells, found.anytime, ReportSources(found.rows.lazy()).ratings, EXAMPLE / "summary.json")
        with tempfile.TemporaryDirectory() as directory:
            for shown, drawn in pictures(run, Path(directory)).items():
                stamp(drawn.png, drawn.data, shown)
    print(*made.values(), sep="\n\n")


if __name__ == "__main__":
    main()
