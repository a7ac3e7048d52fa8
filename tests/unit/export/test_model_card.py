"""Model cards of exported models: metadata, picture, figures, and the code to load the model."""

import contextlib
import dataclasses
import io
import json
import re
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from raysweep import __version__
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.sweep import EncoderConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.export.export import export
from raysweep.export.run_encoders import BaseModel, License
from raysweep.metrics import retrieval
from raysweep.report.choice import Selection, candidates_as_json, choose
from raysweep.report.summary import Summary, summary_of
from raysweep.report.tables import certainty_table, kind_name
from raysweep.results.events import GuardsMeasured, PointsScored
from raysweep.results.ledger import Ledger
from raysweep.results.query_scores import (
    PackedScores,
    load_query_scores,
    name_of_point,
    scores_file,
)
from raysweep.results.reader import load
from raysweep.results.types import GuardScore, Point
from raysweep.storage.folder import LocalFolder
from support.ledgers import change_settings, start_session
from support.paths import SPACES
from support.points import with_means

markdown = pytest.importorskip("markdown", reason="the docs extra is not installed")

Run = tuple[Path, Prepared, EvaluationSet]


class Page(HTMLParser):
    """Parser of a rendered card: the cells of its tables by row, its pictures, and forbidden tags."""

    def __init__(self, card: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.pictures: list[str] = []
        self.tags: set[str] = set()
        self._in_cell = False
        self.feed(markdown.markdown(card, extensions=["tables", "fenced_code"]))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True
        if tag == "img":
            self.pictures.append(dict(attrs)["src"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data

    def cell(self, name: str) -> str:
        """Return the second cell of the row whose first cell is ``name``."""
        (value,) = [row[1] for row in self.rows if row[0] == name]
        return value


def read(folder: Path) -> tuple[dict[str, Any], Page, str]:
    """Return a card's metadata as read by the Hub's client, its page, and its full text."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    card = ModelCard(text, ignore_metadata_errors=False)
    return card.data.to_dict(), Page(card.text), text


def copied(run: Path, to: Path, data: dict[str, Any]) -> Path:
    """Return a copy of the run with other data in its settings."""
    to.mkdir()
    for name in ("config.yaml", "ledger.jsonl", "points", "prepared.json"):
        (to / name).symlink_to(run / name)
    settings = configuration.parse(Document.read(SPACES / "smoke.yaml")).model_dump(mode="json")
    change_settings(to, yaml.safe_dump({**settings, "data": data}))
    return to


@pytest.mark.parametrize("name", ["0:1:class_concat=0.1", "1:1:concat=0.3"])
def test_metrics_equal_scores_of_the_exported_model(
    name: str, run: Run, tmp_path: Path, all_on_the_front: None
) -> None:
    folder, prepared, dev = run
    export(folder, name, tmp_path / "model")
    metadata, page, _ = read(tmp_path / "model")
    (result,) = metadata["model-index"][0]["results"]
    stated = {metric["type"]: metric["value"] for metric in result["metrics"]}
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    queries, pool = (model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool))
    scores = dev.score_retrieved(retrieval.top_k(model.similarity(queries, pool).numpy(), dev.k))
    reference = dev.reference_scores["similarity"].mean()
    assert stated["polarity"] == pytest.approx(scores["polarity"].mean(), abs=1e-4)
    assert stated["similarity"] == pytest.approx(scores["similarity"].mean(), abs=1e-4)
    assert stated["retention"] == pytest.approx(scores["similarity"].mean() / reference, abs=1e-4)
    assert float(page.cell("polarity").split()[0]) == stated["polarity"]
    assert result["dataset"]["name"] == "dev"
    if "class_concat" in name:
        (calibration,) = load(folder).calibrations
        error = 100 * calibration.error
        assert page.cell("class probabilities").startswith(
            f"on dev: temperature {calibration.temperature:.2f}, "
        )
        assert page.cell("class probabilities").endswith(f"-> {error:.1f}")
    else:
        assert not [row for row in page.rows if row[:1] == ["class probabilities"]]


def test_card_and_output_list_missed_and_unmeasured_guards(run: Run, tmp_path: Path) -> None:
    """The card also has the seed that reproduces the pool."""
    folder, prepared, dev = run
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    settings = configuration.parse(Document.read(SPACES / "smoke.yaml")).model_dump(mode="json")
    limits = {"missed": 0.99, "met": 0.5, "late": None}
    guards = {
        name: {"kind": "sts", "pairs": "x.tsv", "at_least": limit} for name, limit in limits.items()
    }
    change_settings(copy, yaml.safe_dump({**settings, "guards": guards}))
    knee = next(member.dev for member in summary_of(LocalFolder(folder)).members if member.is_knee)
    place = (knee.trial, knee.step, knee.kind, knee.value)
    ledger = Ledger(copy)
    for name in ("missed", "met"):
        score = GuardScore(*place, name, "spearman_cosine", 0.93031, limits[name])
        ledger.append(GuardsMeasured(scores=(score,)))
    ledger.close()
    missed = "This point does not meet all guards of its sweep: 0.93031 on missed (required: at least 0.99)"
    late = "Guards of the sweep that have not been measured for this point: late"
    printed = export(copy, knee.name, tmp_path / "model")
    assert printed.endswith(f". {missed}. {late}")
    _, page, text = read(tmp_path / "model")
    assert f"{missed}. {late}." in text
    assert (
        "(required: at least 0.5); 0.93031 on missed, by spearman_cosine (required: at least 0.99)"
        in text
    )
    (seed,) = re.findall(r"--pool-seed (\d+)", page.cell("pool"))
    train = prepared.sentences.ids("train")
    sampled = train[
        retrieval.sample_pool(len(train), len(dev.queries), size=len(dev.pool), seed=int(seed))
    ]
    assert sampled.tolist() == dev.pool.tolist()
    without_guards = export(folder, knee.name, tmp_path / "plain")
    assert "guard" not in without_guards.partition(" written to ")[0] and without_guards.endswith(
        "plain"
    )


@pytest.mark.parametrize("test_scores", ["stored", "damaged"])
def test_intervals_equal_those_of_show_and_report(
    run: Run, tmp_path: Path, test_scores: str
) -> None:
    """The knee has intervals on dev and on an invented test split, where it scores slightly lower."""
    folder, _, _ = run
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    knee = next(member.dev for member in summary_of(LocalFolder(folder)).members if member.is_knee)
    members = [member.dev for member in summary_of(LocalFolder(folder)).members]
    add_test_split(copy, members)
    if test_scores == "damaged":
        (copy / "scores" / "test" / "baselines.npz").write_bytes(b"PK")
    summary = summary_of(LocalFolder(copy))
    export(copy, "knee", tmp_path / "model")
    _, page, text = read(tmp_path / "model")
    columns, *cells = certainty_cells(summary, knee)
    (row,) = candidates_as_json(
        summary, choose(summary, Selection(knee=True)).candidates, summary.splits
    )
    (shown,) = (metric[1:] for metric in page.rows if metric[0] == "polarity")
    for split, cell in zip(("dev", "test"), shown, strict=True):
        known = row[split]["intervals"]
        if known is None:
            assert (split, test_scores, cell) == (
                "test",
                "damaged",
                f"{row[split]['polarity']:.5f}",
            )
            assert (
                "baselines.npz: is damaged" in row[split]["why_no_intervals"]
                and "baselines.npz" in text
            )
            assert f"{split} P" not in columns
            continue
        low, high = known["polarity"]
        assert known["level"] == summary.uncertainty[split].level == 0.9
        assert cell == f"{row[split]['polarity']:.5f} [{low:.5f}, {high:.5f}]"
        (interval,) = (cells_of_row[columns.index(f"{split} P")] for cells_of_row in cells)
        assert interval == f"[{100 * low:.1f}, {100 * high:.1f}]"
    assert "90% intervals over queries" in text and "95%" not in text


def add_test_split(folder: Path, members: Sequence[Point]) -> None:
    """Store the scores of these points and of the reference on 50 queries of dev as those of test."""
    results = load(folder)
    reference = next(point for point in results.points if point.kind == "reference")
    dev = load_query_scores(LocalFolder(folder), results)["dev"]
    chosen = [reference, *members]
    rows = dev.rows(name_of_point(point) for point in chosen)
    polarity, similarity = dev.scores[rows, :, :50].transpose(1, 0, 2)
    points = []
    for row, point in enumerate(chosen):
        mean_polarity, mean_similarity = float(polarity[row].mean()), float(similarity[row].mean())
        scored = dataclasses.replace(
            with_means(point, polarity=mean_polarity, similarity=mean_similarity), split="test"
        )
        points.append(scored)
    ledger = Ledger(folder)
    num_queries = {**results.info.num_queries, "test": 50}
    num_pool = {**results.info.num_pool, "test": results.info.num_pool["dev"]}
    info = dataclasses.replace(results.info, num_queries=num_queries, num_pool=num_pool)
    ledger.append(start_session(folder, info, (folder / "config.yaml").read_bytes()))
    ledger.append(PointsScored(points=tuple(points)))
    ledger.close()
    for file, part in (("baselines", slice(0, 1)), ("members", slice(1, None))):
        names = [name_of_point(point) for point in points[part]]
        packed = PackedScores.pack(
            names, {"polarity": polarity[part], "similarity": similarity[part]}
        )
        LocalFolder(folder).put(scores_file("test", file), packed.content())


def certainty_cells(summary: Summary, point: Point) -> list[tuple[str, ...]]:
    """Return the columns of the report's table and the rows of this point."""
    table = certainty_table(summary)
    name = (str(point.trial), str(point.step), kind_name(point))
    return [table.columns, *(row for row in table.rows if row[:3] == name)]


def test_card_describes_sources_and_licenses(
    run: Run, tmp_path: Path, all_on_the_front: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared, _ = run
    known = {
        "base": BaseModel("owner/base", "owner/base", "0123abc", License("mit")),
        "reference": BaseModel("owner/reference", "owner/reference", None, License("apache-2.0")),
    }

    def of(config: EncoderConfig) -> BaseModel:
        return known.pop("base") if "base" in known else known.pop("reference")

    monkeypatch.setattr(BaseModel, "of", of)
    copy = copied(
        folder,
        tmp_path / "run",
        {"train": ["hub:stanfordnlp/sst2:train", "demo"], "test": "/x/y/t.csv"},
    )
    export(copy, "1:1:concat=0.3", tmp_path / "model")
    metadata, page, text = read(tmp_path / "model")
    assert (metadata["base_model"], metadata["license"]) == ("owner/base", "other")
    assert metadata["datasets"] == ["stanfordnlp/sst2"]
    assert {"raysweep", "loss:TripletLoss"} <= set(metadata["tags"])
    assert "at revision 0123abc" in text
    assert page.cell("license of the base model") == "mit"
    assert page.cell("license of the reference model") == "apache-2.0"
    assert page.cell("license").startswith("other (base: mit, reference: apache-2.0)")
    assert page.cell("data").startswith("train stanfordnlp/sst2, train demo")
    assert "test t.csv; fingerprint " in page.cell("data")
    assert page.cell("data").endswith(prepared.sentences_artifact.name)
    assert "trial 1, rung 1" in page.cell("point")
    assert re.fullmatch(r"sweep 0, trial \d+", page.cell("seeds"))
    assert page.cell("sweep").endswith(f"this card with {__version__}")
    assert "- `learning_rate`: 0.003" in text
    assert "Hermans" in text, "the loss's authors are cited"


def test_card_has_no_local_paths(run: Run, tmp_path: Path, all_on_the_front: None) -> None:
    folder, _, _ = run
    copy = copied(folder, tmp_path / "run", {"train": str(folder / "train.parquet")})
    export(copy, "0:1", tmp_path / "model")
    metadata, page, text = read(tmp_path / "model")
    assert str(tmp_path) not in text
    assert str(folder) not in text
    assert metadata["license"] == page.cell("license of the base model") == "unknown"
    assert "base_model" not in metadata, "a folder is nothing that the hub has"
    assert "train.parquet" in page.cell("data")


def test_picture_is_written_and_hostile_names_are_escaped(
    run: Run, tmp_path: Path, all_on_the_front: None
) -> None:
    folder, _, _ = run
    name = "<script>alert(1)<b> | `x` *y* _v_ ![z](w) &lt;\\.csv"
    export(copied(folder, tmp_path / "run", {"train": f"/d/{name}"}), "0:1", tmp_path / "model")
    _, page, _ = read(tmp_path / "model")
    assert page.pictures == ["front.png"]
    assert (tmp_path / "model" / "front.png").read_bytes().startswith(b"\x89PNG")
    assert "script" not in page.tags
    assert f"train {name}; " in page.cell("data")


@pytest.mark.parametrize("name", ["my-model", "my_model*", 'größe "2" <b>'])
def test_code_in_card_loads_the_model(
    run: Run, tmp_path: Path, all_on_the_front: None, name: str
) -> None:
    folder, _, _ = run
    export(folder, "0:1:class_concat=0.1", tmp_path / name)
    _, _, text = read(tmp_path / name)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert f"SentenceTransformer({json.dumps(name, ensure_ascii=False)})" in code
    printed = io.StringIO()
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(printed):
        exec(code, {})
    lines = [
        line.removeprefix("# ")
        for line in code.splitlines()
        if "tensor(" in line or line.startswith("#    ")
    ]
    assert lines
    documented = re.findall(r"\d\.\d+", "\n".join(lines))
    computed = re.findall(r"\d\.\d+", printed.getvalue())
    assert list(map(float, documented)) == pytest.approx(list(map(float, computed)), abs=2e-4)
    export(folder, "0:1", tmp_path / "pushed", "owner/my-model")
    assert 'SentenceTransformer("owner/my-model")' in read(tmp_path / "pushed")[2]
