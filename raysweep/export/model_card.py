"""Model cards of exported models: the sentence-transformers card with sections about the sweep and its front."""

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model_card import generate_model_card
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from raysweep.config.custom_loss import import_object
from raysweep.config.loss_spec import LossSpec
from raysweep.config.losses import find_loss
from raysweep.config.sweep import DataConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.evaluation.operating_points import LABELED, QUERY, QUERY_CONCAT
from raysweep.export.joined_encoder import BY_PRODUCT, KINDS
from raysweep.export.run_encoders import BaseModel, RunEncoders, joint_license
from raysweep.report.figures import front_figure
from raysweep.report.front import Member
from raysweep.report.notes import why_no_intervals
from raysweep.report.summary import Summary
from raysweep.report.tables import kind_name, shown_prompt, with_interval
from raysweep.report.texts import RANKING_TEXT, front_title, objective_text
from raysweep.results.types import Point, ScoredSplit, Trial
from raysweep.results.views import calibration_text
from raysweep.training import hypermask
from raysweep.training import losses as own_losses
from raysweep.training.trial import trial_seed
from raysweep.version import __version__

CARD = "README.md"
PICTURE = "front.png"

_TASK = "retrieval of sentences of the same class that are close in meaning"
_TASK_OF_RELATIONS = "retrieval of the documents that are relevant to a query"
_DEMO_DATA = "demo (sentences that raysweep generates from a grammar)"
# heading in the library's card before which the front is inserted
_TRAINING = "\n## Training Details\n"
_DOWNLOAD = "# Download from the 🤗 Hub\n"  # line in the usage section for models on the Hub
_PLACEHOLDER = "sentence_transformers_model_id"

_JOINED = {
    "concat": "Each embedding is [√g·e_M ; e_R]/√(1+g), where e_M is the tuned encoder's embedding and e_R the reference "
    "encoder's. Ranking by cosine is equivalent to ranking by cos_R + g·cos_M. The model requires sentence-transformers 6.",
    "class_concat": "Each embedding is [√g·p ; e_R], where p are the class probabilities from the tuned encoder's head and "
    "e_R is the reference encoder's embedding. Rank by the inner product, which is cos_R + g·p·p'. Embeddings have "
    "different norms, so do not normalize them. The model requires sentence-transformers 6.",
    LABELED: "The model embeds queries as [√g·p ; e_R], where p are the class probabilities from the tuned encoder's head "
    "and e_R is the reference encoder's embedding. For the sentences in the pool, replace p with one-hot labels, as in the "
    "code below. The inner product with a query is then cos_R + g·p(the sentence's label). Embeddings have different norms, "
    "so do not normalize them. Without the labels, this is a class_concat model, and the scores do not apply. The model "
    "requires sentence-transformers 6.",
    QUERY: "`encode_query` uses the tuned encoder and `encode_document` the reference encoder, so the reference encoder's "
    "existing document embeddings stay valid.",
    QUERY_CONCAT: "`encode_query` returns e_R + g·e_M, scaled to unit length, where e_M is the tuned encoder's embedding "
    "and e_R the reference encoder's. `encode_document` uses the reference encoder, so its existing document embeddings "
    "stay valid.",
    "interpolate": "The weights are interpolated between those of the base model and those of the tuned encoder.",
    "truncate": "Each embedding consists of the first coordinates of the tuned encoder's embedding.",
}

_SEPARATE = (
    "`encode_query` and `encode_document` use two different encoders, both tuned from the base model. `encode` embeds "
    "documents."
)


@dataclass(frozen=True)
class CardFacts:
    """The facts about an exported point.

    ``replicate`` is the trial's replicate number, or 0 if it is not a replicate. ``hub_name`` is the model's name on the
    Hub, if it has one. ``unmeasured`` lists the guards without a score for this point. ``is_adapter`` is True if only a
    LoRA adapter is exported. ``data_set`` is the data set whose mask the model uses, for runs over a sequence.
    """

    summary: Summary
    member: Member
    encoders: RunEncoders
    data: DataConfig
    pool_seed: int
    replicate: int
    hub_name: str | None
    unmeasured: Sequence[str]
    is_adapter: bool = False
    data_set: str | None = None

    @property
    def point(self) -> Point:
        return self.member.dev

    @property
    def front(self) -> Sequence[Member]:
        return self.summary.labeled if self.point.kind == LABELED else self.summary.members

    @property
    def trial(self) -> Trial:
        return next(
            trial for trial in self.summary.results.trials if trial.trial == self.point.trial
        )

    @property
    def config(self) -> TrialConfig:
        return trial_config(self.trial.config)

    @property
    def models(self) -> Mapping[str, BaseModel]:
        """Return the models that the exported model is built from, keyed by role."""
        base = BaseModel.of(self.encoders.model)
        if self.point.kind not in KINDS:
            return {"base": base}
        return {"base": base, "reference": BaseModel.of(self.encoders.reference)}


