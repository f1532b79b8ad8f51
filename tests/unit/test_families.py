"""A model's family is known by its tokenizer and chat template, and its marks are found wherever they stand."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.errors import UserError
from elastic_core.models.families import (
    DIRECTORY,
    OWN_FILE,
    copy_own,
    read_thought,
    split_thought,
    thoughts,
    with_family,
)
from elastic_core.models.special_tokens import Markers, chat_prompt, load_markers, resolve_markers
from elastic_core.models.twins import Family, build_tokenizer
from elastic_core.rewards.response import response_text
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from flows.commands.ask import pieces

SPECIAL = {
    "think": ("<think>", "</think>"),
    "qwen3": ("<think>", "</think>", "<tool_call>"),
    "qwen3.8": ("<think>", "</think>", "<tool_call>"),
    "glm": ("<think>", "</think>", "<tool_call>"),
    "nemotron3": ("<think>", "</think>", "<tool_call>"),
    "kimi-k2": ("<think>", "</think>", "<|tool_calls_section_begin|>"),
    "minimax-m2": ("<think>", "</think>", "<minimax:tool_call>"),
    "ernie4.5": ("<think>", "</think>"),
    "hunyuan3": ("<think>", "</think>"),
    "hunyuan4": ("<think:6124c78e>", "</think:6124c78e>"),
    "k2-horizon": ("<ifm|think>", "</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>", "<ifm|tool_calls>"),
    "mistral": ("[THINK]", "[/THINK]", "[TOOL_CALLS]"),
    "inkling": (
        *("<|message_model|>", "<|content_thinking|>", "<|content_text|>", "<|end_message|>"),
        *("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"),
    ),
    "plamo3": ("<|plamo:begin_", "<|plamo:end_", ":plamo|>"),
    "command4": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "gpt-oss": ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    "gemma4": ("<|channel>", "<channel|>", "<|tool_call>"),
    "kimi-k3": ("<|open|>", "<|close|>", "<|sep|>"),
    "command-a": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "seed-oss": ("<seed:think>", "</seed:think>", "<seed:tool_call>"),
    "minimax-m3": ("<mm:think>", "</mm:think>"),
    "hunyuan-a13b": (),
    "olmo3": (),
    "granite3.2": (),
    "kimi-vl": (),
}
"""What each family has as tokens of its own."""
SHOWN = {"hunyuan-a13b": "<think>\n</think>\n<answer>\n"}
TEXT = {"hunyuan-a13b", "olmo3", "granite3.2", "kimi-vl"}


def tokenizer_of(name: str, template: str | None = None, special: tuple[str, ...] | None = None) -> Any:
    """The stand-in for a family's tokenizer: a byte-level encoding, and the special tokens."""
    thought = thoughts()[name].of(SPECIAL[name])
    template = template or SHOWN.get(name) or "".join((thought.open, *thought.ends, *thought.shows))
    texts = (*(SPECIAL[name] if special is None else special), "<eos>")
    tokens = {3000 + i: (text, False) for i, text in enumerate(texts)}
    quoted = template.replace("\n", "\\n").replace("'", "\\'")
    shown = "{{ messages[0].content }}{% if messages[1] is defined %}{{ '" + quoted + "' }}{% endif %}"
    return build_tokenizer(Family(name, (), 3000, tokens, "<eos>", shown, {}, {}, {}))


@pytest.fixture(scope="module")
def known() -> dict[str, tuple[Any, Markers]]:
    assert SPECIAL.keys() == thoughts().keys(), "every family is tried"
    tokenizers = {name: tokenizer_of(name) for name in SPECIAL}
    return {name: (tokenizer, resolve_markers(tokenizer)) for name, tokenizer in tokenizers.items()}


GLM = "[<tool_call><arg_key>] {{ reasoning_effort | default('max') }} {{ messages[0].content }}<think>"


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3.8", "glm", "kimi-k3", "seed-oss"])
def test_a_familys_efforts_change_what_its_template_writes_and_the_default_is_its_own(name: str) -> None:
    tokenizer, facts = tokenizer_of(name), tomllib.loads((DIRECTORY / f"{name}.toml").read_text())
    tokenizer.chat_template = facts.get("chat_template", GLM)
    own, thought = tokenizer_of(name), thoughts()[name]
    own.chat_template = tokenizer.chat_template
    markers = resolve_markers(tokenizer)
    assert markers.family == name and [effort for effort, _ in markers.efforts] == list(thought.efforts)
    prompts = {
        effort: chat_prompt(tokenizer, "1+1=?", **markers.template_settings(effort)) for effort in thought.efforts
    }
    assert len({*prompts.values()}) == len(thought.efforts) > 1
    if thought.effort is not None and name != "kimi-k3":  # Its twin writes nothing without an effort.
        assert prompts[thought.effort] == chat_prompt(own, "1+1=?")
    with pytest.raises(ValueError, match='no effort "much"; expected one of'):
        markers.template_settings("much")


