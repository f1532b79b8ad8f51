r"""The answer in a solution: the content of its last complete `\boxed{…}` or `\fbox{…}`."""

from __future__ import annotations

import re

# An escaped brace is no brace, and a doubled backslash is a line break and escapes nothing.
_TOKEN = re.compile(
    r"\\(?:boxed|fbox)(?![a-zA-Z])\s*+(?:(?P<open>\{)|(?P<bare>[^\s{}$\\]+))?|\\[^a-zA-Z]|[{}]", re.DOTALL
)
_ORPHAN = re.compile(r"(?<!\\)\\\Z")


def last_boxed(text: str) -> str | None:
    r"""Content of the last box that is closed, without surrounding whitespace; None when there is none.

    A box is `\boxed` or `\fbox` with braces, which may be nested, or without them as in `\boxed 5`, where the content
    ends at whitespace. The last box is the one that begins last, so that of nested boxes the inner one counts. One
    pass, whatever the text holds.
    """
    braces: list[tuple[int, bool]] = []  # where the content of each open brace begins, and whether it is a box's
    found, content = -1, None
    for token in _TOKEN.finditer(text):
        if token["bare"]:
            found, content = token.start("bare"), token["bare"]
        elif token["open"] or token[0] == "{":
            braces.append((token.end(), bool(token["open"])))
        elif token[0] == "}" and braces:
            start, is_box = braces.pop()
            if is_box and start > found:
                found, content = start, text[start : token.start()]
    if content is None:
        return None
    stripped = content.strip()
    # `5\ ` ends in an escaped space; without it the backslash would escape nothing.
    return stripped[:-1].rstrip() if _ORPHAN.search(stripped) and content[-1:].isspace() else stripped
