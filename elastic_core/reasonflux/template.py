"""A thought template: how problems of one kind are solved, as steps that a navigator can hand out one by one."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

SLUG_LENGTH = 48
"""Most characters of a name that its id repeats."""


@dataclass(frozen=True, order=True)
class Template:
    """One template. Texts that its author left out are empty.

    Attributes:
        id: see `stable_id`.
        type: for example "Problem Solving Method"; the published library has no fixed set of them.
        application_scenario: which problems it is for, one a line.
        reason_flow: the steps, at least one; leading blanks make a step part of the one before.
        example: a problem solved with it.
    """

    id: str
    chapter: str
    section: str
    name: str
    type: str
    knowledge_tags: tuple[str, ...]
    description: str
    application_scenario: str
    reason_flow: tuple[str, ...]
    example: str


def stable_id(chapter: str, section: str, name: str) -> str:
    """What a template is called wherever it stands in its file and whatever its texts say: its name, and a hash."""
    slug = re.sub(r"[\W_]+", "-", name.lower())[:SLUG_LENGTH].strip("-")
    digest = hashlib.sha256("\0".join((chapter, section, name)).encode()).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


def entry(template: Template) -> dict[str, Any]:
    """A template in the fields of the published file, with its chapter and section."""
    return {
        "chapter": template.chapter,
        "section": template.section,
        "template_name": template.name,
        "template_type": template.type,
        "knowledge_tag": list(template.knowledge_tags),
        "description": template.description,
        "application_scenario": template.application_scenario,
        "reason_flow": list(template.reason_flow),
        "example_application": template.example,
    }
