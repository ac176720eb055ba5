"""The report as Markdown, with links to the pictures."""

from __future__ import annotations

from dsvnp.paper.report.about import about, figures_of
from dsvnp.paper.report.contents import LEDE, TITLE, Report, facts_of, settings_of
from dsvnp.paper.report.runs import Run
from dsvnp.paper.report.speed import speed_table
from dsvnp.paper.report.tables import Cell, Table, label_text, summary_of, tables_of, title_of


def markdown_page(report: Report) -> str:
    """The same as Markdown, with links to the pictures."""
    parts = [f"# {TITLE}", LEDE]
    if report.runs:
        parts.append(markdown_table(summary_of(report.runs)))
    parts += [markdown_run(run, report) for run in report.runs]
    if report.speed:
        parts += ["## Speed", markdown_table(speed_table(report.speed))]
    return "\n\n".join(parts) + "\n"


def markdown_run(run: Run, report: Report) -> str:
    """One run."""
    text = about(run)
    parts = [f"## {title_of(run)}", ", ".join(facts_of(run)) + "."]
    if text.question:
        parts.append(f"{text.question} {text.paper + '.' if text.paper else ''}".strip())
    tables = tables_of(run)
    parts += [markdown_table(table) for table in tables if table.headline]
    for path, shown in figures_of(run):
        parts.append(f"![{shown}]({path.relative_to(report.folder).as_posix()})\n\n*{shown}*")
    if text.differs:
        parts.append("### What differs from the paper, and why")
        parts.append("\n".join(f"- {item}" for item in text.differs))
    if more := [markdown_table(table) for table in tables if not table.headline]:
        parts += [
            f"<details><summary>{len(more)} more table{'s' * (len(more) > 1)}</summary>",
            *more,
            "</details>",
        ]
    pairs = "\n".join(f"| {name} | {value} |" for name, value in settings_of(run.config).items())
    if pairs:
        parts.append(f"### Settings\n\n| setting | value |\n| --- | --- |\n{pairs}")
    return "\n\n".join(parts)


def markdown_table(table: Table, heading: bool = True) -> str:
    """A table; the best of a column is bold, what stands below a figure follows after a break."""
    lines = [f"**{table.title}.** {table.caption}", ""] if heading else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|" + " --- |" * len(table.columns))
    for label, cells in table.rows:
        lines.append("| " + " | ".join([label_text(table, label), *map(markdown_cell, cells)]) + " |")
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
