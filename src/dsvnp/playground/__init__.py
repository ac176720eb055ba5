"""The playground: a static page with networks that run in the browser, and what serves and fills it.

`page/` is the whole site; it works on any static host. `export` writes networks for it, `server` shows it on localhost.
"""

from pathlib import Path

PAGE = Path(__file__).parent / "page"