@pytest.mark.parametrize("name", SPECIAL)
def test_a_family_is_known_by_its_tokens_and_its_template(name: str, known: dict[str, tuple[Any, Markers]]) -> None:
    tokenizer, markers = known[name]
    thought = thoughts()[name].of(SPECIAL[name])
    assert (markers.family, markers.parser) == (name, thought.parser)
    assert tokenizer.decode(list(markers.think_start)) == thought.open
    assert tokenizer.decode(list(markers.close)) == (thought.close or thought.ends[0])
    assert markers.end(markers.close) is not None and not markers.template_opens_thinking
    assert len(markers.think_ends) > 1 if name in TEXT else len(markers.think_ends) == len(thought.ends)
    assert [tokenizer.decode(list(call)) for call in markers.calls] == list(thought.calls)


WORDS = st.text(st.sampled_from("ab <>/|:1.\n$\\think"), max_size=12)


@given(st.sampled_from(sorted(SPECIAL)), WORDS, st.sampled_from(["", " ", "\n", "\n\n", "A", "1", "$"]), WORDS)
def test_an_end_is_never_missed_and_never_seen_where_there_is_none(
    known: dict[str, tuple[Any, Markers]], name: str, thought: str, first: str, solution: str
) -> None:
    """Of a mark of plain text that is encoded with the text around it, as a model learned to write it."""
    tokenizer, markers = known[name]
    end = thoughts()[name].of(SPECIAL[name]).ends[0]
    assert markers.end(tokenizer.encode(thought, add_special_tokens=False)) is None or end in thought
    if end not in thought:
        ids = tokenizer.encode(f"{thought}{end}{first}{solution}", add_special_tokens=False)
        at = markers.end(ids)
        assert at is not None
        assert end in tokenizer.decode(ids[:at]) and end not in tokenizer.decode(ids[: at - 1])


@pytest.mark.parametrize("call", ["<tool_call>", "<|tool_calls_section_begin|>", "<minimax:tool_call>"])
def test_a_call_counts_where_the_template_shows_it(call: str) -> None:
    """A template that shows none is of a family whose parser reads none, such as R1's."""
    tokens = ("<think>", "</think>", call)
    assert resolve_markers(tokenizer_of("think", "<think></think>", tokens)).calls == ()
    tokenizer = tokenizer_of("think", call, tokens)
    assert [tokenizer.decode(list(own)) for own in resolve_markers(tokenizer).calls] == [call]


RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<bot>",
    "fields": {
        "thinking": {"open": ["<ponder>", "<muse>"], "close": "</ponder>", "content": "text"},
        "tool_calls": {"open": "<act>", "close": "</act>", "repeats": True, "content": "json"},
        "content": {"close": "<eos>", "content": "text"},
    },
}
"""As transformers 5.13 documents response templates."""


def test_marks_of_no_family_are_read_from_the_response_template(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("think", "hello", ("<ponder>", "</ponder>", "<act>", "<say>"))
    # Saved from the one by transformers 5.10, from the other since 5.13.
    tokenizer.init_kwargs["response_template"] = tokenizer.response_template = RESPONSE
    tokenizer.save_pretrained(tmp_path)
    tokenizer, markers = load_markers(tmp_path)
    marks = (markers.think_start, *markers.think_ends, markers.close, markers.answer, *markers.calls)
    assert [tokenizer.decode(list(mark)) for mark in marks] == ["<ponder>", *["</ponder>"] * 3, "<act>"]
    assert (markers.family, markers.parser) == ("response_template", "hf")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"content": {"open": "<say>"}}, ["</ponder>", "<say>"]),  # An answer without a thought begins with its mark.
        ({"thinking": {"open_pattern": "<p.*>", "close": "</ponder>"}}, None),
        ({"thinking": {"open": "<ponder>"}}, None),
    ],
)
def test_a_response_template_may_leave_marks_open(change: dict[str, Any], found: list[str] | None) -> None:
    tokenizer = tokenizer_of("think", "hello", ("<ponder>", "</ponder>", "<act>", "<say>"))
    tokenizer.init_kwargs["response_template"] = {**RESPONSE, "fields": {**RESPONSE["fields"], **change}}
    if found is None:
        with pytest.raises(ValueError, match=OWN_FILE):
            resolve_markers(tokenizer)
    else:
        markers = resolve_markers(tokenizer)
        assert [tokenizer.decode(list(end)) for end in markers.think_ends] == found
        assert tokenizer.decode(list(markers.answer)) == found[-1]


