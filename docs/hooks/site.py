"""Hooks of mkdocs: the playground's page joins the site, and the theme's switch works without highlight.js."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGE = Path(__file__).parents[2] / "src" / "dsvnp" / "playground" / "page"
SHEETS = '<style id="hljs-light"></style><style id="hljs-dark"></style>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the package's page as playground/page/."""
    for path in sorted(each for each in PAGE.rglob("*") if each.is_file()):
        name = f"playground/page/{path.relative_to(PAGE).as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_post_page(output: str, **_: object) -> str:
    """Give the script of the theme's switch the two style sheets that it looks for."""
    return output.replace("</head>", f"{SHEETS}</head>", 1)
