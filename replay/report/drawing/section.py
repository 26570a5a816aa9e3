"""Sections of the page: data from Python, HTML from `templates/`, where every value is escaped."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from replay.report.drawing.plot import Colours, LiveChart, embedded

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


def document(title: str, sections: Iterable[Section | None], origin_s: float | None) -> str:
    """Returns the page of these sections; the first stands above the table of contents. Axes of time show
    dates where their start `origin_s` is given, s after 1970-01-01 UTC, else time since the start."""
    return TEMPLATES.get_template("page.html.j2").render(
        title=title,
        style=asset("uplot/uPlot.min.css") + asset("report.css"),
        library=asset("uplot/uPlot.iife.min.js"),
        licence=asset("uplot/LICENSE"),
        script=asset("report.js"),
        clock=embedded({"origin": origin_s}),
        sections=[part for part in sections if part is not None],
    )


def asset(name: str) -> Markup:
    """Returns a file of `templates/` as it is: the page's own style and script."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))