class RetrievalScores:
    """A replacement for the library's evaluators in the card, for a point's scores on one split."""

    primary_metric = None

    def __init__(self, split: ScoredSplit, description: str, settings: Mapping[str, Any]) -> None:
        self.name = split
        self.description = description
        self._settings = dict(settings)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the retrieval settings."""
        return self._settings


def write(model: SentenceTransformer, facts: CardFacts, folder: Path, name: str) -> None:
    """Write a model's card and its picture to ``folder``.

    Raises:
        OSError: If a file cannot be written.
    """
    models = facts.models
    data = _card_data(facts, models)
    model.model_card_data = data
    data.register_model(model)
    introduction, heading, training = _library_card(model, facts.hub_name, name)
    front = _front_section(facts, models)
    rows = {**_training_rows(facts), **_source_rows(facts, models)}
    table = "".join(f"| {row_name} | {_plain(text)} |\n" for row_name, text in rows.items())
    origin = f"## How it was made\n\n| | |\n|---|---|\n{table}"
    extended_card = f"{introduction}\n{front}{origin}{heading}{training}"
    (folder / CARD).write_text(extended_card, encoding="utf-8")
    (folder / PICTURE).write_bytes(front_figure(facts.summary))


def write_probe(  # noqa: PLR0913 (the facts of a card)
    model: SentenceTransformer,
    summary: Summary,
    dev: Point,
    base: BaseModel,
    hub_name: str | None,
    folder: Path,
    name: str,
) -> None:
    """Write the card of a probe point to ``folder``.

    Raises:
        OSError: If a file cannot be written.
    """
    info = summary.results.info
    data = SentenceTransformerModelCardData(
        license=base.license.identifier,
        model_name=f"{_plain(base.shown)} with a probe: {kind_name(dev)}",
        model_id=hub_name,
        task_name=_TASK,
        local_files_only=True,  # no network requests
    )
    data.add_tags("raysweep")
    data.base_model, data.base_model_revision = base.hub_name, base.revision
    settings = {"k": info.k, "rank_weights": info.rank_weights}
    points = [point for point in summary.results.points if point.key == dev.key]
    evaluators: Any = {
        RetrievalScores(point.split, "Polarity and Similarity", settings): _metrics(summary, point)
        for point in points
    }
    data.eval_results_dict = evaluators
    model.model_card_data = data
    data.register_model(model)
    introduction, heading, training = _library_card(model, hub_name, name)
    classes = ", ".join(info.label_names)
    origin = (
        "## How it was made\n\nThe encoder was not tuned. A logistic regression on its embeddings of the sweep's training "
        f"sentences predicts the probabilities p of the classes {_plain(classes)}. Each embedding is [√g·p ; e], where g = "
        f"{dev.value:g} and e is the encoder's own embedding. Rank by the inner product, and do not normalize embeddings.\n"
    )
    (folder / CARD).write_text(f"{introduction}\n{origin}{heading}{training}", encoding="utf-8")


def _library_card(
    model: SentenceTransformer, hub_name: str | None, name: str
) -> tuple[str, str, str]:
    """Return the library's card, partitioned at the heading of its training section."""
    card = generate_model_card(model)
    if hub_name is None:
        card = card.replace(_DOWNLOAD, "")
        card = card.replace(f'"{_PLACEHOLDER}"', json.dumps(name, ensure_ascii=False))
    return card.partition(_TRAINING)


