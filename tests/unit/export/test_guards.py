"""Guards: reading of their files, scores by independent formulas, and the effect of missed ones."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from raysweep.config.guards import GuardConfig
from raysweep.config.load import load as load_space
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.export.guards import Guard, check
from raysweep.metrics.scores import SCORES
from raysweep.report.choice import Selection, candidates_as_json, choose
from raysweep.report.markdown import markdown
from raysweep.report.notes import notes
from raysweep.report.summary import summarize
from raysweep.report.terminal import choice_lines, choice_tables, front_tables
from raysweep.results.events import GuardsMeasured
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import GuardScore
from support.consoles import printed
from support.ledgers import INFO, StoredSweep, StoredTrial, start_session, write_ledger
from support.paths import SPACES
from support.sentences import SCORED_PAIRS

QUERIES = {"q1": "good food", "q2": "a running dog"}
CORPUS = {
    "d1": "the meal was great",
    "d2": "a dog runs in the park",
    "d3": "shares fell today",
    "d4": "it rains",
}
RELEVANT = [("q1", "d1"), ("q2", "d2"), ("q2", "d4")]


def sts(folder: Path, **settings: float) -> GuardConfig:
    path = folder / "pairs.jsonl"
    rows = [
        {"sentence1": first, "sentence2": second, "score": score}
        for first, second, score in SCORED_PAIRS
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return GuardConfig(kind="sts", pairs=str(path), **settings)


def retrieval(folder: Path) -> GuardConfig:
    for name, texts in (("queries", QUERIES), ("corpus", CORPUS)):
        lines = "".join(f"{json.dumps({'id': key, 'text': text})}\n" for key, text in texts.items())
        (folder / f"{name}.jsonl").write_text(lines)
    lines = "".join(
        f"{json.dumps({'query': query, 'document': document})}\n" for query, document in RELEVANT
    )
    (folder / "relevant.jsonl").write_text(lines)
    paths = {name: str(folder / f"{name}.jsonl") for name in ("queries", "corpus", "relevant")}
    return GuardConfig(kind="retrieval", **paths)


def test_sts_is_spearman_under_the_models_similarity(tmp_path: Path, tiny_encoder: str) -> None:
    guard = Guard.open("sts-b", sts(tmp_path))
    model = encoder.load(EncoderConfig(name=tiny_encoder))
    gold = [pair[2] for pair in SCORED_PAIRS]
    cosines = (
        model.encode([pair[0] for pair in SCORED_PAIRS])
        @ model.encode([pair[1] for pair in SCORED_PAIRS]).T
    )
    metric, score = guard.score(model)
    assert (metric, score) == (
        "spearman_cosine",
        pytest.approx(spearmanr(gold, np.diag(cosines)).statistic),
    )
    model.similarity_fn_name = "dot"  # as of an exported class_concat
    assert guard.score(model)[0] == "spearman_dot"


@pytest.mark.parametrize("name", ["spearman", "cosine", "dot"])
def test_guard_may_have_the_name_of_a_metric(name: str, tmp_path: Path, tiny_encoder: str) -> None:
    model = encoder.load(EncoderConfig(name=tiny_encoder))
    assert Guard.open(name, sts(tmp_path)).score(model)[0] == "spearman_cosine"
    assert Guard.open(name, retrieval(tmp_path)).score(model)[0] == "cosine_ndcg@10"


def test_digest_depends_on_files_but_not_on_the_limit(tmp_path: Path) -> None:
    config = sts(tmp_path)
    assert config.files_digest == config.model_copy(update={"at_least": 0.5}).files_digest
    assert (
        config.files_digest
        != config.model_copy(update={"pairs": str(tmp_path / "new.jsonl")}).files_digest
    )


def test_retrieval_is_ndcg_at_ten(tmp_path: Path, tiny_encoder: str) -> None:
    model = encoder.load(EncoderConfig(name=tiny_encoder))
    cosines = model.encode(list(QUERIES.values())) @ model.encode(list(CORPUS.values())).T
    expected = []
    for query, row in zip(QUERIES, cosines, strict=True):
        ranked = [list(CORPUS)[index] for index in np.argsort(-row)]
        gains = [1.0 if (query, document) in RELEVANT else 0.0 for document in ranked]
        discounts = 1 / np.log2(np.arange(2, len(gains) + 2))
        ideal = discounts[: int(sum(gains))].sum()
        expected.append((np.array(gains) * discounts).sum() / ideal)
    metric, score = Guard.open("nfcorpus", retrieval(tmp_path)).score(model)
    assert (metric, score) == ("cosine_ndcg@10", pytest.approx(np.mean(expected), abs=1e-6))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "relevant",
            {"query": "q1", "document": "d9"},
            "row 4: document is 'd9'; allowed: an id in ",
        ),
        ("relevant", {"query": "q9", "document": "d1"}, "row 4: query is 'q9'; allowed: an id in "),
        ("corpus", {"id": "d1", "text": "again"}, "row 5: id is 'd1'"),
        ("queries", {"id": "q3", "text": " "}, "row 3: text is empty"),
    ],
)
def test_invalid_files_are_rejected(
    file: str, content: dict[str, str], message: str, tmp_path: Path
) -> None:
    config = retrieval(tmp_path)
    with (tmp_path / f"{file}.jsonl").open("a") as stream:
        stream.write(json.dumps(content) + "\n")
    with pytest.raises(InputError, match="guards.mine: ") as caught:
        check({"mine": config}, pytest.fail)
    assert message in str(caught.value)
    assert f"{file}.jsonl" in str(caught.value)


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="guards.mine: .*nowhere.tsv"):
        check({"mine": GuardConfig(kind="sts", pairs=str(tmp_path / "nowhere.tsv"))}, pytest.fail)


def test_pairs_without_a_score_are_counted_in_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    lines = [f"{score}\t{first}\t{second}\n" for first, second, score in SCORED_PAIRS]
    path.write_text("".join([*lines, "\tit rains\tit pours\n"]))
    warnings: list[str] = []
    check(
        {"sts-b": GuardConfig(kind="sts", pairs=str(path)), "whole": sts(tmp_path)}, warnings.append
    )
    (warning,) = warnings
    assert warning.startswith("guards.sts-b: 5 of 6 pairs")


WITHOUT_HEADER = "no header and a pair on every line"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "3.0\ta only\n4.0\tb\tc\n",
            f"line 1 is '3.0', 'a only', which is neither a header nor a pair; .*{WITHOUT_HEADER}",
        ),
        (
            "x\ta\tb\n4.0\tb\tc\n",
            f"line 1 is 'x', 'a', 'b', which is neither a header nor a pair; .*{WITHOUT_HEADER}",
        ),
        ("", f"is empty, .*{WITHOUT_HEADER}"),
        ("\n", f"is empty, .*{WITHOUT_HEADER}"),
        ("3.0\ta\tb\n4.0\tb\n", "line 2: the number of cells is 2; allowed: 3"),
        ("score\tsentence1\tsentence2\nx\ta\tb\n", "row 1: score is 'x'; allowed: a number"),
        ('"score"\tsentence1\tsentence2\n1\ta\tb\n2\ta\n', "row 2 "),
    ],
)
def test_invalid_tsv_is_rejected_with_both_forms(
    content: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(content)
    with pytest.raises(InputError, match=f"^guards.x: {path}: {problem}"):
        check({"x": GuardConfig(kind="sts", pairs=str(path))}, pytest.fail)


def test_message_names_the_guard_once(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("\ta\tb\n\tb\tc\n")
    with pytest.raises(InputError) as caught:
        check({"x": GuardConfig(kind="sts", pairs=str(path))}, pytest.fail)
    assert str(caught.value).startswith("guards.x: none of its 2 pairs")


def test_reserved_names_are_rejected(run: Path) -> None:
    from raysweep.api.functions import load_sweep
    from raysweep.report.choice import candidates_of
    from raysweep.report.tables import front_table

    summary = summarize(load(run))
    (candidate, *_) = candidates_of(summary, everything=False)
    shown = {
        column
        for column in (*front_table(summary).columns, "rung", *SCORES)
        if re.fullmatch(r"\w+", column)
    }
    for name in (*candidate.fields, *shown, "margin", "Trial"):
        overrides = [("guards", f"{{{name}: {{kind: sts, pairs: x.tsv}}}}")]
        with pytest.raises(
            InputError,
            match=f"^--guards: the name {name} is reserved: .*; reserved names: P, S, polarity, .*margin$",
        ):
            load_sweep("smoke", overrides)
    assert list(
        load_sweep("smoke", [("guards", "{sts-p: {kind: sts, pairs: x.tsv}}")]).config.guards
    ) == ["sts-p"]


@pytest.mark.parametrize(
    ("guards", "message"),
    [
        ("{a: {kind: sts}}", "guards.a: pairs is missing; a guard of kind sts takes pairs"),
        (
            "{a: {kind: sts, pairs: x.tsv, corpus: y}}",
            "guards.a: corpus is not allowed; a guard of kind sts takes pairs",
        ),
        ("{a: {kind: retrieval, queries: x, corpus: y}}", "guards.a: relevant is missing"),
        (
            "{a: {kind: sts, pairs: x.tsv, extra: 1}}",
            "guards.a.extra: unknown key; allowed: at_least, corpus, kind, pairs",
        ),
        (
            "{a: {kind: stss, pairs: x.tsv}}",
            "guards.a.kind is 'stss'; allowed: 'sts' or 'retrieval'",
        ),
        ("{a: {kind: sts, pairs: x.tsv, at_least: 70}}", "guards.a.at_least is 70; allowed: "),
        (
            "{'a b': {kind: sts, pairs: x.tsv}}",
            "--guards: the name of a guard is 'a b'; allowed: a letter or digit",
        ),
        ("[sts]", "guards is ['sts']; allowed: a valid mapping"),
    ],
)
def test_invalid_settings_are_rejected(guards: str, message: str) -> None:
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document

    document = Document.read(SPACES / "smoke.yaml")
    document.override("guards", guards)
    with pytest.raises(InputError) as caught:
        configuration.parse(document)
    assert message in str(caught.value)


def test_limit_that_every_score_reaches_is_rejected() -> None:
    guards = "{a: {kind: retrieval, queries: q, corpus: c, relevant: r, at_least: -0.5}}"
    with pytest.raises(
        InputError,
        match=r"--guards.a.at_least is -0.5; allowed: 0 to 1, since nDCG is never below 0",
    ):
        load_space(SPACES / "smoke.yaml", [("guards", guards)])


FRONT = [(0.6, 0.47), (0.8, 0.46), (0.82, 0.3)]
SCORE = GuardScore(0, 1, "plain", None, "sts-b", "spearman_cosine", 0.8, at_least=0.7)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run with a front of three members; the middle one is the knee."""
    write_ledger(tmp_path, [StoredTrial({"loss": "triplet"}, "completed", "", FRONT)])
    return tmp_path


