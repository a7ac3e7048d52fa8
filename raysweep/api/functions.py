"""The functions of the public API, in the order in which a sweep needs them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.api.run_results import RunResults
from raysweep.config import load
from raysweep.config.load import LoadedSweep
from raysweep.config.sweep import SAMPLERS
from raysweep.config.trial import TrialConfig
from raysweep.config.trial import trial_config as validated_trial_config
from raysweep.errors import InputError
from raysweep.storage.folder import BucketFolder, Folder, open_folder
from raysweep.storage.location import is_uri
from raysweep.terminal import disable_telemetry

if TYPE_CHECKING:
    from raysweep.api.progress import OnProgress
    from raysweep.data.prepared import Prepared

Overrides = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Values by the dotted paths of their keys. A string is read as YAML, as on the command line; any other value as it is."""


def load_sweep(space: str | Path, overrides: Overrides = ()) -> LoadedSweep:
    """A sweep by the name of a shipped space, such as ``"demo"``, or by its YAML file, under overrides.

    Nothing but the file is read. The result's ``config`` is the whole configuration, its ``space`` the search space.
    Raises InputError that names file, line or key, value and what is allowed.
    """
    loaded = load.load(load.find_space(str(space)), _as_texts(overrides))
    if loaded.config.sampler not in SAMPLERS:  # Optuna takes its time to import
        from raysweep.search.proposer import check_sampler

        check_sampler(loaded)
    return loaded


def prepare_sweep(
    sweep: LoadedSweep, *, in_process: bool = False, on_progress: "OnProgress | None" = None
) -> "Prepared":
    """Build what the sweep's trials read, or find it where it was built before.

    That is sentences, tokens, reference embeddings, neighbours and examples, in the folder ``storage.artifacts``. Ray Data
    spreads the work over the cluster that ``resources`` names, or over a local one; ``in_process`` does it in this process,
    without Ray, with the same result, and tells ``on_progress`` of warnings alone. Raises InputError for sources and
    encoders that cannot be read.
    """
    from raysweep.api.progress import CallbackDisplay

    display = CallbackDisplay(on_progress)
    if in_process:
        from raysweep.prepare.build import prepare_here

        return prepare_here(sweep.config, sweep.space, display)
    from raysweep.ray_tune import run

    disable_telemetry()
    path = run.prepare_only(sweep.config, sweep.space, display)
    return open_prepared(path)


def run_sweep(
    sweep: LoadedSweep, *, warm_start: Iterable[str | Path] = (), on_progress: "OnProgress | None" = None
) -> RunResults:
    """Run a whole sweep: prepare, search, score the front on test. Its results are in ``storage.runs``.

    ``on_progress`` takes a :class:`raysweep.Progress` for each line and each change of the status; ``print`` will do.
    ``warm_start`` names folders of older runs, also over other data or models, that the sampler learns from. A
    KeyboardInterrupt ends the search; the rungs that were finished are in the results, and :func:`resume_run` goes on.
    If too many trials fail, the results' ``status`` is ``failed``.
    Raises InputError for what the sweep's file, data or encoder get wrong.
    """
    from raysweep.api.progress import CallbackDisplay
    from raysweep.ray_tune import run

    disable_telemetry()
    older = [_folder(run) for run in warm_start]
    outcome = run.run(sweep.config, sweep.space, CallbackDisplay(on_progress), warm_start=older)
    return RunResults(outcome.run)


def resume_run(
    folder: str | Path, overrides: Overrides = (), *, take_over: bool = False, on_progress: "OnProgress | None" = None
) -> RunResults:
    """Go on with a run that was interrupted, killed or reached its budget, under what may change about it.

    ``folder`` may be a URI. ``take_over`` takes a run in an object store from the process that has it, which stops that one.
    More budget, more replicates and a space that only adds may be asked for: ``{"budget.trials": 40}``. Raises InputError
    where the folder holds no run, its data or encoder have changed, another process works on it, or too much would change.
    """
    from raysweep.api.progress import CallbackDisplay
    from raysweep.controller.resume import load_resumed
    from raysweep.ray_tune import run

    disable_telemetry()
    sweep, resumed = load_resumed(_folder(folder), None, _as_texts(overrides), take_over=take_over)
    outcome = run.run(sweep.config, sweep.space, CallbackDisplay(on_progress), resumed=resumed)
    return RunResults(outcome.run)


def load_run(folder: str | Path) -> RunResults:
    """The results of the run in a folder or at a URI, finished or not. Raises InputError where the folder holds no run."""
    return RunResults(_folder(folder))


def export_point(
    run: str | Path | RunResults, to: str | Path, point: str = "knee", *, push: str | None = None, private: bool = False
) -> str:
    """Write a front member as an ordinary sentence-transformers model with its card, for ``SentenceTransformer(to)``.

    ``point`` is ``knee``, ``best`` (of the objective) or a name from the column ``point`` of :attr:`RunResults.front`.
    ``push`` also uploads it to the repository ``OWNER/NAME`` on the hub, which is made if it is not there, with ``private``
    for no one else to see. Returns a sentence that says what was written. Raises InputError where there is no such point,
    ``to`` exists or the weights are gone; and, when the folder is written, where the hub cannot be reached or refuses.
    """
    from raysweep.export import hub
    from raysweep.export.export import export

    if push is not None:
        hub.check_name(push)

    folder = run.run if isinstance(run, RunResults) else _folder(run)
    if is_uri(str(to)):
        raise InputError(f"{to}: must be a folder of this machine, not a URI")
    described = export(folder, point, Path(to), push)
    if push is None:
        return described
    return f"{described}; pushed: {hub.push(Path(to), push, private=private)}"


def open_prepared(path: str | Path) -> "Prepared":
    """What ``raysweep prepare`` left, by the file whose path it prints. Raises InputError when it or an artifact is gone."""
    from raysweep.data.prepared import Prepared

    return Prepared.open(path)


def trial_config(**parameters: Any) -> TrialConfig:
    """A trial's configuration; parameters that are not given take their defaults, losses' own from the table of losses.

    Raises InputError that names the parameter, its value and what is allowed.
    """
    return validated_trial_config(parameters)


def _folder(place: str | Path) -> Folder:
    try:
        folder = open_folder(place)
    except ValueError as error:
        raise InputError(str(error)) from None
    if isinstance(folder, BucketFolder):
        folder.bucket.check()
    return folder


def _as_texts(overrides: Overrides) -> list[tuple[str, str]]:
    """Each value as the YAML text that the command line would give; JSON is YAML."""
    pairs = overrides.items() if isinstance(overrides, Mapping) else overrides
    return [(key, _as_text(key, value)) for key, value in pairs]


def _as_text(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
    except TypeError:
        raise InputError(
            f"{key}: {value!r} is of type {type(value).__name__}; allowed: what YAML can hold, or YAML text"
        ) from None
