"""The functions of the public API."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from raysweep.api.run_results import RunResults
from raysweep.config import load
from raysweep.config.document import join_key
from raysweep.config.load import LoadedSweep
from raysweep.config.strict import explain
from raysweep.config.sweep import SAMPLERS, EncoderConfig
from raysweep.config.trial import TrialConfig
from raysweep.config.trial import trial_config as validated_trial_config
from raysweep.errors import InputError
from raysweep.storage.folder import BucketFolder, Folder, open_folder
from raysweep.storage.location import is_uri
from raysweep.terminal import disable_telemetry

if TYPE_CHECKING:
    import pandas as pd

    from raysweep.api.progress import OnProgress
    from raysweep.api.run_comparison import RunComparison
    from raysweep.data.prepared import Prepared
    from raysweep.metrics.retrieval import RankWeights

Run = str | Path | RunResults
"""A run, or its folder or URI."""

Overrides = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Values by dotted key, such as ``budget.trials``. Strings are parsed as YAML."""


def load_sweep(space: str | Path, overrides: Overrides = ()) -> LoadedSweep:
    """Load a sweep from a YAML file, or from a shipped space such as ``"demo"``.

    Data and models are not accessed. The result has the complete ``config`` and the search ``space``.

    Raises:
        InputError: If a value is invalid.
    """
    loaded = load.load(load.find_space(str(space)), _as_texts(overrides))
    if loaded.config.sampler not in SAMPLERS:  # the check imports Optuna, which is slow
        from raysweep.search.proposer import check_sampler

        check_sampler(loaded)
    return loaded


def prepare_sweep(
    sweep: LoadedSweep, *, in_process: bool = False, on_progress: "OnProgress | None" = None
) -> "Prepared":
    """Build the artifacts that the sweep's trials need, or reuse existing ones.

    The artifacts are sentences, tokens, reference embeddings, neighbors and examples. They are
    stored in ``storage.artifacts``.

    Args:
        sweep: The sweep to prepare.
        in_process: Whether to run in this process instead of on Ray. ``on_progress`` then receives
            only warnings.
        on_progress: A callback, as in :func:`run_sweep`.

    Raises:
        InputError: If a source or encoder cannot be read.
    """
    from raysweep.api.notebook import make_display

    display = make_display(on_progress)
    if in_process:
        from raysweep.prepare.build import prepare_here

        return prepare_here(sweep.config, sweep.space, display)
    from raysweep.ray_tune import run

    disable_telemetry()
    path = run.prepare_only(sweep.config, sweep.space, display)
    return open_prepared(path)


def run_sweep(
    sweep: LoadedSweep,
    *,
    warm_start: Iterable[str | Path] = (),
    on_progress: "OnProgress | None" = None,
) -> RunResults:
    """Run a complete sweep: prepare, search, and score the front on test.

    The run is stored in ``storage.runs``. A KeyboardInterrupt ends the search; :func:`resume_run`
    continues it. If too many trials fail, the ``status`` of the results is ``failed``.

    Args:
        sweep: The sweep to run.
        warm_start: Folders or URIs of older runs that the sampler learns from. They may use other
            data or models.
        on_progress: A callback, such as ``print``, that receives a :class:`raysweep.Progress` for
            each event and warning. By default, notebooks display the progress below the cell, and
            scripts show nothing.

    Raises:
        InputError: If the sweep's file, data or encoder is invalid.
    """
    from raysweep.api.notebook import make_display
    from raysweep.ray_tune import run

    disable_telemetry()
    older = [_folder(run) for run in warm_start]
    outcome = run.run(sweep.config, sweep.space, make_display(on_progress), warm_start=older)
    return RunResults(outcome.run)


