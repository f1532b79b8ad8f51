"""ReasonFlux-F1: alpaca files become rows of token ids, and our own trajectories become alpaca files."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.data.clean import clean_batches, file_batches
from elastic_core.errors import UserError
from elastic_core.miniature.grammar import build_tokenizer
from elastic_core.reasonflux import sft
from elastic_core.reasonflux.chat_templates import CHAT_TEMPLATES, own_template, require_fit

R1, QWEN, MINIATURE = (CHAT_TEMPLATES[name] for name in ("deepseekr1", "qwen", "miniature"))
THINK = ("<think>", "</think>")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)

# What a question and its answer go through in the official templates; branches for tools are left out.
R1_OFFICIAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{% set content = message['content'] %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"
)
QWEN_OFFICIAL = (
    "{{ '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_tokenizer(markers: tuple[str, ...], chat_template: str, **special: str) -> Any:
    """One token per byte and marker, so that any text survives."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {piece: i for i, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in (*markers, *THINK)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=chat_template, clean_up_tokenization_spaces=False, **special
    )


@cache
def r1() -> Any:
    return byte_tokenizer(R1.markers, R1_OFFICIAL, bos_token=R1.markers[0], eos_token=R1.end)


@cache
def qwen() -> Any:
    return byte_tokenizer(QWEN.markers, QWEN_OFFICIAL, eos_token=QWEN.end)


TOKENIZERS: dict[str, Callable[[], Any]] = {"deepseekr1": r1, "qwen": qwen, "miniature": cache(build_tokenizer)}


# Chat templates


@pytest.mark.parametrize("name", CHAT_TEMPLATES)
def test_each_template_fits_its_own_tokenizer_and_no_other(name: str) -> None:
    for other, tokenizer in TOKENIZERS.items():
        if other == name:
            require_fit(CHAT_TEMPLATES[name], tokenizer())
        else:
            with pytest.raises(UserError, match=f'^.*chat template "{name}" .*$'):
                require_fit(CHAT_TEMPLATES[name], tokenizer())
    ends_otherwise = byte_tokenizer(R1.markers, R1_OFFICIAL, bos_token=R1.markers[0], eos_token="<|EOT|>")
    with pytest.raises(UserError, match=r"<\|EOT\|>"):
        require_fit(R1, ends_otherwise)
    asks_otherwise = byte_tokenizer(QWEN.markers, QWEN_OFFICIAL.replace("a helpful", "an"), eos_token=QWEN.end)
    with pytest.raises(UserError, match=r"'<\|im_start\|>system.*'"):
        require_fit(QWEN, asks_otherwise)


def test_rendering_is_the_official_one_with_the_thought_kept() -> None:
    messages = [{"role": "user", "content": "2+2=?"}, {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n4"}]
    official = r1().apply_chat_template(messages, tokenize=False)
    ours = "".join(R1.exchange("2+2=?", messages[1]["content"]))
    assert official == ours.replace("<think>\nEasy.\n</think>", "")
    asked = r1().apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert ours.startswith(asked)
    # After a turn's end-of-text nothing is generated, so nothing is trained.
    theirs = qwen().apply_chat_template(messages, tokenize=False)
    assert theirs == "".join(QWEN.exchange("2+2=?", messages[1]["content"])) + "\n"


# The chat template that comes with a model


def official(template: str, **changes: Any) -> Any:
    """A model of QWEN's tokens that opens its thoughts."""
    return byte_tokenizer(QWEN.markers, template, **{"eos_token": QWEN.end} | changes)


KEEPS = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are small.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OPENS = KEEPS.replace("assistant\n'", "assistant\n<think>\n'")


@pytest.mark.parametrize("template", [KEEPS, OPENS])
@given(question=TEXTS, thought=TEXTS, system=st.sampled_from(["", "Be brief."]))
def test_a_row_is_what_the_models_own_template_writes(template: str, question: str, thought: str, system: str) -> None:
    tokenizer = official(template)
    own = own_template(tokenizer)
    assert own.end == QWEN.end and set(own.markers) == set(QWEN.markers)
    response = f"<think>\n{thought}</think>\n\n2"
    [row] = sft.encode(tokenizer, own, [sft.Exchange(question, response, system)], cutoff=2048)
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": response}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert tokenizer.decode(row.input_ids) == whole.removesuffix("\n")
    num_prompt = row.loss_mask.index(1)
    asked = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    assert asked == tokenizer.decode(row.input_ids[:num_prompt]), "learning starts where generation does"
    assert tokenizer.decode(row.input_ids[num_prompt:]) == response.removeprefix(own.opening) + QWEN.end


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (r1, "thought.*deepseekr1, qwen, miniature"),
        (lambda: official(KEEPS.replace("assistant\n'", "assistant\nAnswer: '")), "Answer"),
        (lambda: official(KEEPS.replace("content']", "content'] + '\\n'")), r"'\\n<\|im_end\|>"),
        (lambda: official(KEEPS, eos_token="<|EOT|>"), r"<\|EOT\|>; `elastic model prepare"),
        (lambda: official(""), "none"),
        (lambda: official("{{ raise_exception('No.') }}"), r"No\."),
    ],
)  # fmt: skip
def test_a_template_that_cannot_tell_responses_from_prompts_is_refused(
    tokenizer: Callable[[], Any], message: str
) -> None:
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        own_template(tokenizer())


