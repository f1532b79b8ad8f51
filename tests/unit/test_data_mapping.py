"""From upstream's rows to ours: real rows where they are there, and rows in upstream's shapes where they are not."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.data import mapping
from elastic_core.data.clean import clean_batches, file_batches
from elastic_core.data.dataset import BadRow, GitHub
from elastic_core.data.registry import REGISTRY
from elastic_core.rewards import grade
from elastic_core.rewards.truth import MathTruth, split_answers
from tests.upstream import UPSTREAM, needs_upstream

PRESENT = ["aime-1983-2023", "aime-2022-2024", "aime-2024", "aime-2025", "amc", "math500", "minerva"]


def upstream(name: str, ids: pl.Series | None = None) -> pl.DataFrame:
    entry = REGISTRY[name]
    assert isinstance(entry.source, GitHub)
    files = [UPSTREAM / entry.source.repository / file.path for file in entry.files]
    return pl.concat(clean_batches(entry, file_batches(entry, files), ids))


def frame(*rows: dict[str, object], fields: object) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=fields).with_row_index("row", offset=1)  # type: ignore[arg-type]


@needs_upstream
@pytest.mark.parametrize("name", PRESENT)
def test_every_row_upstream_has_a_question_an_id_of_its_own_and_an_answer_that_is_graded_as_right(name: str) -> None:
    rows = upstream(name)
    assert rows.height == REGISTRY[name].rows
    assert rows["id"].is_unique().all()
    assert rows.select(pl.col("question", "truth").str.strip_chars().str.len_chars().min()).row(0) > (0, 0)
    for truth in rows["truth"].head(40):
        for answer in MathTruth.decode(truth).answers:
            assert grade("math", f"</think>\\boxed{{{answer}}}", truth).score == 1, (answer, truth)


@needs_upstream
def test_aime_answers_are_integers_without_leading_zeros_and_amcs_lose_the_float() -> None:
    for name in ("aime-1983-2023", "aime-2022-2024", "aime-2024", "aime-2025"):
        assert upstream(name)["truth"].str.contains(r"^(0|[1-9]\d{0,2})$").all()
    assert upstream("aime-2024").filter(id="2024-I-2")["truth"].item() == "25"  # upstream has "025"
    assert upstream("amc")["truth"].str.contains(r"^-?\d+$").all() and upstream("amc")["truth"][0] == "142"
    rows = [{"problem": "p", "answer": 0.5}, {"problem": "q", "answer": -4.0}]
    assert mapping.number(frame(*rows, fields=mapping.number.fields))["truth"].to_list() == ["0.5", "-4"]


@needs_upstream
def test_minerva_accepts_each_variant() -> None:
    truths = [MathTruth.decode(truth) for truth in upstream("minerva")["truth"]]
    assert sum(len(truth.answers) > 1 for truth in truths) == 40  # of 75 lists; the others repeat one text
    assert all(truth.match == "any" and answer == answer.strip() for truth in truths for answer in truth.answers)
    assert truths[10].answers == ("0.01", "0.02")


@needs_upstream
def test_codeforces_and_its_ids_are_aligned_and_ratings_are_numbers_of_users() -> None:
    ids = upstream("codeforces-ids")["id"]
    rows = upstream("codeforces", ids)
    assert rows["id"].to_list() == ids.to_list()
    assert rows.filter(id="1971A")["question"].item().startswith("\nYou are given two integers")
    ratings = upstream("codeforces-ratings")
    assert ratings.height == 2502 and ratings.filter(rating=-53)["users"].item() == 2


@needs_upstream
def test_the_template_library_is_one_row_per_template() -> None:
    rows = upstream("reasonflux-templates")
    assert rows.height == 420
    assert rows["id"].is_unique().all()
    assert rows["chapter"].n_unique() == 18
    assert rows.select("chapter", "section").n_unique() == 76
    assert rows.height - rows.select("chapter", "section", "name").n_unique() == 7
    assert all(
        json.loads(text)["template_name"].strip() == name for name, text in rows.select("name", "json").iter_rows()
    )


@pytest.mark.parametrize("answer", ["1000", "-1", "2.5", "abc", ""])
def test_an_aime_answer_out_of_range_is_refused_with_its_row(answer: str) -> None:
    good = {"problem": "p", "answer": "1", "year": 2020, "aime_number": 1, "problem_number": 1}
    with pytest.raises(BadRow, match="from 0 to 999") as caught:
        mapping.aime(frame(good, {**good, "answer": answer}, fields=mapping.aime.fields))
    assert caught.value.row == 2


def olympiad(**changes: object) -> MathTruth:
    row = {"problem": "p", "answer": ["2"], "id": "7", "is_multiple_answer": False, "unit": None, "error": None}
    rows = mapping.olympiad(frame({**row, **changes}, fields=mapping.olympiad.fields))
    assert rows.select("id", "question").row(0) == ("7", "p")
    return MathTruth.decode(rows["truth"].item())


def test_olympiadbench_keeps_every_answer_its_tolerance_and_its_unit() -> None:
    assert olympiad() == MathTruth(("2",))
    assert olympiad(answer=["$1,-2$"], is_multiple_answer=True) == MathTruth(("1", "-2"), "all")
    assert olympiad(answer=["(1,2),(3,4)"], is_multiple_answer=True) == MathTruth(("(1,2)", "(3,4)"), "all")
    assert olympiad(answer=["1.5"], error="1e-1", unit="cm") == MathTruth(("1.5",), "any", 0.1, "cm")
    assert olympiad(answer=["1,2"], is_multiple_answer=True, error="0.1,0.2").tolerance == 0.2
    with pytest.raises(BadRow, match="tolerance"):
        olympiad(error="small")


def test_several_answers_are_all_wanted_in_any_order_and_within_their_tolerance() -> None:
    truth = MathTruth(("1", "-2"), "all").encode()
    for answer, score in (("-2, 1", 1), ("1", 0), ("1, -2, 3", 0), ("1, 1", 0)):
        assert grade("math", f"</think>\\boxed{{{answer}}}", truth).score == score, answer
    near = MathTruth(("1.5",), "any", 0.1).encode()
    for answer, score in (("1.45", 1), ("1.39", 0), ("x", 0)):
        assert grade("math", f"</think>\\boxed{{{answer}}}", near).score == score, answer


texts = st.text(max_size=20)
truths = st.builds(
    MathTruth,
    st.lists(texts, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["any", "all"]),
    st.none() | st.floats(0, 10),
    st.none() | texts,
)


@given(truths)
def test_a_truth_survives_its_text(truth: MathTruth) -> None:
    decoded = MathTruth.decode(truth.encode())
    # "All of one" and "any of one" are the same, and a single answer is its own text.
    assert decoded == truth or (len(truth.answers) == 1 and decoded.answers == truth.answers)


@given(st.text())
def test_a_plain_answer_is_its_own_text_unless_it_looks_like_an_encoded_one(answer: str) -> None:
    assert MathTruth.decode(MathTruth((answer,)).encode()) == MathTruth((answer,))
    with pytest.raises(ValueError):  # It only begins like one.
        MathTruth.decode('{"answers":["1"],"tolerance_":1}')


@given(st.lists(st.text("0123456789xy", min_size=1), min_size=1))
def test_answers_are_split_at_commas(parts: list[str]) -> None:
    assert split_answers(", ".join(parts)) == parts


GPQA_ROW = {
    "Record ID": "rec1",
    "Question": " What? ",
    "Correct Answer": "yes\n",
    **{f"Incorrect Answer {i}": f"no {i}" for i in (1, 2, 3)},
}


def test_choices_are_listed_with_letters_and_the_truth_is_the_right_ones() -> None:
    (row,) = mapping.gpqa(frame(GPQA_ROW, fields=mapping.gpqa.fields)).to_dicts()
    assert row["question"].startswith("What?\n\nA) ")
    assert f"\n{row['truth']}) yes" in row["question"]
    assert [line[:3] for line in row["question"].splitlines()[2:]] == ["A) ", "B) ", "C) ", "D) "]


def test_the_order_of_choices_depends_on_the_question_alone() -> None:
    rows = [{**GPQA_ROW, "Record ID": str(i), "Question": f"What is {i}?"} for i in range(200)]
    together = mapping.gpqa(frame(*rows, fields=mapping.gpqa.fields))
    alone = pl.concat([mapping.gpqa(frame(row, fields=mapping.gpqa.fields)) for row in reversed(rows)])
    assert together.drop("row").rows() == list(reversed(alone.drop("row").rows()))
    counts = together["truth"].value_counts()
    assert counts.height == 4 and counts["count"].min() > 25  # 50 each on average


def test_a_right_answer_that_is_also_wrong_is_refused() -> None:
    with pytest.raises(BadRow, match="wrong"):
        mapping.gpqa(frame({**GPQA_ROW, "Incorrect Answer 2": "yes"}, fields=mapping.gpqa.fields))
    with pytest.raises(BadRow, match="Incorrect Answer 3"):
        mapping.gpqa(frame({**GPQA_ROW, "Incorrect Answer 3": None}, fields=mapping.gpqa.fields))


def test_instruction_input_and_output_become_a_conversation() -> None:
    rows = mapping.alpaca(
        frame(
            {"instruction": "Solve.", "input": "1+1", "output": "2"},
            {"instruction": "Say hello.", "input": None, "output": "hello"},
            fields=mapping.alpaca.fields,
        )
    )
    assert [[m["content"] for m in row] for row in rows["messages"]] == [["Solve.\n1+1", "2"], ["Say hello.", "hello"]]
    with pytest.raises(BadRow, match="output") as caught:
        mapping.alpaca(frame({"instruction": "a", "output": "b"}, {"instruction": "a"}, fields=mapping.alpaca.fields))
    assert caught.value.row == 2


def test_a_template_without_a_name_is_refused_with_its_position(tmp_path: Path) -> None:
    raw = pl.DataFrame({"key": ["C"], "json": ['{"S": [{"template_name": "t"}, {}]}'], "row": [1]})
    with pytest.raises(BadRow, match="C / S, template 2: "):
        mapping.template_library(raw)