def resume_run(
    folder: str | Path,
    overrides: Overrides = (),
    *,
    take_over: bool = False,
    on_progress: "OnProgress | None" = None,
) -> RunResults:
    """Resume a run that was interrupted or killed, or extend a finished one.

    Args:
        folder: The folder or URI of the run.
        overrides: Changed settings, such as ``{"budget.trials": 40}``. The budget and the number of
            replicates can be increased, and the space can be extended.
        take_over: Whether to take over a run in an object store from another process that is still
            driving it. The other process then stops.
        on_progress: A callback, as in :func:`run_sweep`.

    Raises:
        InputError: If the folder does not contain a run, if the run's data or encoder has changed,
            if another process is driving the run, or if an override is not allowed.
    """
    from raysweep.api.notebook import make_display
    from raysweep.controller.resume import load_resumed
    from raysweep.ray_tune import run

    disable_telemetry()
    sweep, resumed = load_resumed(_folder(folder), None, _as_texts(overrides), take_over=take_over)
    outcome = run.run(sweep.config, sweep.space, make_display(on_progress), resumed=resumed)
    return RunResults(outcome.run)


def load_run(folder: str | Path) -> RunResults:
    """Load the results of a run, finished or not.

    The results are a snapshot. To see later rungs of a running sweep, load the run again.

    Raises:
        InputError: If the folder does not contain a run.
    """
    return RunResults(_folder(folder))


def control_run(
    run: Run, action: str, value: int | Mapping[str, Any] | None = None, *, wait: float = 30
) -> str:
    """Send a request to a running sweep's driver, like ``raysweep control``, and return its response.

    Args:
        run: The run, or its folder or URI.
        action: ``pause``, ``resume``, ``workers`` (run at most ``value`` trials at a time),
            ``stop-trial`` (stop trial ``value`` permanently) or ``try`` (try the configuration
            ``value`` next).
        value: The action's value, if it has one.
        wait: How long to wait for a response, in seconds.

    Raises:
        InputError: If the action or its value is invalid, if no driver is running, or if the driver
            rejects the request.
        TimeoutError: If no response arrives in time. The request stays in the queue.
    """
    from raysweep.control.command import send
    from raysweep.control.request import make_request

    return send(_folder(run), make_request(action, value), wait)


def compare_runs(runs: Iterable[Run]) -> "RunComparison":
    """Compare each run with the first one, like ``raysweep compare``.

    Args:
        runs: Two or more runs, or their folders or URIs.

    Raises:
        InputError: If the runs are not comparable, for example because they use different data, or
            if none has a front.
    """
    from raysweep.api.run_comparison import RunComparison
    from raysweep.report.side_by_side import compare_runs, read_sides

    return RunComparison(compare_runs(read_sides([_folder(run) for run in runs])))


def evaluate_model(  # noqa: PLR0913 (the options of the command)
    model: str | Path,
    train: str | Path,
    test: str | Path,
    *,
    reference: str | Path | None = None,
    k: int | Sequence[int] = 16,
    rank_weights: "RankWeights | Sequence[RankWeights]" = "uniform",
    num_pool: int | None = None,
    pool_seed: int = 42,
    text_column: str = "text",
    label_column: str = "label",
    prompt: str | Mapping[str, str] | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    on_progress: "OnProgress | None" = None,
) -> "pd.DataFrame":
    """Score an encoder by retrieval, without training it, like ``raysweep evaluate``.

    Args:
        model: The encoder: a folder, a URI of a folder in a bucket, a name on the hub, or ``demo``.
        train: Labeled sentences from which the retrieval pool is sampled.
        test: Labeled sentences; each row is a query.
        reference: The encoder that defines similarity; the model itself if not given.
        k: The number of sentences to retrieve per query, or a list of such numbers.
        rank_weights: ``uniform``, ``linear`` or a list of both.
        num_pool: The pool size; min(train, 5 * queries) if not given.
        pool_seed: The seed for sampling the pool.
        text_column: The column with the sentences.
        label_column: The column with the labels.
        prompt: Text added before every sentence, or a mapping with the texts for ``query`` and
            ``document``; each model's default if not given.
        precision: The precision of the scored encoder; ``bf16`` uses autocast.
        on_progress: A callback, as in :func:`run_sweep`.

    Returns:
        A row for each combination of ``k`` and ``rank_weights``, with the columns ``k``,
        ``rank_weights``, ``polarity_mean``, ``polarity_std``, ``similarity_mean``,
        ``similarity_std`` and ``accuracy``. Scores are x100.

    Raises:
        InputError: If a file, a column, an encoder or a setting is invalid.
    """
    import pandas as pd

    from raysweep.api.notebook import make_display
    from raysweep.evaluation.score_files import LabeledFiles, RetrievalSettings, score_files

    disable_telemetry()
    encoder = _encoder("model", name=str(model), prompt=prompt, precision=precision)
    reference_encoder = (
        None if reference is None else _encoder("reference", name=str(reference), prompt=prompt)
    )
    files = LabeledFiles(str(train), str(test), text_column, label_column)
    ks = [k] if isinstance(k, int) else list(k)
    kinds = [rank_weights] if isinstance(rank_weights, str) else list(rank_weights)
    settings = RetrievalSettings(ks, kinds, num_pool, pool_seed)
    return pd.DataFrame(
        score_files(encoder, reference_encoder, files, settings, make_display(on_progress))
    )


