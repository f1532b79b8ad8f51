"""Figures and tables as LaTeX, to be read by \\input in a paper with the packages graphicx and booktabs.

Every text is escaped: names of models and benchmarks are anyone's. The signs of a report are written so that pdfTeX has
them; other letters of a name may need LuaTeX or XeTeX.
"""

from __future__ import annotations

import re

from reports.content import ReportFigure, ReportTable, Shown

_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\char34{}", "`": r"\textasciigrave{}", "−": "$-$", "∞": r"$\infty$",
    "→": r"$\rightarrow$", "≤": r"$\leq$", "≥": r"$\geq$", "×": r"$\times$", "±": r"$\pm$", "†": r"\dag{}",
}  # fmt: skip


def figure(shown: ReportFigure, is_wide: bool) -> str:
    """A float of the PDF in its final size, over both columns if it is wide."""
    body = [rf"  \includegraphics{{{shown.pdf.name}}}", *_caption(shown, "fig")]
    return _float("figure*" if is_wide else "figure", body)


def table(shown: ReportTable) -> str:
    """A float over both columns, with the lines and intervals that the page shows."""
    columns = "".join("r" if numeric else "l" for numeric in shown.numeric)
    body = [
        *_caption(shown, "tab"),
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        _line([escaped(name) for name in shown.header]),
        r"    \midrule",
        *(_line([_place(each) for each in line]) for line in shown.lines),
        r"    \bottomrule",
        r"  \end{tabular}",
    ]
    return _float("table*", body)


def escaped(text: str) -> str:
    """A text as one line of LaTeX that shows it literally."""
    return "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split())).replace("--", "-{}-")


def _place(shown: Shown) -> str:
    text = escaped(shown.text)
    return text if isinstance(shown.value, str) else re.sub(r"-(?=\d)", "$-$", text)


def _line(places: list[str]) -> str:
    first, *rest = places  # In braces: a bracket or a star after the line before would be an option of its end.
    return rf"    {' & '.join([f'{{{first}}}', *rest])} \\"


def _caption(shown: ReportFigure | ReportTable, kind: str) -> list[str]:
    caption = rf"  \caption{{\textbf{{{escaped(shown.title)}.}} {escaped(shown.caption)}}}"
    return [caption, rf"  \label{{{kind}:{shown.name}}}"]


def _float(kind: str, body: list[str]) -> str:
    return "\n".join([rf"\begin{{{kind}}}", r"  \centering", *body, rf"\end{{{kind}}}", ""])
