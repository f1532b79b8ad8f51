"""ReasonFlux-F1: a reasoning model fine-tuned on trajectories that were written with thought templates.

Conversations in the alpaca form become rows of token ids for `elastic_core.training.sft`, with a loss on the response
and its end-of-text. Correct trajectories of ReasonFlux-Zero become such data too (`alpaca_rows`): one thought, the
replies without the requests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from elastic_core.data import mapping
from elastic_core.data.dataset import BadRow, Dataset, Form, Local, SourceFile, reads
from elastic_core.data.readers import column_names, format_of, records, table
from elastic_core.errors import UserError
from elastic_core.reasonflux.chat_templates import ChatTemplate, Template
from elastic_core.rewards.truth import THINK_END, GradeStatus
from elastic_core.system.files import replacing, write_text
from elastic_core.system.fingerprint import sha256_file

FILE_DATASET = "alpaca-file"  # name of a user's file among the data sets of a run
_PIECE_ROWS = 512
_EMPTY: tuple[Any, ...] = (None, "", [], {})  # how alpaca files say that a row has no value
ROWS = pl.Schema({"input_ids": pl.List(pl.Int32), "loss_mask": pl.List(pl.Int8)})
TABLE_COLUMNS = ("benchmark", "problem", "strategy", "grade_status", "thinking", "solution")
"""Of the trajectory table that is distilled."""


class Exchange(NamedTuple):
    """A question and its response, and the system prompt before them, if any."""

    question: str
    response: str
    system: str = ""


class Row(NamedTuple):
    """One exchange in token ids; the mask is 1 on the target."""

    input_ids: list[int]
    loss_mask: list[int]
    truncated: bool


@dataclass(frozen=True)
class RowsReport:
    """What became of the conversations."""

    num_rows: int
    num_truncated: int  # rows longer than the cutoff, and therefore without end-of-text
    num_unopened: int  # rows without the thought that the template's generation prompt opens
    num_marked: int  # conversations left out because their text holds a marker of the template
    num_tokens: int
    num_trained_tokens: int  # tokens that the loss falls on
    num_unsaid: int = 0  # rows without their system prompt, for which the template has no place

    def __str__(self) -> str:
        return (
            f"{self.num_rows} rows, {self.num_tokens} tokens, {self.num_trained_tokens} of them trained on; "
            f"{self.num_truncated} cut at the cutoff, {self.num_unopened} without a thought, {self.num_unsaid} without "
            f"their system prompt; {self.num_marked} left out for a marker of the chat template in their text"
        )


def file_dataset(file: Path) -> Dataset:
    """A user's file in the alpaca form, as a data set that is built like those of the registry. UserError when
    the file does not exist, or its format is unknown."""
    if not file.is_file():
        raise UserError(
            f"{file}: no such file, and no data set of that name; `elastic data list` shows those there are"
        )
    try:
        # A column that a table lacks is an error, and `system` may be missing.
        lacking = set() if format_of(file) in (".json", ".jsonl") else {"system"}.difference(column_names(file))
    except BadRow as error:
        raise UserError(f"{error.at(file)} in the alpaca form") from None
    return Dataset(
        name=FILE_DATASET,
        description="fine-tuning data of the user's own",
        source=Local(file.resolve().parent),
        files=(SourceFile(file.name, sha256_file(file)),),
        licence="the user's own",
        split="train",
        domain="templates",
        map=reads(*(name for name in mapping.ALPACA if name not in lacking))(mapping.alpaca.clean),
        form=Form.CONVERSATIONS,
    )


def unused_fields(files: Iterable[Path]) -> dict[str, int]:
    """Fields of alpaca files that training does not read, each with the number of rows that have a value there."""
    counts: Counter[str] = Counter()
    for file in files:
        if format_of(file) in (".json", ".jsonl"):
            for _, row in records(file):
                counts.update(name for name in row if name not in mapping.ALPACA and row[name] not in _EMPTY)
        else:
            rows = pl.scan_parquet(file) if format_of(file) == ".parquet" else table(file).lazy()
            for name in set(column_names(file)).difference(mapping.ALPACA):
                counts[name] += rows.select(pl.col(name).count()).collect().item()
    return dict(sorted(counts.items()))


def kept_lengths(prompt: int, response: int, cutoff: int) -> tuple[int, int]:
    """Tokens that are kept of a prompt and its response, at most `cutoff` together: a short one stays complete, and two
    long ones are cut in proportion. LLaMA-Factory's rule, which F1 was trained under."""
    if 2 * response < cutoff:
        room = cutoff
    elif 2 * prompt < cutoff:
        room = cutoff - prompt
    else:
        room = cutoff * response // (prompt + response)
    kept = min(response, room)
    return min(prompt, cutoff - kept), kept


