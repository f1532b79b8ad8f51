"""Prepares an instruction-tuned checkpoint for a budget on its thoughts: `<think>` and `</think>` become single tokens,
the end-of-text is the chat template's, and the generation prompt opens the thought.

Weights stay, but for the embeddings of new tokens, and of spare ones that training never met: their rows are the same.
A model that was never trained to think has to learn the markers by fine-tuning, see docs/own-model.md.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError, first_line
from elastic_core.models import files as model_files
from elastic_core.models.files import let_others_read
from elastic_core.models.special_tokens import chat_text, load_markers, render
from elastic_core.system.files import replacing_directory

THINK, THINK_END = "<think>", "</think>"
OPENING = f"{THINK}\n"  # End of a prepared model's generation prompt.
_SPARE = re.compile(r"reserved|unused|extra_(id_)?\d|^<gh_stars>$|^<issue_start>$")
"""Added tokens that no conversation holds: reserved ones, and StarCoder's and SmolLM's marks in code repositories."""
_NOISE = 0.5
"""Of a new row around the mean of the others, in their standard deviations: fine-tuning can tell two markers apart, and
neither is more likely than tokens that mean something."""
_SAME = 0.02  # Rows nearer to each other than this share of the usual distance from the mean were never trained apart.


@dataclass(frozen=True)
class Prepared:
    """A prepared model: by marker its id and former name (None: the same, "": new), and the end-of-text."""

    directory: Path
    markers: dict[str, tuple[int, str | None]]
    end_of_text: str

    def __str__(self) -> str:
        origin = {None: "as before", "": "new"}
        markers = ", ".join(
            f"{marker} is token {token} ({origin.get(former, f'was {former}')})"
            for marker, (token, former) in self.markers.items()
        )
        return f"{self.directory}: {markers}; a response ends with {self.end_of_text}, a prompt with {THINK}"


def prepare(model: str, to: Path, think: str | None = None, think_end: str | None = None) -> Prepared:
    """Write a checkpoint that thinks between markers to the directory `to`, which appears complete or not at all.

    Args:
        model: directory of a Hugging Face checkpoint, a file of weights in GGUF, or OWNER/NAME on the hub.
        think, think_end: tokens of the model's vocabulary that become `<think>` and `</think>`. Without them those of
            these names do, else two spare ones, else two new ones.

    Raises:
        UserError: when the model cannot be read, lacks a chat template or a token, or `to` exists.
    """
    if to.exists():
        raise UserError(f"--to {to}: is there already; give a directory that is not")
    if (think is None) != (think_end is None) or (think is not None and think == think_end):
        raise UserError("--think and --think-end name two tokens; give both or neither")
    network, tokenizer = _load(model)
    if not tokenizer.chat_template:
        raise UserError(f"{model}: the tokenizer has no chat template; take the instruction-tuned model of its family")
    rows, added = network.get_input_embeddings().weight.shape[0], tokenizer.added_tokens_decoder
    # Added tokens without an embedding may be new; others are a sign that the tokenizer is another model's.
    if any(token >= rows and token not in added for token in tokenizer.get_vocab().values()):
        raise UserError(
            f"{model}: the tokenizer has {len(tokenizer)} tokens and the model embeds {rows}; they are not of one model"
        )
    former = _former_names(model, tokenizer, think, think_end)
    with replacing_directory(to) as directory:
        tokenizer = _with_markers(tokenizer, former, directory)
        tokenizer.name_or_path = model  # What messages call it.
        _embed(network, tokenizer, [tokenizer.convert_tokens_to_ids(marker) for marker in former])
        _end_text(model, network, tokenizer)
        # The generation prompt is to end in `<think>` and a newline, if it does not end in `<think>` already.
        asked = chat_text(tokenizer, "1+1=?")
        if not asked.rstrip().endswith(THINK):
            template = tokenizer.get_chat_template().removesuffix("\n")  # jinja itself drops the last newline.
            tokenizer.chat_template = template + "{{ '" + THINK + "\\n' if add_generation_prompt else '' }}"
            assert chat_text(tokenizer, "1+1=?") == asked + OPENING, asked
        network.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        try:
            written, resolved = load_markers(directory)
        except ValueError as error:
            raise UserError(f"{model}: cannot be made ready: {error}") from None
        assert resolved.template_opens_thinking and written.eos_token_id in resolved.end_of_text, directory
        let_others_read(directory)
    markers = {marker: (tokenizer.convert_tokens_to_ids(marker), name) for marker, name in former.items()}
    return Prepared(to, markers, tokenizer.eos_token)


def _load(model: str) -> tuple[Any, Any]:
    """Network and tokenizer, in the file's precision; a GGUF's is 32 bits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = Path(model)
    if file.suffix == ".gguf":
        if not file.is_file():
            raise UserError(f"{model}: no such file")
        if importlib.util.find_spec("gguf") is None:
            raise UserError("reading a .gguf file takes the package gguf, which is not installed: run `make install`")
        directory, how = file.parent, {"gguf_file": file.name}
    else:
        directory, how = model_files.locate(model), {}
        if not (directory / "config.json").exists():
            raise UserError(
                f"{model}: no model there; expected a Hugging Face checkpoint directory, a .gguf file, or OWNER/NAME "
                "on the hub"
            )
        model_files.tensors(directory)  # UserError for truncated ones.
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, **how)
        network = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32 if how else "auto", **how)
    except Exception as error:  # torch and the readers of tokenizers and GGUF raise many kinds.
        raise UserError(f"{model}: transformers cannot read it as a language model: {first_line(error)}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"{model}: transformers has no fast tokenizer for it, expected one (tokenizer.json)")
    if how:  # transformers 5 takes a GGUF's end-of-text from the wrong place, and would drop spaces when it decodes.
        ends = network.config.eos_token_id
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends[0] if isinstance(ends, list) else ends)
        tokenizer.clean_up_tokenization_spaces = False
    return network, tokenizer


