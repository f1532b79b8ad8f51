r"""Mathematical answers by the rules of the authors' program, at commit 8871a3c (docs/seeds.md has file and line).

Either comparison suffices: `same_spelling` knows a few spellings of LaTeX; `same_value` turns LaTeX into plain text,
drops units, and has sympy simplify the difference, of the parts of a tuple in their order. Not the authors': the
deadline and the memory of a worker, and that nothing evaluates text.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable
from functools import cache
from itertools import starmap
from types import BuiltinFunctionType
from typing import Any

_TEXT = re.compile(r"^\\text\{(.+?)\}$")
_SPELLINGS = (
    ("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", ""), ("\\right", ""),
    ("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""),
)  # fmt: skip
_QUOTIENT = re.compile(r"(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)")
_PLAIN = (
    ("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "),
    ("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12"),
)  # fmt: skip
_UNITS = (
    "degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month", "year", "foot",
    "feet", "inch", "yard",
)  # fmt: skip
_UNIT = [re.compile(rf"{unit}(?:es)?s? *(?:\^[0-9]+)?") for unit in _UNITS]  # removed one after another
_SYMBOLS = (("√", "sqrt"), ("π", "pi"), ("∞", "inf"), ("∪", "U"), ("·", "*"), ("×", "*"))
_BEFORE_THOUSAND = re.compile(r"(\d),(\d\d\d)($|\D)")
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
_NOT_COMPUTED = re.compile(r"\^[{(]|\^[0-9]+\^|\^[0-9][0-9]+")
_MAX_LETTERS = 2


def boxed_answer(solution: str) -> str | None:
    r"""Content of the last `\boxed{…}`; None when there is none, or the last `\boxed` has no braces, or open ones."""
    start = solution.rfind("\\boxed")
    if start < 0:
        return None
    depth = 0
    for brace in re.finditer(r"[{}]", solution[start:]):
        depth += 1 if brace[0] == "{" else -1
        if brace[0] == "}" and depth == 0:
            box = solution[start : start + brace.start()]
            return box.removeprefix("\\boxed{") if box.startswith("\\boxed{") else None
    return None


def same_spelling(answer: str, accepted: str) -> bool:
    """The first of the two comparisons: cheap, in linear time."""
    return _spelled(answer) == _spelled(accepted)


def _spelled(text: str) -> str:
    text = text.strip()
    if match := _TEXT.search(text):
        text = match[1].strip()
    try:
        return _respelled(text)
    except ValueError:
        return text


def _respelled(text: str) -> str:
    """One spelling; ValueError where their program stumbles: it leaves such texts as they are."""
    for old, new in _SPELLINGS:
        text = text.replace(old, new)
    if "\\text{ " in text:  # of units
        text, _ = text.split("\\text{ ")
    for old, new in (("\\%", ""), (" .", " 0."), ("{.", "{0.")):
        text = text.replace(old, new)
    if text.startswith("."):
        text = f"0{text}"
    left, *right = text.split("=")
    if len(right) == 1 and len(left) <= 2:
        text = right[0]
    text = _with_braces(text, "\\sqrt", 1).replace(" ", "")
    text = _with_braces(text, "\\frac", 2)
    if text == "0.5":
        return "\\frac{1}{2}"
    return _QUOTIENT.sub(r"\\frac{\1}{\2}", text) if _QUOTIENT.fullmatch(text) else text


def _with_braces(text: str, command: str, num: int) -> str:
    r"""`\frac12` with its `num` arguments of one character in braces. Where the second one is missing nothing is
    changed, and ValueError where the first one is."""
    first, *rest = text.split(command)
    for part in rest:
        if not part:
            raise ValueError(f"{command} without an argument")
        if part[0] == "{":
            first += command + part
            continue
        if len(part) < num:
            return text
        given = part[:1] if part[1:2] == "{" else part[:num]
        first += command + "".join(f"{{{character}}}" for character in given) + part[len(given) :]
    return first


def same_value(answer: str, accepted: str) -> bool:
    """The second comparison, for a worker: it may take any time, and memory. Raises MemoryError."""
    given, wanted = _plain(answer), _plain(accepted)
    if given == wanted:
        return True
    if not given or not wanted:
        return False
    parts, wanted_parts = _parts(given), _parts(wanted)
    if len(wanted_parts) > 1 and (given[0], given[-1]) != (wanted[0], wanted[-1]):
        return False
    return len(parts) == len(wanted_parts) and all(starmap(_same_part, zip(parts, wanted_parts, strict=True)))


def _plain(text: str) -> str:
    if match := _TEXT.search(text):
        text = match[1]
    for old, new in _PLAIN:
        text = text.replace(old, new)
    for unit in _UNIT:
        text = unit.sub("", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    if (number := _number(text)) is not None and _is_whole(number):
        text = str(round(number))
    if "\\" in text:
        text = _without_latex(text)
    text = re.sub(r"- *", "-", text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", text)  # a mixed number
    text = re.sub(r"[ {}]", "", text).lower()
    return str(int(float(text.replace(",", "")))) if _is_integer(text) else text


def _without_latex(text: str) -> str:
    from pylatexenc.latex2text import LatexNodes2Text

    latex = text.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac").replace("\\frac", " \\frac")
    try:
        plain: str = LatexNodes2Text().latex_to_text(latex)
    except MemoryError:
        raise
    except Exception:  # whatever it stumbles over stays as it is
        return text
    for old, new in _SYMBOLS:
        plain = plain.replace(old, new)
    return plain.strip()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_whole(number: float) -> bool:
    return abs(number) != float("inf") and number == number and abs(number - round(number)) <= 1e-7


def _is_integer(text: str) -> bool:
    number = _number(_without_thousands(text))
    return number is not None and _is_whole(number)


def _without_thousands(text: str) -> str:
    while (shorter := _BEFORE_THOUSAND.sub(r"\1\2\3", text)) != text:
        text = shorter
    return text


def _parts(text: str) -> list[str]:
    """Parts of a tuple or an interval that has no brackets within; of anything else itself."""
    text = _without_thousands(text)
    inner = text[1:-1]
    if len(text) > 2 and text[0] in "()[]" and text[-1] in "()[]" and not re.search(r"[()\[\]]", inner):
        return [part.strip() for part in inner.split(",")]
    return [text]


def _same_part(given: str, wanted: str) -> bool:
    if _FRACTION.search(given) and _FRACTION.search(wanted):
        return given == wanted
    return _is_integer(given) == _is_integer(wanted) and _no_difference(f"({wanted})-({given})")


def _no_difference(text: str) -> bool:
    letters = {letter for letter in text.replace("sqrt", "").replace("frac", "") if letter.isalpha()}
    if len(letters) > _MAX_LETTERS or _NOT_COMPUTED.search(text):
        return False
    from sympy import simplify

    try:
        return bool(simplify(_parsed(text.replace("^", "**"))) == 0)
    except MemoryError:
        raise
    except Exception:  # what sympy cannot read, or stumbles over, is not shown to be equal
        return False


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.UAdd: operator.pos, ast.USub: operator.neg,
}  # fmt: skip
_MAKERS = ("Symbol", "Function", "Integer", "Float", "Rational", "Number")
_NAMES = (
    "I", "pi", "oo", "zoo", "nan", "sqrt", "ln", "re", "im", "csc", "frac", "li", "ff", "rf", "factorial", "factorial2",
)  # fmt: skip
"""What an expression of at most two letters can name in sympy, and its parser adds."""


@cache
def _sympy() -> tuple[dict[str, Any], dict[str, Any], tuple[Any, ...]]:
    """Names by which sympy's parser tells functions from variables, those that are looked up, the parser's steps."""
    import sympy
    from sympy.parsing import sympy_parser

    builtin = {name: each for name, each in vars(builtins).items() if isinstance(each, BuiltinFunctionType)}
    names = {name: getattr(sympy, name) for name in sympy.__all__} | builtin
    steps = (*sympy_parser.standard_transformations, sympy_parser.implicit_multiplication_application)
    return names, {name: names[name] for name in (*_MAKERS, *_NAMES)}, steps


def _parsed(text: str) -> Any:
    """A sympy object, of the operators and names above. ValueError for anything else, which sympy would evaluate."""
    from sympy.parsing.sympy_parser import stringify_expr

    names, known, steps = _sympy()

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Call(ast.Name(maker), [ast.Constant(content)], []) if maker in _MAKERS:
                return known[maker](content)
            case ast.Name(name) if name in known:
                return known[name]
            case ast.Call(function, arguments, []):
                return value(function)(*map(value, arguments))
            case ast.BinOp(left, sign, right) if type(sign) in _OPERATORS:
                return _OPERATORS[type(sign)](value(left), value(right))
            case ast.UnaryOp(sign, operand) if type(sign) in _OPERATORS:
                return _OPERATORS[type(sign)](value(operand))
        raise ValueError(f"{ast.unparse(node)[:80]} is not computed")

    return value(ast.parse(stringify_expr(text, {}, dict(names), steps).strip(), mode="eval").body)
