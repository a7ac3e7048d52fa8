"""Start and resume runs of a sweep."""

import contextlib
import datetime
import hashlib
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import yaml

from raysweep.cluster.resources import Request
from raysweep.config.space import Space
from raysweep.config.space_parser import possible_values
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.config.watch import MAX_QUERIES
from raysweep.controller import warm_start
from raysweep.controller.budget import CostTracker
from raysweep.controller.optuna_study import StudyFile
from raysweep.controller.readings import ReadingsWriter
from raysweep.controller.resume import Resumed, check_links, has_begun
from raysweep.controller.sweep import Sweep
from raysweep.data.labeled_relations import retrieval_from_labels
from raysweep.data.prepared import Prepared
from raysweep.data.relations import Relations, sample_groups
from raysweep.data.sources import shown
from raysweep.errors import InputError, ReplayError
from raysweep.evaluation.evaluation_set import ScoredSet
from raysweep.evaluation.pair_measures import reference_measures
from raysweep.evaluation.relation_set import scored_set
from raysweep.evaluation.watched import WatchedRelations
from raysweep.metrics.scores import WATCHED
from raysweep.output import counted
from raysweep.ray_tune.baselines import (
    Baselines,
    BaselineScores,
    OnScores,
    limit_points,
    reference_of_tasks,
)
from raysweep.ray_tune.untuned import Untuned
from raysweep.results.commands import format_command
from raysweep.results.events import PointsScored, SessionStarted
from raysweep.results.ledger import Ledger
from raysweep.results.readings import REFERENCE, REFERENCE_FILE
from raysweep.results.scores import Score
from raysweep.results.types import Measure, Point, Results, RunInfo, ScoredSplit
from raysweep.search.scheduler import Scheduler, make_scheduler
from raysweep.storage import location
from raysweep.storage.folder import BucketFolder, Folder, open_folder
from raysweep.storage.private import OWNER_ONLY, make_private
from raysweep.terminal import Display, Log
from raysweep.version import __version__, installed

GIB = 2**30


