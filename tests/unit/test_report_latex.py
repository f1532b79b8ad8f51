"""Tables as LaTeX: every text is shown literally, every estimate with its interval."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from reports import latex
from reports.content import ReportTable

NAME = {sign: code for code, sign in latex._SIGNS.items()}


def read(text: str) -> str:
    """What LaTeX shows of an escaped text; a sign that it would not show is an error."""
    shown = ""
    text = text.replace("-{}-", "--")
    while text:
        code = next((code for code in NAME if text.startswith(code)), None)
        if code is None:
            assert text[0] not in r"\{}$&#%_^~", text
        shown, text = shown + (NAME[code] if code else text[0]), text[len(code or " ") :]
    return shown


@given(st.text(st.sampled_from('a -\\{}$&#%_^~<>|"`−∞→≤×±†[]*\n') | st.characters(), max_size=12))
def test_any_text_is_shown_literally(text: str) -> None:
    assert read(latex.escaped(text)) == " ".join(text.split())


def test_a_table_has_its_intervals_its_caption_and_no_line_that_ends_the_one_before() -> None:
    frame = pl.DataFrame(
        {"model": ["[5em]", "a_b & 50%"], "x": [-0.5, None], "x low": [-3.1, None], "x high": [float("inf"), None]}
    )
    table = ReportTable("budget_advice", "Which budget", "At 5 %: b*.", frame, frozenset({"x"}))
    assert latex.table(table).splitlines() == [
        r"\begin{table*}",
        r"  \centering",
        r"  \caption{\textbf{Which budget.} At 5 \%: b*.}",
        r"  \label{tab:budget_advice}",
        r"  \begin{tabular}{lr}",
        r"    \toprule",
        r"    {model} & x \\",
        r"    \midrule",
        r"    {[5em]} & $-$0.5 [$-$3.1, $\infty$] \\",
        r"    {a\_b \& 50\%} &  \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table*}",
    ]