def test_a_checkpoint_with_mistrals_own_tokenizer_is_read_by_the_other_one(tmp_path: Path) -> None:
    tekken = Path(pytest.importorskip("mistral_common").__file__).parent / "data/tekken_240911.json"
    vocabulary = json.loads(tekken.read_text()) | {"image": None}
    from mistral_common.tokens.tokenizers.base import SpecialTokens
    from transformers.integrations.mistral import convert_tekken_tokenizer

    known = [token.value for token in SpecialTokens]
    special = [*known, *(f"<SPECIAL_{i}>" for i in range(len(known), 1000))]
    vocabulary["vocab"] = vocabulary["vocab"][:2000]
    vocabulary["config"] |= {"version": "v13", "default_vocab_size": 3000, "num_vocab_tokens": 2000}
    marks = [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(special)]
    (tmp_path / "tekken.json").write_text(json.dumps({**vocabulary, "special_tokens": marks}))
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    tokenizer = convert_tekken_tokenizer(str(tmp_path / "tekken.json"))
    tokenizer.chat_template = "{{ messages[0].content }}{% if messages[1] is defined %}[THINK][/THINK]{% endif %}"
    tokenizer.save_pretrained(tmp_path)
    markers = load_markers(tmp_path)[1]
    marks = (markers.think_start, *markers.think_ends, *markers.calls)
    assert [special[token] for (token,) in marks] == ["[THINK]", "[/THINK]", "[TOOL_CALLS]"]
    assert (markers.family, markers.parser) == ("mistral", "mistral")


def test_a_generation_prompt_may_open_the_thought() -> None:
    tokenizer = tokenizer_of("seed-oss")
    tokenizer.chat_template = "{{ messages[0].content }}<seed:think>"
    assert resolve_markers(tokenizer).template_opens_thinking
    tokenizer = tokenizer_of("olmo3")
    tokenizer.chat_template = "{{ messages[0].content }}<think>{% if 0 %}</think>{% endif %}"
    assert resolve_markers(tokenizer).template_opens_thinking


def test_an_unknown_model_is_told_what_its_template_shows_and_where_to_write_its_marks() -> None:
    tokenizer = tokenizer_of("seed-oss", "<my_reasoning>", ())
    with pytest.raises(ValueError, match=rf"<think> is \d+ tokens; .*kimi-k3.*shows <my_reasoning>; a file {OWN_FILE}"):
        resolve_markers(tokenizer)
    assert not resolve_markers(tokenizer, thinks=False).thinks
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        resolve_markers(tokenizer, thinks=False)


OWN = """
[thought]
open = "[[["
ends = ["]]]", "[stop]"]
text = true
"""


def test_marks_of_ones_own_stand_beside_the_model(tmp_path: Path) -> None:
    tokenizer_of("olmo3", "[[[").save_pretrained(tmp_path)
    (tmp_path / OWN_FILE).write_text(OWN)
    tokenizer, markers = load_markers(tmp_path)
    ids = tokenizer.encode("so 1 [stop]\n2", add_special_tokens=False)
    at = markers.end(ids)
    assert at is not None and "[stop]" in tokenizer.decode(ids[:at])
    assert (markers.family, markers.parser) == (OWN_FILE, None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", r"no table \[thought\]"),
        ('[thought]\nopen = "["\n', r"thought\.ends: missing"),
        ('[thought]\nopen = ""\nends = ["]"]\n', r"thought\.open: .*found ''"),
        ('[thought]\nopen = "["\nends = ["]"]\nbegin = "x"\n', r"thought\.begin: unknown key"),
        ("[thought", "expected TOML"),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence_with_its_key(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text(text)
    with pytest.raises(UserError, match=rf"{OWN_FILE}: .*{found}"):
        read_thought(tmp_path / OWN_FILE)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"ends": ("<eo",)}, "the mark '<eo' begins end-of-text"),
        ({"close": "so"}, "close is 'so' and holds no end of a thought"),
    ],
)
def test_marks_that_cannot_be_kept_are_refused(change: dict[str, Any], found: str) -> None:
    tokenizer, thought = tokenizer_of("olmo3"), thoughts()["olmo3"].model_copy(update=change)
    end = tokenizer.convert_tokens_to_ids("<eos>")
    with pytest.raises(ValueError, match=found):
        resolve_markers(tokenizer, (end,), own=("own", thought))