def _card_data(
    facts: CardFacts, models: Mapping[str, BaseModel]
) -> SentenceTransformerModelCardData:
    point, base = facts.point, models["base"]
    config = facts.trial.config
    data = SentenceTransformerModelCardData(
        license=joint_license(models).identifier,
        model_name=f"{_plain(base.shown)}, tuned: {kind_name(point)} of trial {point.trial}, rung {point.step}",
        model_id=facts.hub_name,
        train_datasets=_datasets(facts),
        task_name=_TASK_OF_RELATIONS if facts.summary.results.info.is_related else _TASK,
        local_files_only=True,  # no network requests
    )
    data.add_tags("raysweep")
    data.base_model, data.base_model_revision = base.hub_name, base.revision
    data.datasets = [dataset["id"] for dataset in data.train_datasets if "id" in dataset]
    info = facts.summary.results.info
    settings: dict[str, Any] = {"k": info.k, "rank_weights": info.rank_weights}
    description = "Polarity and Similarity"
    if info.is_related:
        settings, description = {}, "Ranking and Agreement"
    scores: dict[Any, dict[str, str]] = {}
    for split in facts.summary.splits:
        point_on_split = facts.member.on(split)
        if point_on_split is not None:
            heading = RetrievalScores(split, description, settings)
            scores[heading] = _metrics(facts.summary, point_on_split)
    data.eval_results_dict = scores
    data.all_hyperparameters = dict(config)
    data.non_default_hyperparameters = facts.config.identity
    data.training_logs = _training_logs(facts)
    data.set_best_model_step(point.step or 0)
    loss_class = _loss_class(facts)
    has_citation = not is_own(loss_class) and hasattr(loss_class, "citation")
    # the library reads only the class's name and citation
    data.set_losses([object.__new__(loss_class)] if has_citation else [])
    return data


def _metrics(summary: Summary, point: Point) -> dict[str, str]:
    """Return a point's scores in [0, 1] and their intervals as text, keyed by score name."""
    intervals = summary.intervals_of(point)
    metrics = {}
    for name in summary.score_names:
        score = point.get(name)
        interval = (intervals or {}).get(name)
        if score is not None:
            metrics[name] = with_interval(score, interval, "{:.5f}".format)
    return metrics


def _training_logs(facts: CardFacts) -> list[dict[str, Any]]:
    """Return a row for each rung of the trial, with the dev scores of the same operating point."""
    results, exported, goals = facts.summary.results, facts.point, facts.summary.goals
    points_by_step = {}
    for point in (*results.points, *results.labeled):
        is_same_kind = point.trial == exported.trial and point.key == exported.key
        if is_same_kind and point.split == "dev":
            points_by_step[point.step] = point
    rows = []
    for rung in results.rungs:
        if rung.trial != exported.trial or rung.step not in points_by_step:
            continue
        point = points_by_step[rung.step]
        row = {
            "Step": rung.step,
            "Training Loss": round(rung.loss, 4),
            "examples": rung.examples_seen,
            **dict(
                zip(goals.headings, (round(score, 4) for score in point.pair(goals)), strict=True)
            ),
        }
        rows.append(row)
    return rows


def _datasets(facts: CardFacts) -> list[dict[str, Any]]:
    """Return the sources of the training sentences in the format of the library's card."""
    sources = [facts.data.train] if isinstance(facts.data.train, str) else facts.data.train
    columns = [
        f"<code>{_plain(name)}</code>" for name in (facts.data.text_column, facts.data.label_column)
    ]
    loss_class = _loss_class(facts)
    described_loss = {"fullname": f"{loss_class.__module__}.{loss_class.__name__}"}
    # readers of the card may not have raysweep installed, so describe its losses by a summary
    if is_own(loss_class):
        summary = (inspect.getdoc(loss_class) or "").partition(".\n")[0].replace("``", "")
        described_loss = {"fullname": f"{facts.config.loss} ({summary})"}
    arguments = _loss(facts).arguments(facts.config.loss_parameters)
    if arguments:
        described_loss["config_code"] = f"  ```json\n  {json.dumps(arguments)}\n  ```"
    shared = {"columns": columns, "loss": described_loss}
    named = [_named_source(source) for source in sources]
    return [{**source, "name": _plain(source["name"]), **shared} for source in named]


def _named_source(source: str) -> dict[str, str]:
    """Return a source's name on the Hub, or its file name without parent folders."""
    if source == "demo":
        return {"name": _DEMO_DATA}
    if source.startswith("hub:"):
        name = source.split(":")[1]
        return {"name": name, "id": name}
    return {"name": source.rstrip("/").rpartition("/")[2]}


def _loss_class(facts: CardFacts) -> type[Any]:
    loss_class: type[Any] = import_object(_loss(facts).class_path_of(facts.config.loss_parameters))
    return loss_class


def _loss(facts: CardFacts) -> LossSpec:
    return find_loss(facts.config.loss)


def is_own(loss_class: type[Any]) -> bool:
    """Return whether a loss is implemented by raysweep."""
    return loss_class.__module__.startswith((own_losses.__name__, hypermask.__name__))


