"""The report as Markdown, with links to the pictures."""

from urllib.parse import quote

from dsvnp.paper.report.contents import LEDE, TITLE, Report, Section
from dsvnp.paper.report.speed import speed_table
from dsvnp.paper.report.tables import Cell, Table, label_text, summary_of


def markdown_page(report: Report) -> str:
    """The whole report."""
    parts = [f"# {TITLE}", LEDE]
    if report.runs:
        parts.append(markdown_table(summary_of(report.runs)))
    parts += [markdown_run(Section.of(run, report), report) for run in report.runs]
    if report.speed:
        parts += ["## Speed", markdown_table(speed_table(report.speed))]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Text from a file: neither HTML nor a new cell of a table."""
    return " ".join(text.replace("<", "&lt;").replace("|", "\\|").split())


def markdown_run(section: Section, report: Report) -> str:
    """One run."""
    words = section.words
    parts = [f"## {plain(section.title)}", plain(", ".join(section.facts)) + "."]
    if words.question:
        parts.append(f"{words.question} {words.paper + '.' if words.paper else ''}".strip())
    if words.trials:
        parts.append(f"Trials of settings: {words.trials}")
    parts += map(markdown_table, section.tables)
    for path, shown in section.figures:
        link = quote(path.relative_to(report.folder).as_posix())
        parts.append(f"![{plain(shown)}]({link})\n\n*{plain(shown)}*")
    if words.differs:
        items = "\n".join(f"- {item}" for item in words.differs)
        parts += ["### What differs from the paper, and why", items]
    if section.more:
        folded = [markdown_table(table) for table in section.more]
        parts += [f"<details><summary>{section.more_text}</summary>", *folded, "</details>"]
    if section.settings:
        pairs = "\n".join(f"| {plain(name)} | {plain(value)} |" for name, value in section.settings.items())
        parts.append(f"### Settings\n\n| setting | value |\n| --- | --- |\n{pairs}")
    return "\n\n".join(parts)


def markdown_table(table: Table, heading: bool = True) -> str:
    """A table; what is clearly the best of a column is bold, the text below a figure follows after a break."""
    lines = [f"**{table.title}.** {table.caption}", ""] if heading else []
    lines.append("| " + " | ".join(map(plain, table.columns)) + " |")
    lines.append("|" + " --- |" * len(table.columns))
    for label, cells in table.rows:
        lines.append("| " + " | ".join([plain(label_text(table, label)), *map(markdown_cell, cells)]) + " |")
    return "\n".join(lines)


def markdown_cell(cell: Cell | None) -> str:
    """A figure, the paper's, and which is better."""
    if cell is None:
        return "–"
    text = f"**{cell.text}**" if cell.best else cell.text
    notes = list(cell.notes)
    if notes and cell.verdict:
        notes[0] += f": {cell.verdict}"
    return "<br>".join([text, *notes])