def _former_names(model: str, tokenizer: Any, think: str | None, think_end: str | None) -> dict[str, str | None]:
    """The token's present name by marker; None where that is the marker, "" where it has to be added."""
    markers = (THINK, THINK_END)
    if think is not None and think_end is not None:
        for option, name in (("--think", think), ("--think-end", think_end)):
            if name not in tokenizer.get_vocab():
                raise UserError(f"{option} {name}: {model} has no such token; without the option one is chosen")
        return {THINK: None if think == THINK else think, THINK_END: None if think_end == THINK_END else think_end}
    if all(len(tokenizer.encode(marker, add_special_tokens=False)) == 1 for marker in markers):
        return dict.fromkeys(markers)
    used = {str(token) for token in tokenizer.special_tokens_map.values() if isinstance(token, str)}
    added = [token.content for _, token in sorted(tokenizer.added_tokens_decoder.items())]
    # Added tokens that nothing uses.
    spare = [each for each in added if _SPARE.search(each) and each not in used and each not in tokenizer.chat_template]
    return dict(zip(markers, spare[:2] if len(spare) >= 2 else ("", ""), strict=True))


def _with_markers(tokenizer: Any, former: dict[str, str | None], directory: Path) -> Any:
    """The tokenizer with the markers in it. transformers renames no token: that is done in its file in `directory`."""
    from transformers import AddedToken, AutoTokenizer

    new = [marker for marker, name in former.items() if name == ""]
    # Not "special", as in DeepSeek-R1: they survive decoding.
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in new])
    tokenizer.save_pretrained(directory)
    names = {name: marker for marker, name in former.items() if name}
    if not names:
        return tokenizer
    file = directory / "tokenizer.json"
    file.write_text(json.dumps(rename_tokens(json.loads(file.read_text()), names), ensure_ascii=False))
    file = directory / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    settings.pop("added_tokens_decoder", None)  # The same as in tokenizer.json, under the old names.
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if isinstance(settings.get(key), list):
            settings[key] = [token for token in settings[key] if token not in names]
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False))
    return AutoTokenizer.from_pretrained(directory)