def store_guard_scores(run: Path, *scores: GuardScore) -> None:
    ledger = Ledger(run)
    ledger.append(GuardsMeasured(scores=scores))
    ledger.close()


def test_member_that_misses_a_guard_is_marked_and_not_chosen(run: Path) -> None:
    before = summarize(load(run))
    assert [member.is_knee for member in before.members] == [False, True, False]
    assert not any(member.guards for member in before.members)
    store_guard_scores(
        run,
        *(
            dataclasses.replace(SCORE, step=step, score=score)
            for step, score in ((1, 0.9), (2, 0.6), (3, 0.75))
        ),
    )
    after = summarize(load(run))
    assert [member.is_feasible for member in after.members] == [True, False, True]
    assert [member.is_knee or member.is_best for member in after.members] != [False, True, False]
    assert not (after.members[1].is_knee or after.members[1].is_best)
    assert [member.guards["sts-b"].score for member in after.members] == [0.9, 0.6, 0.75]
    page = markdown(after)
    assert "| sts-b |" in page
    assert "(60.0)" in page
    assert "misses" in page


def test_members_are_chosen_by_their_guards(run: Path) -> None:
    scores = ((1, 0.9), (2, 0.6), (3, 0.75))
    store_guard_scores(
        run, *(dataclasses.replace(SCORE, step=step, score=score) for step, score in scores)
    )
    summary = summarize(load(run))
    chosen = choose(summary, Selection(["sts-b >= 0.75"])).candidates
    assert [candidate.dev.step for candidate in chosen] == [1, 3]
    (best,) = choose(
        summary, Selection(["sts-b < 0.9"], by="similarity", everything=True)
    ).candidates
    assert best.dev.step == 3, (
        "the second misses the guard's limit, and comes after all that do not"
    )
    assert candidates_as_json(summary, chosen, ("dev",))[0]["guards"] == {"sts-b": 0.9}
    text = printed(choice_tables(summary, choose(summary, Selection()).candidates, ("dev",))[0])
    assert "sts-b" in text and "(60.0)" in text
    none = choose(summary, Selection(["sts-b >= 0.95"]))
    assert "sts-b >= 0.95 is met by 0 of 3 points (sts-b ranges from 0.6 to 0.9)" in none.why_none
    with pytest.raises(InputError, match=r"sts-a.*sts-b\?.*allowed: polarity, .*, loss, sts-b$"):
        choose(summary, Selection(["sts-a >= 0.5"]))


