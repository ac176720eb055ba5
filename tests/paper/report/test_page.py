"""The report's two forms: what is in them, and that nothing is fetched."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_runs import SVG, row, write_run

from dsvnp.paper.report import about
from dsvnp.paper.report.about import figures_of
from dsvnp.paper.report.contents import Report, settings_of
from dsvnp.paper.report.page import picture_width, write_report
from dsvnp.plotting.style import COLOURS


@pytest.fixture
def pages(tmp_path):
    """The report of two runs, as (HTML, Markdown)."""
    rows = [row("cnp", [-0.9, -0.8]), row("np", [-0.99, -0.98], -0.958), row("dsvnp", [-0.9, -0.91], -0.975)]
    write_run(tmp_path / "curves", rows, figures=("training.svg", "functions-wide.svg", "a-new-one.svg"))
    write_run(tmp_path / "toy", [row("gp", [0.3], dataset="<toy>", metric="sigma")], "toy")
    paths = write_report(tmp_path)
    assert [path.name for path in paths] == ["report.html", "report.md"]
    return [path.read_text(encoding="utf-8") for path in paths]


class Checker(HTMLParser):
    """Keeps what it meets, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.met: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.met.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.met if name == tag]


@pytest.fixture
def html(pages):
    checker = Checker()
    checker.feed(pages[0])
    assert checker.open == []
    return checker


def test_nothing_is_fetched(html, pages):
    links = [value for _, attrs in html.met for name, value in attrs.items() if name in ("src", "href")]
    assert links
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not re.search(r"@import|url\(|<script", pages[0])


def test_pictures_are_inside_with_what_they_show(html):
    pictures = html.all("img")
    assert [base64.b64decode(p["src"].partition("base64,")[2]).decode() for p in pictures] == [SVG] * 3
    assert pictures[0]["alt"].startswith("Two unseen curves")  # in the order of the texts,
    assert pictures[1]["alt"].startswith("The terms of the bound")
    assert pictures[2]["alt"] == "Curves from a stochastic process: a new one."  # then those without one
    assert "width:960px;min-width:620px" in pictures[0]["style"]


def test_links_lead_somewhere(html):
    names = {attrs["id"] for _, attrs in html.met if "id" in attrs}
    links = [attrs["href"].removeprefix("#") for attrs in html.all("a")]
    assert links == ["run-toy", "run-curves"]  # the paper's order
    assert set(links) <= names


def test_a_model_has_its_colour(html):
    marks = [attrs["style"] for attrs in html.all("i")]
    assert marks == [f"background:{COLOURS[name]}" for name in ("gp", "cnp", "np", "dsvnp")]


def test_figures_of_ours_and_of_the_paper_are_in_both(pages):
    page, markdown = pages
    assert '<b>−0.9850 ± 0.0071</b><small>paper −0.958 (2e−5) <em class="better">better</em></small>' in page
    assert "**−0.9850 ± 0.0071**<br>paper −0.958 (2e−5): better" in markdown
    for words in (
        "Settings",
        "num_steps",
        "What differs from the paper, and why",
        "preset paper",
        "3 min, units added up",
    ):
        assert words in page
        assert words in markdown


def test_what_comes_from_files_is_escaped(tmp_path):
    write_run(tmp_path / "x", [row("<b>np", [1.0], split="<i>")], "<script>", {"<u>": "&"}, ("<s>.svg",))
    (page, _) = write_report(tmp_path)
    text = page.read_text(encoding="utf-8")
    assert not re.search("<(script|u|s|i)>|<b>np", text)


def test_markdown_links_to_the_pictures(pages, tmp_path):
    links = re.findall(r"!\[[^]]+\]\(([^)]+)\)", pages[1])
    assert links == ["curves/functions-wide.svg", "curves/training.svg", "curves/a-new-one.svg"]
    assert all((tmp_path / link).is_file() for link in links)


def test_a_report_of_one_run_stands_beside_it(tmp_path):
    folder = write_run(tmp_path / "one", [row("np", [1.0])])
    write_report(folder)
    assert 'href="#run-curves"' in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "which is not a folder"), (".", "no results.json at or below")]
)
def test_nothing_to_report_is_said(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        Report.find(tmp_path / name)


@pytest.mark.parametrize(
    ("svg", "width"), [('<svg height="1pt" width="72pt">', 96), ('<svg\n width="72">', 72), ("<svg>", 640)]
)
def test_width_of_a_picture(svg, width):
    assert picture_width(svg.encode()) == width


def test_settings_inside_settings_are_named_with_a_dot():
    config = {
        "models": ["cnp", "np"],
        "curves": {"num_steps": 5, "decoder": [128]},
        "rate": 0.1,
        "none": None,
    }
    assert settings_of(config) == {
        "models": "cnp, np",
        "curves.num_steps": "5",
        "curves.decoder": "128",
        "rate": "0.1",
        "none": "None",
    }


def test_tables_that_are_no_headline_can_be_unfolded(tmp_path):
    rows = [
        row("np", [1.0], dataset=dataset, metric=metric, split="test", unit="share")
        for metric in ("auroc", "aupr")
        for dataset in ("mnist", "kmnist")
    ]
    write_run(tmp_path / "images", rows, "images", {"domain": "mnist"})
    for path in write_report(tmp_path):
        titles = re.split("<summary>1 more table<", path.read_text(encoding="utf-8"))
        found = [re.findall(r"(?:<b>|\*\*)(AU\w+)\.", part) for part in titles]
        assert found == [["AUROC"], ["AUPR"]]


def test_what_is_no_model_of_ours_has_the_colour_of_the_text(tmp_path):
    (page, _) = write_report(write_run(tmp_path / "one", [row("ridge", [1.0]), row("np", [2.0])]))
    marks = re.findall('<i style="background:([^"]+)">', page.read_text(encoding="utf-8"))
    assert marks == ["currentColor", COLOURS["np"]]  # which dark mode makes light


def test_a_figure_for_each_model_names_it(tmp_path):
    write_run(tmp_path / "x", [row("np", [1.0])], "images", figures=("sure-dsvnp-strong.webp", "sure-nn.svg"))
    texts = [shown for _, shown in figures_of(Report.find(tmp_path).runs[0])]
    assert [text.split(" of each set")[0] for text in texts] == ["DSVNP strong: the images", "NN: the images"]
    (page, _) = write_report(tmp_path)
    kinds = re.findall(r'src="data:(image/[a-z+]+);base64', page.read_text(encoding="utf-8"))
    assert kinds == ["image/webp", "image/svg+xml"]


LIGHT = Path(about.__file__).parents[1]


@pytest.mark.parametrize(
    "path", [*LIGHT.glob("report/*.py"), LIGHT / "label.py", LIGHT / "rows.py"], ids=lambda p: p.stem
)
def test_a_report_needs_neither_torch_nor_an_experiment(path):
    names = re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    heavy = (
        "torch",
        "dsvnp.models",
        "dsvnp.paper.experiment",
        "dsvnp.paper.runner",
        "dsvnp.plotting.figures",
    )
    assert not [name for name in names if name.startswith(heavy) or name.endswith(".experiment")]