def export_point(  # noqa: PLR0913 (the options of the command)
    run: Run,
    to: str | Path,
    point: str = "knee",
    *,
    where: Sequence[str] = (),
    push: str | None = None,
    private: bool = False,
    adapter: bool = False,
    data_set: str | None = None,
) -> str:
    """Write a front member as a sentence-transformers model with a model card.

    ``SentenceTransformer(to)`` loads it.

    Args:
        run: The run, or its folder or URI.
        to: The folder for the model, which must not exist yet.
        point: ``knee``, ``best`` (by the objective) or a name from the ``point`` column of
            :attr:`RunResults.front`.
        where: Conditions such as ``"encoders = 1"`` or ``"width <= 384"``, as in ``raysweep show``.
            ``knee`` and ``best`` are chosen among the points that meet them.
        push: A repository ``OWNER/NAME`` on the hub to upload the model to. It is created if it
            does not exist.
        private: Whether a newly created repository is private.
        adapter: Whether to write only the LoRA adapter instead of merging it into the base model.
        data_set: For runs over ``data.sequence``, the name of the data set that the model is for.

    Returns:
        A description of the exported point.

    Raises:
        InputError: If the point does not exist, ``to`` exists, the weights are missing, or the
            upload fails. If only the upload fails, the folder has already been written.
    """
    from raysweep.export import hub
    from raysweep.export.export import export

    if push is not None:
        hub.check_name(push)

    folder = _folder(run)
    if is_uri(str(to)):
        raise InputError(f"{to}: is a URI; allowed: a local folder")
    description = export(
        folder, point, Path(to), push, as_adapter=adapter, conditions=where, data_set=data_set
    )
    if push is None:
        return description
    return f"{description}; pushed: {hub.push(Path(to), push, private=private)}"


def open_prepared(path: str | Path) -> "Prepared":
    """Open the artifacts at the path that ``raysweep prepare`` prints.

    Raises:
        InputError: If the file or an artifact is missing.
    """
    from raysweep.data.prepared import Prepared

    return Prepared.open(path)


def trial_config(**parameters: Any) -> TrialConfig:
    """Return a trial's configuration, with defaults for omitted parameters.

    Raises:
        InputError: If a value is invalid.
    """
    return validated_trial_config(parameters)


def _encoder(argument: str, **values: Any) -> EncoderConfig:
    """Validate an encoder's settings; ``argument`` is its name in error messages."""
    try:
        return EncoderConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        problem = explain(dict(first), (key,), EncoderConfig)
        raise InputError(join_key(argument if key == "name" else key, problem)) from None


def _folder(place: Run) -> Folder:
    if isinstance(place, RunResults):
        return place.run
    try:
        folder = open_folder(place)
    except ValueError as error:
        raise InputError(str(error)) from None
    if isinstance(folder, BucketFolder):
        folder.bucket.check()
    return folder


def _as_texts(overrides: Overrides) -> list[tuple[str, str]]:
    """Convert the values to YAML text; values other than strings become JSON, which is valid YAML."""
    pairs = overrides.items() if isinstance(overrides, Mapping) else overrides
    texts = []
    for key, value in pairs:
        text = value
        if not isinstance(value, str):
            plain = str(value) if isinstance(value, Path) else value
            try:
                text = json.dumps(plain, ensure_ascii=False)
            except TypeError:
                raise InputError(
                    f"{key} is {value!r} of type {type(value).__name__}; allowed: a value that YAML can represent, or "
                    "YAML text"
                ) from None
        texts.append((key, text))
    return texts