def encode(tokenizer: Any, template: Template, exchanges: Sequence[Exchange], cutoff: int) -> list[Row]:
    """Rows of at most `cutoff` tokens. Questions and responses that are too long lose their end."""
    parts = zip(*(template.exchange(*each) for each in exchanges), strict=True)
    # The template writes every marker itself.
    prompts, responses = (tokenizer(list(texts), add_special_tokens=False)["input_ids"] for texts in parts)
    rows = []
    for prompt, response in zip(prompts, responses, strict=True):
        num_prompt, num_response = kept = kept_lengths(len(prompt), len(response), cutoff)
        ids, mask = prompt[:num_prompt] + response[:num_response], [0] * num_prompt + [1] * num_response
        rows.append(Row(ids, mask, kept != (len(prompt), len(response))))
    return rows


def write_rows(conversations: Path, tokenizer: Any, template: Template, cutoff: int, target: Path) -> RowsReport:
    """Write rows for `elastic_core.training.sft` and their report, unless both are there. Conversations are
    parquet with a column `messages`: a question and a response each, perhaps after a system prompt. UserError when no
    row is left, or the template refuses a conversation."""
    file = target.with_suffix(".json")
    if target.exists() and file.exists():
        return RowsReport(**json.loads(file.read_text()))
    messages = pl.read_parquet(conversations, columns=["messages"])["messages"]
    contents = ([message["content"] for message in conversation] for conversation in messages)
    exchanges = [Exchange(question, response, *system) for *system, question, response in contents]
    kept = [each for each in exchanges if not any(marker in text for text in each for marker in template.markers)]
    rows: list[Row] = []
    for start in range(0, len(kept), _PIECE_ROWS):
        rows += encode(tokenizer, template, kept[start : start + _PIECE_ROWS], cutoff)
    if not rows:
        raise UserError(f"{conversations}: no row is left to train on, of {len(exchanges)}")
    report = RowsReport(
        num_rows=len(rows),
        num_truncated=sum(row.truncated for row in rows),
        num_unopened=sum(not each.response.startswith(template.opening) for each in kept),
        num_marked=len(exchanges) - len(kept),
        num_tokens=sum(len(row.input_ids) for row in rows),
        num_trained_tokens=sum(sum(row.loss_mask) for row in rows),
        num_unsaid=0 if template.takes_system else sum(each.system != "" for each in kept),
    )
    with replacing(target) as temporary:
        columns = {"input_ids": [row.input_ids for row in rows], "loss_mask": [row.loss_mask for row in rows]}
        pl.DataFrame(columns, schema=ROWS).write_parquet(temporary)
    write_text(file, json.dumps(asdict(report), indent=2) + "\n")
    return report


def alpaca_rows(
    rows: pl.DataFrame, questions: Mapping[tuple[str, str], str], template: ChatTemplate, strategy: str
) -> list[dict[str, str]]:
    """An alpaca row (instruction: the question, input: empty, output) for every distinct correct response among `rows`,
    `TABLE_COLUMNS` of a trajectory table. `questions` are the prompts of each (benchmark, problem); the template is
    that of the model that wrote the responses. UserError when no row is correct."""
    correct = rows.filter(
        pl.col("strategy") == strategy,
        pl.col("grade_status") == GradeStatus.CORRECT.value,
        pl.col("solution").is_not_null(),
    )
    if correct.is_empty():
        found = ", ".join(sorted(rows["strategy"].unique())) or "none"
        raise UserError(f"no correct row of strategy {strategy}; the table's strategies are: {found}")
    distinct = correct.unique(["benchmark", "problem", "thinking", "solution"], keep="first", maintain_order=True)
    return [
        {
            "instruction": questions[row["benchmark"], row["problem"]],
            "input": "",
            "output": distilled(row["thinking"], row["solution"], template),
        }
        for row in distinct.iter_rows(named=True)
    ]


def distilled(thinking: str, solution: str, template: ChatTemplate) -> str:
    """The response without the requests. `thinking` is a thought, or a conversation in the
    template's markers, in which an empty thought precedes every reply."""
    turns = [turn.rpartition(THINK_END)[2].strip() for turn in thinking.split(template.end) if THINK_END in turn]
    if not turns:
        return f"{template.opening}{thinking.removeprefix(template.opening)}{THINK_END}{solution}"
    thought = "\n\n".join(filter(None, turns))
    return f"{template.opening}{thought}{template.closing}{solution.strip()}"