CLOSED = "{% if not enable_thinking %}{{ '<think></think>' }}{% endif %}"


def test_a_template_that_leaves_no_thought_is_refused_unless_the_family_tells_it_otherwise(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("think")
    tokenizer.chat_template += CLOSED
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"ends the thought in the prompt.*\[thought\.template\]"):
        load_markers(tmp_path)
    assert load_markers(tmp_path, thinks=False)[1].thinks
    table = OWN.replace("[[[", "<think>").replace("]]]", "</think>").replace(', "[stop]"', "")
    (tmp_path / OWN_FILE).write_text(table.replace("text = true", "[thought.template]\nenable_thinking = true"))
    tokenizer, markers = load_markers(tmp_path)
    assert markers.template == (("enable_thinking", True),)
    assert "<think>" not in tokenizer.decode(chat_prompt(tokenizer, "1+1=?"))
    messages = [{"role": "user", "content": "1+1=?"}]
    told = tokenizer.apply_chat_template(messages, tokenize=False, enable_thinking=False)
    assert told.endswith("<think></think>"), "who asks for no thought still gets none"


def test_a_family_by_its_name_is_a_view_of_the_checkpoint_and_comes_before_what_is_seen(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tokenizer_of("seed-oss", template="none").save_pretrained(model)
    with pytest.raises(ValueError, match=OWN_FILE):
        load_markers(model)
    view = with_family(model, "seed-oss", tmp_path / "views")
    assert view.parent == tmp_path / "views" and load_markers(view)[1].family == "seed-oss"
    assert with_family(model, "seed-oss", tmp_path / "views") == view
    assert (view / "tokenizer.json").resolve() == model / "tokenizer.json"
    own = tmp_path / "own.toml"
    own.write_text('[thought]\nopen = "<seed:think>"\nends = ["</seed:think>"]\n')
    other = with_family(view, str(own), tmp_path / "views")
    assert other != view and load_markers(other)[1].family == OWN_FILE
    copy_own(view, model)
    assert load_markers(model)[1].family == "seed-oss", "what is made of it keeps its marks"
    with pytest.raises(UserError, match='no family "seed-os", did you mean "seed-oss"'):
        with_family(model, "seed-os", tmp_path / "views")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>hm</think>4", ("hm", "4")),
        ("hm</think>4", ("hm", "4")),
        ("<think>hm", ("hm", "")),
        ("4", ("", "4")),
        ("<seed:think>hm</think></seed:think>4", ("hm</think>", "4")),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4", ("hm", "4")),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary",
            ("hm", "<|start|>assistant<|channel|>commentary"),
        ),
        ("4<|end|>", ("", "4<|end|>")),
        ("<think>\nhm\n</think>\n<answer>\n4", ("hm\n", "4")),
    ],
)
def test_a_thought_in_text_is_split_off_by_its_familys_marks(text: str, parts: tuple[str, str]) -> None:
    assert split_thought(text) == parts


@pytest.mark.parametrize("name", SPECIAL)
def test_a_thought_is_shown_without_its_marks(name: str, known: dict[str, tuple[Any, Markers]]) -> None:
    tokenizer, markers = known[name]
    thought, solution = (tuple(tokenizer.encode(text, add_special_tokens=False)) for text in ("so we", "it is"))
    for begun in ((), markers.think_start):
        ids = (*begun, *thought, *markers.close, *solution, markers.end_of_text[0])
        start = len(ids) - len(solution) - 1
        finishes = ThinkFinish.CLOSED, SolutionFinish.STOP
        done = Trajectory((7,), ids, (False,) * len(ids), start, *finishes)
        assert "".join(piece.text for piece in pieces(tokenizer, markers, done)) == "so weit is"
        assert response_text(tokenizer, markers, done) == ("so we", "it is")
        own_end = len(begun) + len(thought) + (markers.end(markers.close) or 0)
        own = Trajectory((7,), ids, (False,) * len(ids), own_end, *finishes)
        assert response_text(tokenizer, markers, own).solution == "it is", "the model opens its answer"
        for length in range(1, own_end):
            part = Trajectory((7,), ids[:length], (False,) * length, None, *finishes)
            shown = "".join(piece.text for piece in pieces(tokenizer, markers, part))
            assert "so we".startswith(shown) or name in TEXT, "a mark that is begun is not shown either"