def _front_section(facts: CardFacts, models: Mapping[str, BaseModel]) -> str:
    summary = facts.summary
    info, members = summary.results.info, facts.front
    marks = []
    if facts.member.is_knee:
        marks.append("the knee")
    if facts.member.is_best:
        marks.append("the best point by the objective")
    mark = f"; it is {' and '.join(marks)}" if marks else ""
    place = f"one of {len(members)} points" if len(members) > 1 else "the only point"
    kind = " of points that use pool labels" if facts.point.kind == LABELED else ""
    loading = ""
    if facts.is_adapter:
        base = _plain(models["base"].shown)
        loading = f"This model is a LoRA adapter for {base}; loading it requires that model and `pip install peft`."
    paragraphs = [
        "## The front it was chosen from",
        f"![{front_title(summary.goals)} of the sweep's points, and their front]({PICTURE})",
        f"This model is {place} on the sweep's front{kind}{mark}. {_plain(objective_text(info))}",
        _definitions(facts, models),
        _intervals_sentence(facts),
        _reference_sentence(summary),
        _guard_sentence(facts.member),
        " ".join(f"{_plain(text)}." for text in guard_warnings(facts)),
        _JOINED.get(facts.point.kind, ""),
        _SEPARATE if facts.config.tower == "separate" else "",
        loading,
        _data_set_sentence(facts),
        _pool_code(facts) if facts.point.kind == LABELED else "",
    ]
    return "".join(f"{text}\n\n" for text in paragraphs if text)


def _definitions(facts: CardFacts, models: Mapping[str, BaseModel]) -> str:
    scale = "The figure shows scores x100; the metrics are in [0, 1]."
    if "reference" in models:
        name = models["reference"].shown
    else:
        name = facts.encoders.reference.name
        if Path(name).is_absolute():  # the parent folders are private
            name = name.rstrip("/").rpartition("/")[2]
    reference = _plain(name)
    if facts.summary.results.info.is_related:
        return f"{RANKING_TEXT} The reference encoder is {reference}. {scale}"
    return (
        "Polarity P is the weighted share of the k retrieved sentences that have the query's label. Similarity S is their "
        f"weighted mean cosine to the query under the reference encoder ({reference}). Retention is S divided by the "
        f"reference encoder's own S. {scale}"
    )


def _data_set_sentence(facts: CardFacts) -> str:
    """Return a description of a model for one data set in a sequence, or "" for other models."""
    if facts.data_set is None:
        return ""
    names = ", ".join(map(_plain, facts.summary.results.info.tasks))
    return (
        f"The sweep trained an adapter on the data sets {names} in sequence, each with its own mask (HyperMask). This model "
        f"is for {_plain(facts.data_set)}. It consists of the frozen encoder, followed by dense layers that apply the "
        "adapter with this data set's mask. The scores are means over all data sets, each with its own mask."
    )


def _pool_code(facts: CardFacts) -> str:
    """Return the code that embeds sentences with known labels for a ``labeled`` point."""
    names = facts.summary.results.info.label_names
    lines = [
        "import numpy as np",
        "",
        f"classes = {json.dumps(list(names), ensure_ascii=False)}",
        "embeddings = model.encode(sentences)",
        "numbers = [classes.index(label) for label in labels]  # one per sentence",
        f"embeddings[:, :{len(names)}] = {facts.point.value!r} ** 0.5 * np.eye({len(names)})[numbers]",
    ]
    return "\n".join(["```python", *lines, "```"])


def _intervals_sentence(facts: CardFacts) -> str:
    """Return the text about the metrics' intervals, with the reason if a split has none."""
    summary = facts.summary
    if facts.point.kind == LABELED:
        return "There are no intervals: per-query scores are not stored for points that use labels."
    texts = []
    if summary.uncertainty:
        (level,) = {front.level for front in summary.uncertainty.values()}
        texts.append(
            f"Brackets contain {level:.0%} intervals over queries, which do not account for the training seed."
        )
    if "dev" in summary.uncertainty:
        texts.append("The intervals on dev are corrected for the selection of the front on dev.")
    for split in summary.splits:
        if split not in summary.uncertainty:
            texts.append(
                f"There are no intervals on {split}: {_plain(why_no_intervals(summary, split))}."
            )
    return " ".join(texts)


