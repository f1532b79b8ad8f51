"""`elastic data distil TABLE`: the correct responses of a strategy as fine-tuning data."""

from __future__ import annotations

from pathlib import Path

from elastic_core.errors import UserError
from elastic_core.reasonflux.chat_templates import CHAT_TEMPLATES
from elastic_core.reasonflux.sft import TABLE_COLUMNS, alpaca_rows, write_alpaca
from flows.regrade import open_table, problems_of


def distil(directory: Path, strategy: str, chat_template: str, to: Path, data: Path | None = None) -> str:
    """Write an alpaca file from the table's correct rows of a strategy, and say what is in it.

    Args:
        directory: of a trajectory table.
        chat_template: of the model that wrote them.
        data: directory of built data sets; None looks for those that the table was made with.

    Raises:
        UserError: when the table or its problems are not there, no row is correct, or `to` exists.
    """
    if to.exists():
        raise UserError(f"--to {to}: is there already; give a file that is not")
    table = open_table(directory)
    questions = {
        (benchmark, problem.id): problem.question
        for benchmark, problems in problems_of(table, data).items()
        for problem in problems.values()
    }
    found = table.scan().select(TABLE_COLUMNS).collect()
    rows = alpaca_rows(found, questions, CHAT_TEMPLATES[chat_template], strategy)
    write_alpaca(rows, to)
    num_questions = len({row["instruction"] for row in rows})
    return f"{len(rows)} responses to {num_questions} questions in {to}; next: --set warm_start.sft.data={to}"
