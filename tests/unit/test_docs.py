"""What the documents show works."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.data.registry import REGISTRY
from elastic_core.engines.base import drive
from elastic_core.errors import UserError
from elastic_core.strategies import STRATEGIES, Sampling
from flows import presets
from flows.commands import evaluate
from flows.commands.cli import cli
from tests.documents import DOCUMENTS, REPOSITORY, commands, page, strategy_shown
from tests.scripted import ScriptedEngine
from tests.unit.test_strategies import END, MARKERS, PROMPT, WORD

PLACE = ("benchmark", "strategy", "think_budget", "solution_budget")


@given(st.lists(st.integers(0, WORD), max_size=30), st.integers(0, 9), st.integers(1, 9))
def test_the_strategy_shown_keeps_its_budget(tokens: list[int], think: int, solution: int) -> None:
    drawn = iter(tokens)
    engine = ScriptedEngine(lambda prefix, seed: next(drawn, WORD))
    rollout = strategy_shown().decode(PROMPT, Budget(think, solution), MARKERS, Sampling())
    trajectory = asyncio.run(drive(rollout, {"policy": engine}, 0))
    assert trajectory.response_ids[0] == END
    assert trajectory.think_tokens == 0
    assert trajectory.solution_tokens <= think + solution


def test_every_strategy_is_explained() -> None:
    text = (REPOSITORY / "docs" / "strategies.md").read_text()
    family = "budget_forcing_wait1`, `2`, `4`, `6"
    assert family in text
    assert all(f"`{name}`" in text for name in STRATEGIES if not name.startswith("budget_forcing_wait"))


def test_links_between_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_readme_is_short_and_says_on_its_first_screen_what_ran_where() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= 90
    status = " ".join(lines[:15])
    assert all(f"docs/{name}.md" in status for name in ("own-model", "training", "gpu"))


def test_the_site_has_every_page() -> None:
    nav = (REPOSITORY / "infra" / "mkdocs.yml").read_text()
    assert [page.name for page in (REPOSITORY / "docs").glob("*.md") if f": docs/{page.name}\n" not in nav] == []


def example_cells(run: str = ".") -> list[dict[str, Any]]:
    """The cells of the embedded run, or of another one that documents tell of, `text` as they write them:
    "12.3 [10.1, 14.5]"."""
    cells = json.loads((REPOSITORY / "reports" / "example" / run / "summary.json").read_text())["cells"]
    ends = ("avg_at_k", "ci_low", "ci_high")
    return [cell | {"text": "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * cell[end] for end in ends))} for cell in cells]


def results() -> str:
    return " ".join(page("results").read_text().split())


def test_the_page_of_the_word_problems_has_every_cell_under_separate_budgeting() -> None:
    text = (REPOSITORY / "docs" / "own-model.md").read_text()
    measured = [cell for cell in example_cells("smollm2-words") if cell["strategy"] != "vanilla"]
    assert {cell["model"] for cell in measured} == {"base", "trained", "control"}
    assert all(cell["text"] in text for cell in measured)


def test_the_results_say_wherever_training_lowers_accuracy_beyond_doubt_and_where_thinking_does() -> None:
    (lowered,) = re.findall(r"- \*\*Where training lowers a number\*\*.*?(?= - )", results())
    (hurt,) = re.findall(r"- \*\*More thinking can hurt\.\*\*.*?(?= - )", results())
    cells = {tuple(cell[name] for name in ("model", *PLACE)): cell for cell in example_cells()}
    fallen = [key[1:] for key, cell in cells.items() if cells["base", *key[1:]]["ci_low"] > cell["ci_high"]]
    assert {key[1] for key in fallen} == {"reasonflux_zero"}
    for key in fallen:
        assert cells["base", *key]["text"] in lowered
        assert f"{100 * cells['trained', *key]['avg_at_k']:.1f} [" in lowered
    easy = [cells["base", "miniature-easy", "separate", t, 32] for t in (0, 48)]
    assert round(100 * (easy[0]["avg_at_k"] - easy[1]["avg_at_k"]), 1) == 34.8
    assert all(cell["text"] in hurt for cell in easy)


COMING_FROM = REPOSITORY / "docs" / "coming-from.md"
THEIRS = {
    "eval_model.sh": "--model --datasets --output-dir --n --max-length --tp --e1-mode --e1-thinking-length "
    "--e1-solution-length",
    "cf_elo_calc.py": "--results_path --pass_n",
    "e1_math_1.5b_1k_1k.sh": "data.train_batch_size data.max_prompt_length data.max_response_length optim.lr "
    "ppo_mini_batch_size ppo_max_token_len_per_gpu kl_loss_coef param_offload rollout.tensor_model_parallel_size "
    "rollout.temperature rollout.val_temperature rollout.gpu_memory_utilization rollout.n= rollout.n_val "
    "rollout.e1_thinking_length rollout.e1_solution_length trainer.logger trainer.val_before_train "
    "trainer.n_gpus_per_node trainer.nnodes trainer.save_freq trainer.test_freq trainer.total_training_steps "
    "adv_estimator val_batch_size use_remove_padding use_dynamic_bsz use_kl_loss kl_loss_type kl_ctrl.kl_coef "
    "ulysses_sequence_parallel_size enable_gradient_checkpointing rollout.e1_mode critic_warmup project_name "
    "experiment_name default_hdfs_dir total_epochs",
    "llamafactory-cli train": "--stage --do_train --model_name_or_path --preprocessing_num_workers --finetuning_type "
    "--template --flash_attn --dataset_dir --dataset --cutoff_len --learning_rate --num_train_epochs --max_samples "
    "--per_device_train_batch_size --gradient_accumulation_steps --lr_scheduler_type --max_grad_norm --logging_steps "
    "--save_steps --warmup_steps --packing --report_to --output_dir --bf16 --plot_loss --trust_remote_code "
    "--ddp_timeout --include_num_input_tokens_seen --optim --deepspeed",
    "lm_eval": "OPENAI_API_KEY --model_args --tasks --batch_size --apply_chat_template --output_path --log_samples "
    "--gen_kwargs",
    "ReasonFlux(…)": "navigator_path template_matcher_path inference_path template_path",
    "": "download_datasets.py deepscaler_dataset.py deepcoder_dataset.py e1_math_1.5b_1k_1k.sh eval_model.sh "
    "cf_elo_calc.py llamafactory-cli lm_eval --local_dir --hdfs_dir",
}
"""Commands and flags of the authors' READMEs and scripts, by the section that gives ours, at the commits in
elastic_core/data/registry.toml. "" is the whole page."""


def sections() -> dict[str, str]:
    """The page's parts by the command that they are of."""
    parts = re.split(r"^### `(.+)`\n", COMING_FROM.read_text(), flags=re.MULTILINE)
    return {"": COMING_FROM.read_text(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize("section", THEIRS)
def test_every_command_and_flag_of_the_authors_code_has_ours_beside_it(section: str) -> None:
    missing = [name for name in THEIRS[section].split() if name not in sections()[section]]
    assert missing == []
    for line in sections()[section].splitlines():
        if line.startswith("| ") and not line.startswith("| theirs"):
            theirs, ours = line.strip("| ").split(" | ")
            assert theirs and ours


def ours() -> list[str]:
    """Every command of ours on the page; settings follow the command at their table's head."""
    found, head = [], ""
    for line in COMING_FROM.read_text().splitlines():
        for code in re.findall(r"`([^`]+)`", line):
            if code.startswith("elastic "):
                head = code if line.startswith("| theirs") else head
                found.append(code)
            elif code.startswith("--set "):
                found.append(f"{head} {code}")
    return found


def parsed(command: str) -> click.Context:
    """The command as click reads it, without running it; raises ClickException on what it does not know."""
    _, *arguments = shlex.split(command)
    context, at = click.Context(cli), cli
    while isinstance(at, click.Group):
        name, at, arguments = at.resolve_command(context, arguments)  # type: ignore[assignment]
        context = at.make_context(name, arguments, parent=context) if not isinstance(at, click.Group) else context
    return context


def require_valid(command: str) -> None:
    """Raises where the command line, a preset, a setting or a data set of it does not exist."""
    context = parsed(command)
    given = context.params
    changes = given.get("overrides", {})
    if context.info_name == "evaluate":
        asked = ("model", "benchmarks", "budgets", "samples", "problems", "tokenizer")
        changes |= evaluate.settings_of(gpus=given["gpus"] or 0, **{name: given[name] for name in asked})
        presets.resolve(evaluate.PRESET, changes)
    elif given.get("preset") not in (None, *PLACEHOLDERS):
        presets.resolve(given["preset"], changes)
    if context.info_name == "fetch":
        assert set(given["names"]) <= set(REGISTRY)


PLACEHOLDERS = ("P", "PRESET")
"""Of a preset, where the reader puts one."""


@pytest.mark.parametrize("command", ours())
def test_our_commands_on_that_page_are_commands_and_their_settings_are_settings(command: str) -> None:
    require_valid(command.replace(" …", ""))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_every_command_that_a_document_shows_is_one_and_its_settings_are_settings(document: Path) -> None:
    for command in commands(document):
        require_valid(command)


def test_every_target_of_make_that_a_document_names_is_one() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))
    for document in DOCUMENTS:
        named = [line.split()[1] for line in commands(document, "make")]
        assert {*named, *re.findall(r"`make ([a-z]+)", document.read_text())} <= targets, document.name