def _reference_sentence(summary: Summary) -> str:
    """Return the sentence with the reference encoder's P and S on each split."""
    info = summary.results.info
    first_heading, second_heading = info.goals.headings
    terms = []
    for split, point in summary.references.items():
        first, second = point.pair(info.goals)
        num_queries, num_pool = info.num_queries[split], info.num_pool[split]
        to_find = "sentences to rank" if info.is_related else "sentences to retrieve from"
        sizes = f"{num_queries:,} queries, {num_pool:,} {to_find}"
        scores = f"{first_heading} {first:.5f}, {second_heading} {second:.5f}"
        terms.append(f"{scores} on {split} ({sizes})")
    return f"The reference encoder's own scores: {'; '.join(terms)}." if terms else ""


def _guard_sentence(member: Member) -> str:
    terms = []
    for name, score in sorted(member.guards.items()):
        limit = "" if score.at_least is None else f" (required: at least {score.at_least:g})"
        terms.append(f"{score.score:.5f} on {name}, by {score.metric}{limit}")
    return f"Guards: {'; '.join(terms)}." if terms else ""


def guard_warnings(facts: CardFacts) -> list[str]:
    """Return warnings for guards that the point does not meet or was not scored on."""
    missed = [
        f"{score.score:.5f} on {name} (required: at least {score.at_least:g})"
        for name, score in sorted(facts.member.guards.items())
        if not score.is_met
    ]
    warnings = (
        [f"This point does not meet all guards of its sweep: {'; '.join(missed)}"] if missed else []
    )
    if facts.unmeasured:
        warnings.append(
            f"Guards of the sweep that have not been measured for this point: {', '.join(facts.unmeasured)}"
        )
    return warnings


def _training_rows(facts: CardFacts) -> dict[str, str]:
    """Return the table rows about the model's sweep, trial and rung."""
    results, point = facts.summary.results, facts.point
    info = results.info
    rows = {
        "sweep": f"{info.name}, with raysweep {info.version}; this card with {__version__}",
        "point": f"trial {point.trial}, rung {point.step} of {facts.trial.num_rungs}",
        "operating point": f"{kind_name(point)}, width {point.width}",
    }
    calibrations = [
        calibration
        for calibration in results.calibrations
        if calibration.split == "dev"
        and (calibration.trial, calibration.step) == (point.trial, point.step)
    ]
    if point.kind in BY_PRODUCT and calibrations:
        rows["class probabilities"] = f"on dev: {calibration_text(calibrations[0])}"
    lora = facts.config.lora
    if lora is not None:
        place = "in its own file" if facts.is_adapter else "merged into the weights"
        rows["adapter"] = (
            f"LoRA of rank {lora.rank}, alpha {lora.alpha:g}, targets {lora.targets}, {place}"
        )
    rung = next(
        rung for rung in results.rungs if rung.trial == point.trial and rung.step == point.step
    )
    rows["examples seen"] = f"{rung.examples_seen:,}"
    rows["training seconds"] = f"{rung.seconds:,.0f}"
    seed = trial_seed(info.seed, facts.config, facts.replicate)
    rows["seeds"] = f"sweep {info.seed}, trial {seed}"
    if info.is_related:
        return rows
    sizes = ", ".join(f"{size:,} for {split}" for split, size in info.num_pool.items())
    rows["pool"] = (
        f"{sizes}; sampled from the sweep's training sentences with seed {facts.pool_seed}. To reproduce the pool, use "
        f"raysweep evaluate --pool-seed {facts.pool_seed}"
    )
    return rows


def _source_rows(facts: CardFacts, models: Mapping[str, BaseModel]) -> dict[str, str]:
    """Return the table rows about data, models and licenses."""
    encoders = facts.encoders
    data = facts.data
    named = []
    for split, configured in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        sources = [configured] if isinstance(configured, str) else configured or []
        named += [f"{split} {_named_source(source)['name']}" for source in sources]
    rows = {
        "classes": ", ".join(facts.summary.results.info.label_names) or "none",
        "data": f"{', '.join(named)}; fingerprint {encoders.data}",
        "base model": f"{models['base'].shown}, {encoders.model_identity.rpartition('/')[2]}",
        "prompt": shown_prompt(encoders.model.model_dump()["prompt"] or ""),
    }
    if "reference" in models:
        rows["reference encoder"] = models["reference"].shown
    for name, model in models.items():
        rows[f"license of the {name} model"] = str(model.license)
    rows["license"] = f"{joint_license(models)}; the data has its own licenses"
    return rows


def _plain(text: str) -> str:
    """Return text on one line, with Markdown markup escaped as HTML entities."""
    line = " ".join(text.split())
    return re.sub(r"[&<\\`*_|\[\]]", lambda character: f"&#{ord(character[0])};", line)