def test_guard_does_not_hide_a_score_or_parameter_of_the_same_name(run: Path) -> None:
    store_guard_scores(
        run, *(dataclasses.replace(SCORE, guard=name, score=0.1) for name in ("polarity", "loss"))
    )
    chosen = choose(
        summarize(load(run)), Selection(["polarity >= 0.5", "loss = triplet"])
    ).candidates
    assert len(chosen) == 3


def test_condition_on_an_unmeasured_guard(tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, guards={"sts-b": 0.7})
    write_ledger(
        tmp_path, [StoredTrial({"loss": "triplet"}, "completed", "", FRONT)], StoredSweep(info=info)
    )
    summary = summarize(load(tmp_path))
    none = choose(summary, Selection(["sts-b >= 0.5"]))
    assert "sts-b >= 0.5 is met by 0 of 3 points" in none.why_none
    store_guard_scores(tmp_path, SCORE)
    summary = summarize(load(tmp_path))
    lines = list(
        choice_lines(summary, choose(summary, Selection(["sts-b >= 0.5"])).candidates, ("dev",))
    )
    assert "Not yet scored on sts-b: 2 of the 3 front members." in lines


def test_guards_are_in_the_terminal_table_if_it_is_wide_enough(run: Path) -> None:
    store_guard_scores(
        run, *(dataclasses.replace(SCORE, step=step, score=0.1) for step in (1, 2, 3))
    )
    summary = summarize(load(run))
    wide, small = (printed(table, width=80) for table in front_tables(summary))
    assert "(10.0)" in wide and "(10.0)" not in small
    assert "misses" in small and "◆ best" in small and "guard scores (sts-b)" in small
    assert "constraints: sts-b ≥ 70.0" in wide and "constraints: sts-b ≥ 70.0" in small
    assert any(
        note.startswith("No point meets the constraints (sts-b ≥ 70.0)") for note in notes(summary)
    )