def test_a_system_prompt_without_a_place_is_refused_or_counted(tmp_path: Path) -> None:
    refuses = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role.') }}{% endif %}" + KEEPS
    with pytest.raises(UserError, match="No system role"):
        own_template(official(refuses)).prompt("1+1=?", "Be brief.")
    file = tmp_path / "c.parquet"
    roles = ("system", "user", "assistant")
    messages = [{"role": role, "content": text} for role, text in zip(roles, ("Be brief.", "1+1=?", "2"), strict=True)]
    pl.DataFrame({"messages": [messages]}).write_parquet(file)
    report = sft.write_rows(file, build_tokenizer(), MINIATURE, 32, tmp_path / "rows.parquet")
    assert report.num_unsaid == 1 and "1 without their system prompt" in str(report)
    tokenizer = official(OPENS)
    report = sft.write_rows(file, tokenizer, own_template(tokenizer), 2048, tmp_path / "own.parquet")
    assert (report.num_unsaid, report.num_unopened) == (0, 1)
    assert "Be brief." in tokenizer.decode(pl.read_parquet(tmp_path / "own.parquet")["input_ids"][0].to_list())


# Rows


@pytest.mark.parametrize("name", ["deepseekr1", "qwen"])
@given(question=TEXTS, thought=TEXTS, solution=TEXTS)
def test_rows_decode_to_exactly_what_was_to_be_said_and_only_that_is_learnt(
    name: str, question: str, thought: str, solution: str
) -> None:
    template, tokenizer = CHAT_TEMPLATES[name], TOKENIZERS[name]()
    output = f"<think>\n{thought}</think>{solution}"
    [row] = sft.encode(tokenizer, template, [sft.Exchange(question, output)], cutoff=2048)
    num_prompt = row.loss_mask.index(1)
    assert row.loss_mask == [0] * num_prompt + [1] * (len(row.input_ids) - num_prompt)
    assert tokenizer.decode(row.input_ids[:num_prompt]) == template.prompt(question)
    assert tokenizer.decode(row.input_ids[num_prompt:-1]) == output
    assert row.input_ids[-1] == tokenizer.eos_token_id and not row.truncated
    assert row.input_ids.count(tokenizer.convert_tokens_to_ids("</think>")) == 1


@pytest.mark.parametrize(
    ("prompt", "response", "kept"),
    [(100, 200, (100, 200)), (100, 20000, (100, 16284)), (20000, 100, (16284, 100)), (10000, 30000, (4096, 12288))],
)
def test_a_cutoff_spares_what_is_short_and_shares_between_two_long_ones(
    prompt: int, response: int, kept: tuple[int, int]
) -> None:
    assert sft.kept_lengths(prompt, response, 16384) == kept


@given(prompt=st.integers(1, 5000), response=st.integers(1, 5000), cutoff=st.integers(8, 3000))
def test_a_cutoff_is_kept_and_nothing_lost_below_it(prompt: int, response: int, cutoff: int) -> None:
    kept = sft.kept_lengths(prompt, response, cutoff)
    assert sum(kept) == min(prompt + response, cutoff)
    assert 0 <= kept[0] <= prompt and 0 <= kept[1] <= response


