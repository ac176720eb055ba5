"""The gallery of priors: the script writes its pages, and prints what can be learned."""

import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "studies" / "prior_gallery.py"


def test_the_gallery_writes_its_pages_and_prints_statistics(tmp_path, monkeypatch, capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    monkeypatch.setitem(main.__globals__, "DRAWS", 2)
    monkeypatch.setattr(sys, "argv", ["prior_gallery", str(tmp_path), "--tables", "12"])
    main()
    pages = {f"prior_{name}.png" for name in ("curves", "tables", "classes")}
    assert {path.name for path in tmp_path.iterdir()} == pages
    printed = capsys.readouterr().out
    assert "numbers, R²" in printed
    assert printed.count("best of the three") == 2
