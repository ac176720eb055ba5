"""The report as one self-contained HTML page: its style and its pictures are inside, and it loads nothing."""

import base64
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from dsvnp import __version__
from dsvnp.files import write_atomically
from dsvnp.paper.label import Label
from dsvnp.paper.report.contents import LEDE, TITLE, Report, Section
from dsvnp.paper.report.markdown import markdown_page
from dsvnp.paper.report.speed import speed_table
from dsvnp.paper.report.tables import Cell, Table, label_text, summary_of
from dsvnp.plotting.style import INK

TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".webp": "image/webp"}
WIDE = 470  # pixels: a wider figure has a line of its own
LEGIBLE = 620  # narrower, or at less than 0.8 of its width, a figure cannot be read: its box scrolls


def write_report(folder: Path) -> list[Path]:
    """Write `report.html` and `report.md` of all runs at or below a folder, into that folder."""
    report = Report.find(folder)
    pages = {folder / "report.html": html_page(report), folder / "report.md": markdown_page(report)}
    return [write_atomically(path, text) for path, text in pages.items()]


def html_page(report: Report) -> str:
    """The page, with its style and its pictures inside."""
    sections = [Section.of(run, report) for run in report.runs]
    links = [(section.anchor, section.title) for section in sections]
    parts = [html_table(summary_of(report.runs))] if report.runs else []
    parts += map(html_run, sections)
    if report.speed:
        links.append(("speed", "Speed"))
        parts.append(f'<section id="speed"><h2>Speed</h2>{html_table(speed_table(report.speed))}</section>')
    items = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in links)
    texts = {"title": TITLE, "lede": escape(LEDE), "links": items, "parts": "\n".join(parts)}
    return Template(_read("page.html")).substitute(texts, style=_read("page.css"), version=__version__)


def _read(name: str) -> str:
    """A file next to this one."""
    return files("dsvnp.paper.report").joinpath(name).read_text(encoding="utf-8")


def html_run(section: Section) -> str:
    """One run: what it asks, its tables, figures, settings, and what differs from the paper."""
    words = section.words
    parts = [f'<section id="{section.anchor}">', f"<h2>{escape(section.title)}</h2>"]
    parts.append(f"<ul class=facts>{html_items(section.facts)}</ul>")
    if words.question:
        where = f" <span class=where>{escape(words.paper)}.</span>" if words.paper else ""
        parts.append(f"<p>{escape(words.question)}{where}</p>")
    if words.trials:
        parts.append(f"<p>Trials of settings: {escape(words.trials)}</p>")
    parts += map(html_table, section.tables)
    parts.append('<div class="figures">')
    parts += [html_figure(path, shown) for path, shown in section.figures]
    parts.append("</div>")
    if words.differs:
        parts.append(f"<h3>What differs from the paper, and why</h3><ul>{html_items(words.differs)}</ul>")
    if section.more:
        folded = "".join(map(html_table, section.more))
        parts.append(f"<details><summary>{section.more_text}</summary>{folded}</details>")
    if section.settings:
        pairs = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in section.settings.items()
        )
        parts.append(f"<details><summary>Settings of this run</summary><dl>{pairs}</dl></details>")
    return "\n".join([*parts, "</section>"])


def html_items(items: Iterable[str]) -> str:
    """The items of a list."""
    return "".join(f"<li>{escape(item)}</li>" for item in items)


def html_table(table: Table) -> str:
    """A table in a box of its own that scrolls where the screen is narrow."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    lines = []
    for label, cells in table.rows:
        mark = f'<i style="background:{mark_of(label)}"></i>' if table.models else ""
        name = f'<th scope="row">{mark}{escape(label_text(table, label))}</th>'
        lines.append(f"<tr>{name}{''.join(html_cell(cell) for cell in cells)}</tr>")
    return (
        f"<figure><figcaption><b>{escape(table.title)}.</b> {escape(table.caption)}</figcaption>"
        f'<div class="box" tabindex="0" role="region" aria-label="Table: {escape(table.title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table></div></figure>"
    )


def mark_of(label: str) -> str:
    """A model's colour; what is no model of ours has that of the text, dark or light."""
    colour = Label.parse(label).look.colour
    return "currentColor" if colour == INK else colour


def html_cell(cell: Cell | None) -> str:
    """A figure, and below it in small print the paper's and which is better."""
    if cell is None:
        return "<td>–</td>"
    text = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
    word = f' <em class="{cell.verdict}">{cell.verdict}</em>' if cell.verdict else ""
    notes = [escape(note) for note in cell.notes]
    if notes:
        notes[0] += word
    return f"<td>{text}{''.join(f'<small>{note}</small>' for note in notes)}</td>"


def html_figure(path: Path, text: str) -> str:
    """A picture inside the page, on a light card, with what it shows."""
    data = path.read_bytes()
    uri = f"data:{TYPES[path.suffix]};base64,{base64.b64encode(data).decode()}"
    width = picture_width(data) if path.suffix == ".svg" else 640
    kind, name = "wide" if width > WIDE else "narrow", escape(path.stem)
    style = f"width:{width}px;min-width:{min(round(0.8 * width), LEGIBLE)}px"
    return (
        f'<figure class="{kind}"><div class="box card" tabindex="0" role="region" aria-label="Figure: {name}">'
        f'<img alt="{escape(text)}" style="{style}" src="{uri}"></div>'
        f"<figcaption>{escape(text)}</figcaption></figure>"
    )


def picture_width(svg: bytes) -> int:
    """Width of an SVG in pixels, from its first tag."""
    found = re.search(rb'<svg[^>]*?\swidth="([\d.]+)(pt|px)?"', svg)
    return round(float(found[1]) * (4 / 3 if found[2] == b"pt" else 1)) if found else 640