@dataclass(frozen=True)
class Session:
    """A session of a sweep, which starts or resumes a run.

    ``request`` holds the Ray resources of a trial. If ``log`` is None, no log is kept.
    """

    config: SweepConfig
    space: Space
    prepared: Prepared
    request: Request
    display: Display
    log: Log | None = None

    @cached_property
    def watched(self) -> WatchedRelations | None:
        """Return the watched data, with dev as the target unless another target is configured."""
        if self.config.watch is None:
            return None
        watched = WatchedRelations.of(self.config.watch, self.config.seed)
        if not watched.has_target:
            try:
                return watched.with_target(self._dev_relations())
            except InputError as error:
                self.display.warn(
                    f"watch.target: dev cannot be the target, so there is no adiabatic range: {error}"
                )
        return watched

    def _dev_relations(self) -> Relations:
        sentences = self.prepared.sentences
        ids = sentences.ids("dev")
        if sentences.are_related:
            kind = self.config.data.kind
            assert kind is not None
            relations = Relations.of_pairs("dev", kind, sentences.pairs("dev"), sentences.texts)
            return sample_groups(relations, MAX_QUERIES, self.config.seed)
        labels = [sentences.label_names[label] for label in sentences.labels[ids]]
        return retrieval_from_labels("dev", sentences.texts(ids), labels, seed=self.config.seed)

    def untuned(self, run: Folder, *, is_new: bool = False) -> Untuned | None:
        """Return the untuned encoders' values on watched data; measure values not stored yet."""
        if self.watched is None:
            return None
        untuned = Untuned(run, self.watched, self.prepared, self.display, is_new)
        untuned.measure(possible_values(self.space, "tower"))
        return untuned

    @property
    def has_test(self) -> bool:
        return len(self.prepared.sentences.ids("test")) > 0

    def readings_writer(self, run: Folder) -> ReadingsWriter:
        """Return a writer for the sentences that front members retrieve."""
        config = self.config
        return ReadingsWriter(
            run,
            self.prepared,
            self._shown_split,
            config.seed,
            config.report.texts,
            self.display.warn,
        )

    def begin(self, older: Sequence[Results] = (), place: str | None = None) -> Sweep:
        """Create a run folder, record the run's settings and return the new sweep.

        The sweep is warm-started from the ``older`` runs. ``place`` is the folder to use instead of a new one. It may
        contain files from an earlier attempt that stopped before its sweep started.
        """
        if place is None:
            run = _new_run(self.config, self.display)
        else:
            run = open_folder(place, self.display.warn)
            if run.path.is_symlink():
                raise InputError(f"{run.location}: is a symbolic link; allowed: a folder")
            check_links(run)
            make_private(run.path)
            (run.path / "points").mkdir(exist_ok=True)
        ledger = Ledger(run, self.display.warn)
        events = ledger.open()
        try:
            if has_begun(events):
                raise InputError(
                    f"{run.location}: another process has started this run; run the command again"
                )
            return self._begin_in(ledger, older)
        except BaseException:
            ledger.close()
            raise

    def _begin_in(self, ledger: Ledger, older: Sequence[Results]) -> Sweep:
        run = ledger.run
        if self.log is not None:
            self.log.move(ledger.folder / "run.log")
        self._write_settings(run)
        self.display.line(f"run: {run.location}")
        evaluation_sets = self._evaluation_sets()
        goals = self.config.objective.goals
        scores = BaselineScores(run, goals)
        limits: list[Point] = []
        untuned = self.untuned(run, is_new=True)
        watch = self.config.watch
        has_watched_rungs = watch is not None and watch.at == "rung"
        for evaluation in evaluation_sets.values():
            for point in limit_points(evaluation, scores.add):
                if untuned is not None and has_watched_rungs and point.kind == "reference":
                    watched_score = Score(untuned.reference_score)
                    point = replace(point, scores={**point.scores, WATCHED: watched_score})
                limits.append(point)
        baselines = self._baselines(evaluation_sets, scores.add)
        baseline_points = self._score(baselines)
        scores.store()
        self._keep_reference_reading(run, evaluation_sets)
        reference = next(
            point for point in limits if point.kind == "reference" and point.split == "dev"
        ).pair(goals)
        scheduler = make_scheduler(self.config, self.space, reference)
        if older:
            gathered = warm_start.gather(older, self.space, reference, goals)
            warm_start.write(run, gathered)
            warm_start.apply(scheduler.proposer, gathered)
            log = self.display.line if gathered.observations else self.display.warn
            log(f"search: {gathered.summary}")
        sweep = self._sweep(scheduler, ledger)
        self._record_info(sweep, evaluation_sets)
        measures: list[Measure] = []
        for evaluation in evaluation_sets.values():
            measures += reference_measures(self.prepared, evaluation)
        tasks: list[Point] = []
        for evaluation in evaluation_sets.values():
            tasks += reference_of_tasks(evaluation)
        scored = PointsScored(
            points=(*limits, *baseline_points),
            measures=tuple(measures) or None,
            tasks=tuple(tasks) or None,
        )
        ledger.append(scored)
        self._announce(scheduler)
        return sweep

    def resume(self, resumed: Resumed) -> Sweep:
        """Restore a sweep to the state at the end of its ledger."""
        run = resumed.run
        if self.log is not None:
            self.log.move(resumed.folder / resumed.next_log())
        self.display.line(f"run: {resumed.location} (resumed)")
        if unfinished := resumed.ledger.unfinished:
            self.display.warn(
                f"resume: incomplete last line of the ledger moved to ledger.unfinished (bytes={len(unfinished)})"
            )
        try:
            sweep = self._replayed(resumed, adopt=resumed.space_changed)
        except ReplayError as error:
            # The Optuna version differs, or an earlier session changed the space.
            self.display.warn(f"resume: {error}; the sampler restarts from the existing trials")
            sweep = self._replayed(resumed, adopt=True)
        evaluation_sets = self._evaluation_sets()
        scores = BaselineScores(run, self.config.objective.goals)
        baselines = self._baselines(evaluation_sets, scores.add, resumed.points)
        new_points = self._score(baselines)
        # Per-query scores are stored for these kinds of points.
        scored_points = [
            point for point in resumed.points if point.kind in ("reference", "oracle", "probe")
        ]
        missing = scores.find_missing(scored_points)
        baselines.score_again(missing)
        if self.watched is not None:
            # raises InputError if the watched data has changed
            Untuned(run, self.watched, self.prepared, self.display)
        # Record the session first, so that config.yaml always belongs to a recorded session.
        self._record_info(sweep, evaluation_sets)
        self._write_settings(run)
        scores.store()
        if not run.exists(REFERENCE_FILE):
            self._keep_reference_reading(run, evaluation_sets)
        if not self.config.report.texts:
            self.readings_writer(run).remove_texts()
        if new_points:
            sweep.ledger.append(PointsScored(points=new_points))
        self._announce(sweep.scheduler)
        steering = sweep.steering
        if steering.workers is not None:
            self.display.line(
                f"search: concurrent trials limited by raysweep control (max={steering.workers})"
            )
        if steering.is_paused:
            resume = format_command("control", sweep.run.location, "--resume")
            self.display.warn(f"search: still paused; to resume: {resume}")
        return sweep

    @property
    def _shown_split(self) -> ScoredSplit:
        return "test" if self.has_test else "dev"

    def _evaluation_sets(self) -> dict[ScoredSplit, ScoredSet]:
        splits: list[ScoredSplit] = ["dev", "test"] if self.has_test else ["dev"]
        return {split: scored_set(self.prepared, split, self.config.evaluation) for split in splits}

    def _keep_reference_reading(
        self, run: Folder, evaluation_sets: Mapping[ScoredSplit, ScoredSet]
    ) -> None:
        shown_set = evaluation_sets[self._shown_split]
        reading = shown_set.reading({REFERENCE: shown_set.reference_scores})
        if reading is not None:
            run.keep(REFERENCE_FILE, reading.content())

    def _baselines(
        self,
        evaluation_sets: Mapping[ScoredSplit, ScoredSet],
        on_scores: OnScores,
        stored: Sequence[Point] = (),
    ) -> Baselines:
        return Baselines(
            self.config.baselines,
            self.prepared,
            list(evaluation_sets.values()),
            self.config.seed,
            self.display.warn,
            stored,
            on_scores,
            calibrate=self.config.evaluation.points.calibrate,
        )

    def _score(self, baselines: Baselines) -> tuple[Point, ...]:
        """Score the baseline points that are not stored yet, and log the time per kind."""
        points: list[Point] = []
        seconds: dict[str, float] = defaultdict(float)
        began = time.monotonic()
        for point in baselines.points():
            points.append(point)
            now = time.monotonic()
            seconds[point.kind] += now - began
            began = now
        if points:
            details = ", ".join(f"{kind}={spent:.0f} s" for kind, spent in seconds.items())
            self.display.line(f"run: baselines scored ({details})")
        return tuple(points)

    def _replayed(self, resumed: Resumed, *, adopt: bool) -> Sweep:
        """Return the sweep after replaying its ledger.

        With ``adopt``, trials are taken from the ledger. Otherwise, the sampler proposes them again.
        """
        # Change the seed so that the sampler does not propose the adopted trials again.
        offset = len(resumed.events) if adopt else 0
        reference = resumed.reference(self.config.objective.goals)
        scheduler = make_scheduler(self.config, self.space, reference, seed_offset=offset)
        sweep = self._sweep(scheduler, resumed.ledger)
        try:
            gathered = warm_start.read(resumed.run)
            if gathered is not None:
                warm_start.apply(scheduler.proposer, gathered)
            sweep.replay(resumed.events, adopt=adopt)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(
                f"space: {error}; allowed: a space that contains every trial of the run"
            ) from None
        return sweep

    def _sweep(self, scheduler: Scheduler, ledger: Ledger) -> Sweep:
        study = StudyFile(ledger.folder / "study.journal", self.config.name, scheduler.proposer)
        costs = CostTracker(self.config.budget, self.request.cpus, self.request.gpus)
        num_queries = self.prepared.sentences.num_queries("dev")
        return Sweep(
            self.config,
            scheduler,
            ledger,
            self.display,
            costs,
            study,
            num_queries,
            num_workers=self.request.count,
        )

    def _write_settings(self, run: Folder) -> None:
        temporary = run.path / ".config.yaml"
        temporary.write_bytes(self._config_file)
        temporary.replace(run.path / "config.yaml")
        self.prepared.save(run.path / "prepared.json")
        run.store("config.yaml")
        run.store("prepared.json")

    @property
    def _config_file(self) -> bytes:
        return yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False).encode()

    def _record_info(self, sweep: Sweep, evaluation_sets: Mapping[ScoredSplit, ScoredSet]) -> None:
        """Append the session's settings to the ledger."""
        config = self.config
        objective = config.objective
        sources = (config.data.train, config.data.dev, config.data.test)
        names = [shown(source) for source in sources if source]
        minimums = objective.constraints.model_dump()
        constraints = {name: minimum for name, minimum in minimums.items() if minimum}
        # for each expert, the share of training pairs whose soft1 target is its score
        active_sets: tuple[tuple[str, float], ...] = ()
        if self.prepared.scores_artifacts:
            shares = self.prepared.scores_artifacts["train"].summary["active_sets"]
            experts = map(_describe, config.examples.experts)
            active_sets = tuple(zip(experts, shares, strict=True))
        info = RunInfo(
            name=config.name,
            version=__version__,
            dataset=", ".join(names),
            model=_describe(config.model),
            reference=_describe(config.reference_encoder),
            prompt=self.prepared.model["prompt"],
            reference_prompt=self.prepared.reference["prompt"],
            k=config.evaluation.k,
            rank_weights=config.evaluation.rank_weights,
            polarity_weight=objective.polarity_weight,
            polarity=objective.polarity,
            similarity=objective.similarity,
            num_trials=sweep.scheduler.num_trials,
            num_queries={
                split: evaluation.num_scored for split, evaluation in evaluation_sets.items()
            },
            num_pool={split: len(evaluation.pool) for split, evaluation in evaluation_sets.items()},
            data_kind=config.data.kind or "labeled",
            label_names=tuple(self.prepared.sentences.label_names),
            seed=config.seed,
            constraints=constraints,
            guards={name: guard.at_least for name, guard in config.guards.items()},
            packages=installed(),
            searched=self.space.searched,
            logarithmic=self.space.logarithmic,
            active_sets=active_sets,
            tasks=tuple(self.prepared.tasks),
        )
        digest = hashlib.sha256(self._config_file).hexdigest()
        sweep.ledger.append(SessionStarted(info=info, config_digest=digest))

    def _announce(self, scheduler: Scheduler) -> None:
        details = []
        if scheduler.num_started:
            details.append(f"started={scheduler.num_started}")
        if scheduler.replicates.trials:
            details.append(f"max_replicates={scheduler.replicates.trials}")
        request = self.request
        details += [
            f"at_a_time={request.count}",
            f"cpus={request.cpus:g}",
            f"gpus={request.gpus:g}",
        ]
        if request.memory_bytes:
            details.append(f"memory={request.memory_bytes / GIB:.1f} GiB")
        trials = counted(scheduler.num_trials, "trial")
        self.display.line(f"search: {trials} ({', '.join(details)})")


def _new_run(config: SweepConfig, display: Display) -> Folder:
    """Create a run folder named after the sweep and the time, numbered if the name is taken."""
    now = datetime.datetime.now()
    stamp = now.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        suffix = "" if number == 1 else f"-{number}"
        name = f"{config.name}-{stamp}{suffix}"
        place = location.join(config.storage.runs, name)
        run = open_folder(place, display.warn)
        with contextlib.suppress(FileExistsError):
            if isinstance(run, BucketFolder):  # another driver may start a run in the same second
                run.bucket.create("begun", uuid.uuid4().bytes)
            path = run.path
            make_private(path.parent)
            path.mkdir(mode=OWNER_ONLY)
            points = path / "points"
            points.mkdir()
            return run
    raise AssertionError("a thousand runs in one second")


def _describe(encoder: EncoderConfig) -> str:
    return encoder.name + (f"@{encoder.revision}" if encoder.revision else "")