def rename_tokens(tokenizer: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A tokenizer.json in which tokens have other names (new by old one), and are one token wherever they stand in a
    text. Raises UserError for a token that words are made of: they would be read otherwise."""
    vocabulary = tokenizer["model"]["vocab"]
    for merge in tokenizer["model"].get("merges") or []:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if used := {left, right, left + right} & names.keys():
            raise UserError(f"token {used.pop()}: words are made of it; name one that no text holds")
    if isinstance(vocabulary, dict):
        ids = dict(vocabulary)
        vocabulary = {names.get(token, token): i for token, i in vocabulary.items()}
    else:  # Unigram's: pieces with their scores, by id.
        ids = {piece: i for i, (piece, _) in enumerate(vocabulary)}
        vocabulary = [[names.get(piece, piece), score] for piece, score in vocabulary]
    added = [token for token in tokenizer["added_tokens"] if token["content"] not in names]
    ids |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    added += [{"id": ids[old], "content": new, **flags} for old, new in names.items()]
    return {
        **tokenizer,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "model": {**tokenizer["model"], "vocab": vocabulary},
    }


def _embed(network: Any, tokenizer: Any, markers: list[int]) -> None:
    """Rows for tokens that have none yet, and for the two markers where theirs are the same: near the mean of the
    others, so that other tokens' probabilities hardly change (Hewitt 2021, "Initializing new word embeddings")."""
    import torch

    rows, needed = network.get_input_embeddings().weight.shape[0], max(tokenizer.get_vocab().values()) + 1
    if needed > rows:
        network.resize_token_embeddings(needed, mean_resizing=False)
    generator = torch.Generator().manual_seed(0)
    layers = (network.get_input_embeddings(), network.get_output_embeddings())
    weights = {id(layer.weight): layer.weight for layer in layers}
    with torch.no_grad():
        for weight in weights.values():  # One where input and output are tied.
            known = weight[:rows].float()
            mean, deviation = known.mean(dim=0), known.std(dim=0)
            start, end = (weight[marker].float() for marker in markers)
            new = set(range(rows, needed))
            if not new & set(markers) and (start - end).norm() < _SAME * deviation.norm():
                new |= set(markers)
            for token in sorted(new):
                noise = torch.randn(len(mean), generator=generator)
                weight[token] = (mean + _NOISE * deviation * noise).to(weight.dtype)


def _end_text(model: str, network: Any, tokenizer: Any) -> None:
    """Make the text after a response in the chat template the end-of-text of tokenizer and configurations."""
    response = "The answer is 2."
    messages = [{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": response}]
    after = render(tokenizer, messages, tokenize=False).rpartition(response)[2].lstrip()
    found = [token.content for token in tokenizer.added_tokens_decoder.values() if after.startswith(token.content)]
    end = max(found, key=len, default=tokenizer.eos_token)
    if end is None:
        raise UserError(f"{model}: neither tokenizer nor chat template say which token ends a response")
    tokenizer.eos_token = end
    if tokenizer.pad_token is None:
        tokenizer.pad_token = end
    generation = network.generation_config
    others = [generation.eos_token_id] if isinstance(generation.eos_token_id, int) else generation.eos_token_id or []
    ends = list(dict.fromkeys([tokenizer.eos_token_id, *others]))
    for settings in (network.config, generation):
        settings.bos_token_id, settings.pad_token_id = tokenizer.bos_token_id, tokenizer.pad_token_id
    network.config.eos_token_id = tokenizer.eos_token_id
    generation.eos_token_id = ends if len(ends) > 1 else ends[0]