def test_what_was_cut_or_left_out_is_counted(tmp_path: Path) -> None:
    outputs = ["<think>1+1=2</think>2", "<think>" + "1+1=2" * 20 + "</think>2", "2", "2<eos><|user|>more"]
    conversations = tmp_path / "c.parquet"
    messages = [[{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": output}] for output in outputs]
    pl.DataFrame({"messages": messages}).write_parquet(conversations)
    report = sft.write_rows(conversations, build_tokenizer(), MINIATURE, 32, tmp_path / "rows.parquet")
    assert (report.num_rows, report.num_truncated, report.num_unopened, report.num_marked) == (3, 1, 1, 1)
    rows = pl.read_parquet(tmp_path / "rows.parquet")
    assert rows.schema == sft.ROWS and rows["input_ids"].list.len().max() == 32
    assert report.num_trained_tokens == rows["loss_mask"].explode().sum()
    assert "1 cut at the cutoff" in str(report)
    again = sft.write_rows(conversations, build_tokenizer(), MINIATURE, 32, tmp_path / "rows.parquet")
    assert again == report


# Alpaca files


ALPACA: list[dict[str, Any]] = [
    {"instruction": "1+1=?", "input": "", "output": "2", "system": "", "id": 0},
    {"instruction": "Add.", "input": "2 and 3", "output": "<think>2+3</think>5", "system": "Be brief.", "id": 1},
]


def write(rows: list[dict[str, Any]], file: Path) -> Path:
    if file.suffix == ".json":
        file.write_text(json.dumps(rows))
    elif file.suffix == ".jsonl":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif file.suffix == ".csv":
        pl.DataFrame(rows).write_csv(file)
    else:
        pl.DataFrame(rows).write_parquet(file)
    return file


def conversations(file: Path) -> list[list[tuple[str, str]]]:
    entry = sft.file_dataset(file)
    return [
        [(message["role"], message["content"]) for message in messages]
        for rows in clean_batches(entry, file_batches(entry, [file]))
        for messages in rows["messages"]
    ]


def exchanges(file: Path) -> list[tuple[str, str]]:
    return [(question, answer) for *_, (_, question), (_, answer) in conversations(file)]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_alpaca_files_are_read_in_every_format(suffix: str, tmp_path: Path) -> None:
    file = write(ALPACA, tmp_path / f"data{suffix}")
    assert exchanges(file) == [("1+1=?", "2"), ("Add.\n2 and 3", "<think>2+3</think>5")]
    assert [conversation[0] for conversation in conversations(file)] == [("user", "1+1=?"), ("system", "Be brief.")]
    assert sft.unused_fields([file]) == {"id": 2}
    rows = [{key: row[key] for key in ("instruction", "input", "output")} for row in ALPACA]
    without = conversations(write(rows, tmp_path / f"d{suffix}"))
    assert [len(conversation) for conversation in without] == [2, 2], "no row needs a system prompt"


@pytest.mark.parametrize("broken", [{"output": None}, {"output": " "}, {"instruction": ""}, {"instruction": None}])
def test_a_row_without_question_or_response_is_named_by_its_position(broken: dict[str, Any], tmp_path: Path) -> None:
    file = write([ALPACA[0], ALPACA[1] | broken], tmp_path / "data.json")
    with pytest.raises(UserError, match=rf"data\.json: row 2: {next(iter(broken))} "):
        exchanges(file)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reasonflux-f1-stf"):
        sft.file_dataset(Path("reasonflux-f1-stf"))
    for name, reason in (("data.txt", r"\.json, \.jsonl, .* in the alpaca form"), ("data.csv", "data.csv: is empty")):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match=reason):
            sft.file_dataset(tmp_path / name)


# Trajectories


def trajectories(**columns: list[Any]) -> pl.DataFrame:
    num = len(next(iter(columns.values())))
    plain = {
        "benchmark": ["b"] * num, "problem": ["0"] * num, "strategy": ["reasonflux_zero"] * num,
        "grade_status": ["correct"] * num, "thinking": ["t"] * num, "solution": ["s"] * num,
    }  # fmt: skip
    return pl.DataFrame(plain | columns)


QUESTIONS = {("b", "0"): "1+1=?", ("b", "1"): "2+2=?"}


def test_correct_responses_become_an_alpaca_file_and_are_read_again_as_they_were(tmp_path: Path) -> None:
    table = trajectories(
        problem=["0", "0", "1", "1", "1"],
        grade_status=["correct", "correct", "wrong", "correct", "correct"],
        strategy=["reasonflux_zero"] * 4 + ["separate"],
        thinking=["1+1", "1+1", "2+2=5", "2+2\u2028", "x"],
        solution=["2", "2", "5", "\\boxed{4}", "4"],
    )
    rows = sft.alpaca_rows(table, QUESTIONS, R1, "reasonflux_zero")
    assert rows == [
        {"instruction": "1+1=?", "input": "", "output": "<think>\n1+1</think>2"},
        {"instruction": "2+2=?", "input": "", "output": "<think>\n2+2\u2028</think>\\boxed{4}"},
    ]
    with pytest.raises(UserError, match=r"vanilla.*: reasonflux_zero"):  # It has no correct rows.
        sft.alpaca_rows(trajectories(thinking=["t"]), QUESTIONS, R1, "vanilla")
    (tmp_path / "distilled.json").write_text(json.dumps(rows))
    assert exchanges(tmp_path / "distilled.json") == [(row["instruction"], row["output"]) for row in rows]


@pytest.mark.parametrize("template", CHAT_TEMPLATES.values(), ids=CHAT_TEMPLATES)
def test_a_conversation_becomes_one_thought_without_its_requests(template: Any) -> None:
    """As the strategy leaves it: thoughts closed at once, requests as user turns, the last one open."""
    user, assistant = template.before.removeprefix(template.markers[0]), template.after + template.opening
    thinking = (
        f"</think>Plan: add.{template.end}{user}Instruct the solver.{assistant}</think>Add both.{template.end}"
        f"{user}Solve.{assistant}</think> 1+1=2{template.end}{user}State the answer.{assistant}"
    )
    response = sft.distilled(thinking, " \\boxed{2}", template)
    assert response == f"{template.opening}Plan: add.\n\nAdd both.\n\n1+1=2{template.closing}\\boxed{{2}}"
