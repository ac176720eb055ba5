"""The gallery draws every problem, and the same page for the same seed."""

from pathlib import Path

from studies.ambiguity_gallery import gallery


def test_the_page_is_written(tmp_path: Path):
    first, again = gallery(tmp_path / "a.png"), gallery(tmp_path / "b.png")
    assert first.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert first.read_bytes() == again.read_bytes()
