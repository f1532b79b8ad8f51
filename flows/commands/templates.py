"""`elastic data templates`: look into a library of thought templates, search it, add your own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from elastic_core.errors import UserError, nearest
from elastic_core.reasonflux.library import Template, add_own
from elastic_core.reasonflux.retrieval import build_retriever
from elastic_core.strategies.reasonflux_zero import TemplateParameters
from flows.commands.options import PATH, mirror_option
from flows.runtime.environment import make_runs_directory, runs_directory
from flows.runtime.stages import load_templates
from tasks.records.stage_directory import EMBEDDINGS, USER_TEMPLATES

_library_option = click.option(
    "--library",
    default="reasonflux",
    metavar="NAME|FILE",
    help="reasonflux (fetched if it is not here) or miniature, each with your own templates added; or just a file.",
)


@click.command()
@_library_option
@mirror_option
def list_templates(library: str, mirror: Path | None) -> None:
    """List every template, by chapter and section."""
    found = _load(library, mirror)
    places: dict[str, dict[str, list[Template]]] = {}
    for template in found.values():
        places.setdefault(template.chapter, {}).setdefault(template.section, []).append(template)
    for chapter, sections in places.items():
        click.echo(chapter)
        for section, inside in sections.items():
            click.echo(f"  {section}")
            for template in inside:
                click.echo(f"    {template.id}\t{template.name}")
    click.echo(f"{len(found)} templates in {sum(map(len, places.values()))} sections of {len(places)} chapters")


@click.command()
@click.argument("identifier", metavar="ID")
@_library_option
@mirror_option
def show_templates(identifier: str, library: str, mirror: Path | None) -> None:
    """Show the template called ID, in full."""
    found = _load(library, mirror)
    if identifier not in found:
        hint = nearest(identifier, found)
        raise UserError(
            f'library {library} has no template "{identifier}"{hint}; `elastic data templates list` shows all'
        )
    template = found[identifier]
    click.echo(f"{template.name}\n{template.chapter} / {template.section}")
    parts = {
        "type and tags": " · ".join(filter(None, (template.type, ", ".join(template.knowledge_tags)))),
        "description": template.description,
        "for": template.application_scenario,
        "steps": "\n".join(f"{number:>2}. {step}" for number, step in enumerate(template.reason_flow, 1)),
        "example": template.example,
    }
    for title, text in parts.items():
        if text:
            click.echo(f"\n--- {title}\n{text}")


@click.command()
@click.argument("text")
@click.option("-k", "num", type=click.IntRange(min=1), default=5, help="How many templates.")
@click.option("--embedder", default="tfidf", help="tfidf, or a sentence-transformers model's name.")
@click.option(
    "--trust-remote-code", is_flag=True, help="Run the code that comes with a model; jina-embeddings-v3 needs it."
)
@_library_option
@mirror_option
def search_templates(
    text: str, num: int, embedder: str, trust_remote_code: bool, library: str, mirror: Path | None
) -> None:
    """Find templates that fit TEXT, best first.

    They are from the two nearest sections of the nearest chapter.
    """
    cache = make_runs_directory() / EMBEDDINGS
    retriever = build_retriever(_load(library, mirror), embedder, cache=cache, trust_remote_code=trust_remote_code)
    matches = [match for match in retriever.retrieve(text, num) if match.score > 0]
    for score, found in ((match.score, match.template) for match in matches):
        click.echo(f"{score:.3f}  {found.id}\n       {found.chapter} / {found.section} / {found.name}")
    if not matches:
        click.echo(f"nothing in library {library} resembles this text; only names are searched")


@click.command()
@click.argument("file", type=PATH)
def add_templates(file: Path) -> None:
    """Add the templates of FILE to your own.

    Your own are part of every library; a template with the same id is replaced. FILE is JSON of {chapter: {section:
    [template]}}, as published; or a JSON list or JSONL of templates with "chapter" and "section". A template has
    template_name, description and reason_flow (a list of steps), and may have template_type, knowledge_tag,
    application_scenario and example_application.
    """
    own = make_runs_directory() / USER_TEMPLATES
    added, replaced = add_own(file, own)
    click.echo(f"{added} added, {replaced} replaced in {own}")


def _load(library: str, mirror: Path | None) -> Mapping[str, Template]:
    return load_templates(TemplateParameters(library=library), runs_directory(), mirror).library
