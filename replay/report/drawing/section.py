"""Sections of the page: data from Python, HTML from `templates/`, where every value is escaped."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from replay.report.drawing.plot import Colours, LiveChart

FOLDER = Path(__file__).parents[1] / "templates"
TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: `templates/<template>.html.j2` filled with `data`, under a heading."""

    template: str
    title: str
    data: dict[str, Any]

    @property
    def anchor(self) -> str:
        """Name by which links of the page reach it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or self.template

    @property
    def html(self) -> Markup:
        """Body of the section, without its heading."""
        return Markup(TEMPLATES.get_template(f"{self.template}.html.j2").render(self.data))


def section(template: str, title: str = "", **data: Any) -> Section:
    """Returns the section that `template` draws from `data`; without a title it has no heading."""
    return Section(template, title, data)


def chart_section(
    title: str, charts: Sequence[LiveChart], layout: str = "", *, colours: Colours = (), intro: str = ""
) -> Section:
    """Returns a section of charts alone, in a layout of the style sheet (`pair`, `many` or below each other);
    `colours` are those of all charts."""
    return section("charts", title, charts=charts, layout=layout, colours=colours, intro=intro)


def asset(name: str) -> Markup:
    """Returns a file of `templates/` as it is: the page's own style and script."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))