def test_front_is_unchanged_if_all_members_miss_a_guard(run: Path) -> None:
    store_guard_scores(
        run, *(dataclasses.replace(SCORE, step=step, score=0.1) for step in (1, 2, 3))
    )
    after = summarize(load(run))
    assert [member.is_knee for member in after.members] == [False, True, False]
    assert not any(member.is_feasible for member in after.members)


def test_later_score_replaces_an_earlier_one(run: Path) -> None:
    store_guard_scores(run, dataclasses.replace(SCORE, score=0.1))
    store_guard_scores(run, dataclasses.replace(SCORE, score=0.1, at_least=None))
    (stored,) = load(run).guards
    assert stored.is_met
    assert all(member.is_feasible for member in summarize(load(run)).members)


def test_guards_of_the_last_session_apply(run: Path) -> None:
    def resumed_with(limits: dict[str, float | None]) -> bool:
        """Return whether the first member, which scores 0.8, is feasible under these limits."""
        ledger = Ledger(run)
        ledger.append(start_session(run, dataclasses.replace(INFO, guards=limits)))
        ledger.close()
        return summarize(load(run)).members[0].is_feasible

    resumed_with({"sts-b": 0.7})
    store_guard_scores(run, SCORE)
    assert resumed_with({"sts-b": 0.7})
    assert not resumed_with({"sts-b": 0.9})
    assert resumed_with({"sts-b": None})
    assert not resumed_with({"sts-b": 0.9})
    assert resumed_with({})
    assert load(run).guards == ()


def test_score_that_is_not_a_number_is_rejected(run: Path) -> None:
    store_guard_scores(run, SCORE)
    path = run / "ledger.jsonl"
    path.write_text(path.read_text().replace('"score": 0.8', '"score": NaN'))
    with pytest.raises(InputError, match=r"line \d+: score of sts-b is nan"):
        load(run)