def test_the_demo_is_the_preset_that_the_documents_tell_of() -> None:
    assert "$(BIN)/elastic run pipeline --preset embedded" in (REPOSITORY / "Makefile").read_text()


@pytest.mark.parametrize("preset", ["e1-math-1.5b", "reasonflux-f1-7b"])
def test_the_authors_values_are_those_of_our_presets(preset: str) -> None:
    """But for memory, of which our trainer and its sampler share a device otherwise."""
    settings = presets.resolve(preset)
    for command in ours():
        given = parsed(command.replace(" …", "")).params
        if given.get("preset") == preset and "OWNER" not in command and "reasonflux_zero" not in command:
            changed = given["overrides"]
            for name in ("train.memory_fraction", "warm_start.sft.offload"):
                changed.pop(name, None)
            assert presets.resolve(preset, changed) == settings, command


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    assert len(ours()) > 50
    with pytest.raises(click.ClickException):
        parsed("elastic run sweeps")
    with pytest.raises(click.ClickException):
        parsed("elastic run sweep --presets x")
    with pytest.raises(UserError):
        require_valid("elastic doctor --preset smoke --set sweep.budget=x")
    assert len([command for document in DOCUMENTS for command in commands(document)]) > 80


@pytest.mark.parametrize("walk", ["training", "sweep", "serving"])
def test_a_walk_names_files_that_are_there(walk: str) -> None:
    file = REPOSITORY / "elastic_core" / walk / "README.md"
    named = re.findall(r"\]\(([^)]+)\)", file.read_text())
    assert len(named) >= 9
    assert not [name for name in named if not (file.parent / name).is_file()]
