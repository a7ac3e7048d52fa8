"""One session of a sweep on a cluster: start or resume a run, search, and score the front on the test split."""

import contextlib
import dataclasses
import datetime
import hashlib
import shlex
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from raysweep.cluster.resources import Capacity, Request
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.controller import warm_start
from raysweep.controller.budget import CostTracker
from raysweep.controller.optuna_study import StudyFile
from raysweep.controller.readings import ReadingsWriter
from raysweep.controller.resume import Resumed, check_links, has_begun
from raysweep.controller.sweep import Sweep
from raysweep.data.prepared import Prepared
from raysweep.data.sources import shown
from raysweep.errors import InputError, ReplayError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics.objective import Pair
from raysweep.prepare.build import prepare
from raysweep.prepare.plan import Plan
from raysweep.ray_tune.baseline_scores import BaselineScores
from raysweep.ray_tune.baselines import Baselines, OnScores, limit_points
from raysweep.results.events import GuardsMeasured, PointsScored, SessionStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.readings import REFERENCE, REFERENCE_FILE
from raysweep.results.types import Point, Results, RunInfo, ScoredSplit
from raysweep.search.scheduler import Scheduler, make_scheduler
from raysweep.storage import location
from raysweep.storage.cache import check_room
from raysweep.storage.folder import BucketFolder, Folder, open_folder
from raysweep.terminal import Display, Log
from raysweep.version import __version__, installed

GIB = 2**30


@dataclass(frozen=True)
class Session:
    """The inputs of one session of a sweep.

    ``request`` holds the Ray resources of a trial. If ``log`` is None, no log is kept.
    """

    config: SweepConfig
    space: Space
    prepared: Prepared
    request: Request
    display: Display
    log: Log | None = None

    @classmethod
    def open(cls, plan: Plan, capacity: Capacity, display: Display, log: Log | None) -> "Session":
        """Prepare missing artifacts and decide how many trials run at a time.

        Raises:
            InputError: If not even one trial fits.
        """
        config = plan.config
        most = config.budget.trials + config.replicates.trials
        request = capacity.trials(config.resources)
        request = dataclasses.replace(request, count=min(request.count, most))  # no more nodes than there is work for
        prepared = prepare(plan, capacity, display)
        check_room(plan.store.root, [artifact.name for artifact in prepared.artifacts])
        session = cls(config, plan.space, prepared, request, display, log)
        if config.resources.gpus_per_trial == "measured" and request.gpus:
            return session._packed()
        return session if request.gpus else session._with_memory(capacity)

    def begin(self, older: Sequence[Results] = (), place: str | None = None) -> Sweep:
        """Create the run's folder, record the run's settings and return the new sweep.

        The sweep learns from the ``older`` runs. The folder gets a new name, or is the one at ``place``, where an
        earlier attempt may have stopped before its sweep started.
        """
        run = _new_run(self.config, self.display) if place is None else _run_at(place, self.display)
        ledger = Ledger(run, self.display.warn)
        entries = ledger.open()
        try:
            if has_begun(event for event, _ in entries):
                raise InputError(
                    f"{run.location}: another process has begun this run meanwhile; give the command again"
                )
            return self._begun(ledger, older)
        except BaseException:
            ledger.close()
            raise

    def _begun(self, ledger: Ledger, older: Sequence[Results]) -> Sweep:
        if self.log is not None:
            self.log.move(ledger.folder / "run.log")
        self._write_settings(ledger.run)
        self.display.line(f"run: {ledger.run.location}")
        evaluation_sets = self._evaluation_sets()
        scores = BaselineScores(ledger.run)
        limits = [point for one in evaluation_sets.values() for point in limit_points(one, scores.take)]
        baselines = self._baselines(evaluation_sets, scores.take)
        scores.keep()
        self._keep_reference_reading(ledger.run, evaluation_sets)
        reference_scores = evaluation_sets["dev"].reference_scores
        reference = float(reference_scores.polarity.mean()), float(reference_scores.similarity.mean())
        scheduler = make_scheduler(self.config, self.space, reference)
        if older:
            self._warm_start(scheduler, older, reference, ledger.run)
        sweep = self._sweep(scheduler, ledger)
        self._record_info(sweep, evaluation_sets)
        ledger.append(PointsScored(points=(*limits, *baselines)))
        self._announce(scheduler)
        return sweep

    def resume(self, resumed: Resumed) -> Sweep:
        """Restore a sweep to the state at the end of its ledger."""
        if self.log is not None:
            self.log.move(resumed.folder / resumed.next_log())
        self.display.line(f"run: {resumed.location}, resumed")
        if unfinished := resumed.ledger.unfinished:
            self.display.warn(
                f"resume: a crash cut the ledger's last line short; its {len(unfinished)} bytes go to ledger.unfinished"
            )
        try:
            sweep = self._replayed(resumed, adopt=resumed.space_grew)
        except ReplayError as error:
            # Another version of Optuna, or a space that grew earlier. Trials still count; only proposals differ.
            self.display.warn(f"resume: {error}: the sampler starts afresh from the trials that there are")
            sweep = self._replayed(resumed, adopt=True)
        evaluation_sets = self._evaluation_sets()
        scores = BaselineScores(resumed.run)
        baselines = self._baselines(evaluation_sets, scores.take, resumed.points)
        self._rescore(scores.lacking(_with_scores(resumed.points)), evaluation_sets, scores.take)
        # All checks have passed. The event comes first, so that config.yaml always belongs to a recorded session.
        self._record_info(sweep, evaluation_sets)
        self._write_settings(resumed.run)
        scores.keep()
        if not resumed.run.exists(REFERENCE_FILE):
            self._keep_reference_reading(resumed.run, evaluation_sets)
        if not self.config.report.texts:
            self._readings_writer(resumed.run).remove_texts()
        if baselines:
            sweep.ledger.append(PointsScored(points=baselines))
        self._announce(sweep.scheduler)
        self._announce_steering(sweep)
        return sweep

    def search(self, sweep: Sweep) -> None:
        """Run the sweep's trials, then score its front on the test split, if there is one, and by its guards."""
        # Imported late because Ray Tune is slow to import and reads the environment, which is set by now.
        from raysweep.ray_tune import tune
        from raysweep.ray_tune.workers import WorkbenchSpec

        bench = WorkbenchSpec(self.prepared, self.config.evaluation, self.request)
        tune.search(sweep, bench, has_test=self._has_test)
        # Like the test scores, also after the budget ended the trials, since there may never be another session.
        if self.config.guards:
            with sweep.off_the_clock():
                self._measure_guards(sweep)

    def _measure_guards(self, sweep: Sweep) -> None:
        """Measure the front's members, in this process, by the guards that no earlier session has measured."""
        from raysweep.export.guards import measure

        files = {name: guard.files_digest for name, guard in self.config.guards.items()}
        stored = {
            (each.trial, each.step, each.kind, each.value, each.guard)
            for each in load(sweep.run).guards
            if each.files == files.get(each.guard)
        }
        wanted: dict[Point, list[str]] = {}
        for point in sweep.kept_front():
            encoder = point.trial, point.step, *point.key
            if missing := [name for name in self.config.guards if (*encoder, name) not in stored]:
                wanted[point] = missing
        if not wanted:
            return
        num_wanted = sum(map(len, wanted.values()))
        sweep.begin_stage("guards", num_wanted)
        num_done = 0
        for found in measure(sweep.run, self.config.guards, wanted):
            if isinstance(found, InputError):
                self.display.warn(f"guards: {found}")
                continue
            sweep.ledger.append(GuardsMeasured(scores=(found,)))
            num_done += 1
            self.display.status(f"guards: {num_done} of {num_wanted} scores")
        self.display.line(f"guards: measured {num_done} scores of {len(wanted)} front members")

    def keep_readings(self, sweep: Sweep) -> None:
        """Store the sentences that the front's members retrieve.

        Failures only cause a warning, since the run's results do not depend on them.
        """
        try:
            self._readings_writer(sweep.run).write(sweep.front)
        except Exception as error:  # the run's files may contain anything
            self.display.warn(f"run: what the front's members retrieve could not be stored: {error}")

    def _readings_writer(self, run: Folder) -> ReadingsWriter:
        return ReadingsWriter(
            run, self.prepared, self._shown_split, self.config.seed, self.config.report.texts, self.display.warn
        )

    @property
    def _shown_split(self) -> ScoredSplit:
        return "test" if self._has_test else "dev"

    def _keep_reference_reading(self, run: Folder, evaluation_sets: Mapping[ScoredSplit, EvaluationSet]) -> None:
        shown = evaluation_sets[self._shown_split]
        run.keep(REFERENCE_FILE, shown.reading({REFERENCE: shown.reference_scores}).content())

    def _rescore(
        self, points: Sequence[Point], evaluation_sets: Mapping[ScoredSplit, EvaluationSet], on_scores: OnScores
    ) -> None:
        """Score reference, oracle and probe points again whose per-query scores are missing or damaged."""
        for split in {point.split for point in points if point.kind != "probe"}:
            for _ in limit_points(evaluation_sets[split], on_scores):
                pass
        values = sorted({point.value for point in points if point.kind == "probe" and point.value is not None})
        probes = self.config.baselines.model_copy(update={"probe": values, "setfit": None, "published": None})
        again = Baselines(
            probes,
            self.prepared,
            list(evaluation_sets.values()),
            self.config.seed,
            self.display.warn,
            on_scores=on_scores,
            calibrate=self.config.evaluation.points.calibrate,
        )
        for _ in again.points():
            pass

    def _packed(self) -> "Session":
        """Return the session with as many trials per GPU as fit, judged by the space's most demanding ones."""
        from raysweep.ray_tune.workers import WorkbenchSpec, measure_memory

        bench = WorkbenchSpec(self.prepared, self.config.evaluation, self.request)
        peak_bytes, total_bytes = measure_memory(
            bench, self.space.largest(), lambda text: self.display.line(f"search: {text}")
        )
        request = self.request.packed(peak_bytes, total_bytes)
        if limit := self.config.resources.max_concurrent_trials:
            request = dataclasses.replace(request, count=min(request.count, limit))
        self.display.line(
            f"search: a trial takes {peak_bytes / GIB:.2f} of a GPU's {total_bytes / GIB:.1f} GiB: "
            f"{round(1 / request.gpus)} on each GPU"
        )
        return dataclasses.replace(self, request=request)

    def _with_memory(self, capacity: Capacity) -> "Session":
        """Return the session whose CPU trials request the memory that they need."""
        from raysweep.ray_tune.memory import needed_by_trial

        needed_bytes = needed_by_trial(self.prepared, self.space, self.request.cache_bytes)
        request = capacity.with_memory(self.request, needed_bytes)
        if 0 < request.memory_bytes < needed_bytes:
            self.display.warn(
                f"search: a trial needs about {needed_bytes / GIB:.1f} GiB of memory, but Ray has "
                f"{request.memory_bytes / GIB:.1f} for it on the largest node: lower space.batch_size or "
                "resources.cache_gib should trials be killed"
            )
        return dataclasses.replace(self, request=request)

    def _warm_start(self, scheduler: Scheduler, older: Sequence[Results], reference: Pair, run: Folder) -> None:
        observed = warm_start.gather(older, self.space, reference)
        warm_start.write(run, observed)
        warm_start.apply(scheduler.proposer, observed)
        tell = self.display.line if observed.observations else self.display.warn
        tell(f"search: {observed.summary}")

    def _replayed(self, resumed: Resumed, *, adopt: bool) -> Sweep:
        """Return the sweep as its ledger left it.

        With ``adopt``, old trials count without being proposed again.
        """
        # Earlier random draws must not repeat.
        offset = len(resumed.events) if adopt else 0
        scheduler = make_scheduler(self.config, self.space, resumed.reference, seed_offset=offset)
        sweep = self._sweep(scheduler, resumed.ledger)
        try:
            observed = warm_start.read(resumed.run)
            if observed is not None:
                warm_start.apply(scheduler.proposer, observed)
            sweep.replay(resumed.events, adopt=adopt)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"space: {error}; trials that were run must lie in it") from None
        return sweep

    def _sweep(self, scheduler: Scheduler, ledger: Ledger) -> Sweep:
        study = StudyFile(ledger.folder / "study.journal", self.config.name, scheduler.proposer)
        costs = CostTracker(self.config.budget, self.request.cpus, self.request.gpus)
        num_queries = len(self.prepared.sentences.ids("dev"))
        return Sweep(
            self.config, scheduler, ledger, self.display, costs, study, num_queries, num_workers=self.request.count
        )

    @property
    def _has_test(self) -> bool:
        return len(self.prepared.sentences.ids("test")) > 0

    def _evaluation_sets(self) -> dict[ScoredSplit, EvaluationSet]:
        splits: list[ScoredSplit] = ["dev", "test"] if self._has_test else ["dev"]
        return {split: EvaluationSet.of(self.prepared, split, self.config.evaluation) for split in splits}

    def _baselines(
        self, evaluation_sets: Mapping[ScoredSplit, EvaluationSet], on_scores: OnScores, stored: Sequence[Point] = ()
    ) -> tuple[Point, ...]:
        """Return the baseline points that the run has not stored yet.

        Raises:
            InputError: If a baseline cannot be scored.
        """
        evaluations = list(evaluation_sets.values())
        baselines = Baselines(
            self.config.baselines,
            self.prepared,
            evaluations,
            self.config.seed,
            self.display.warn,
            stored,
            on_scores,
            calibrate=self.config.evaluation.points.calibrate,
        )
        points: list[Point] = []
        seconds: dict[str, float] = defaultdict(float)  # by kind
        began = time.monotonic()
        for point in baselines.points():
            points.append(point)
            now = time.monotonic()
            seconds[point.kind] += now - began
            began = now
        if points:
            listed = ", ".join(f"{kind} in {spent:.0f} s" for kind, spent in seconds.items())
            self.display.line(f"run: scored baselines: {listed}")
        return tuple(points)

    def _write_settings(self, run: Folder) -> None:
        """Write the run's configuration, atomically, and the list of its artifacts."""
        temporary = run.path / ".config.yaml"
        temporary.write_bytes(self._config_file)
        temporary.replace(run.path / "config.yaml")
        self.prepared.save(run.path / "prepared.json")
        run.store("config.yaml")
        run.store("prepared.json")

    @property
    def _config_file(self) -> bytes:
        return yaml.safe_dump(self.config.model_dump(mode="json"), sort_keys=False).encode()

    def _record_info(self, sweep: Sweep, evaluation_sets: Mapping[ScoredSplit, EvaluationSet]) -> None:
        """Append the session's first event, its settings, to the ledger."""
        config = self.config
        objective = config.objective
        sources = (config.data.train, config.data.dev, config.data.test)
        names = [shown(source) for source in sources if source]
        constraints = objective.constraints.model_dump()
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
            similarity=objective.similarity,
            num_trials=sweep.scheduler.num_trials,
            num_queries={split: len(one.queries) for split, one in evaluation_sets.items()},
            num_pool={split: len(one.pool) for split, one in evaluation_sets.items()},
            label_names=tuple(self.prepared.sentences.label_names),
            seed=config.seed,
            constraints={name: least for name, least in constraints.items() if least},
            guards={name: guard.at_least for name, guard in self.config.guards.items()},
            packages=installed(),
            searched=self.space.searched,
        )
        digest = hashlib.sha256(self._config_file).hexdigest()
        sweep.ledger.append(SessionStarted(info=info, config_digest=digest))

    def _announce(self, scheduler: Scheduler) -> None:
        """Print how many trials there are and the resources of each."""
        parts = [f"{scheduler.num_trials} trials"]
        if scheduler.num_begun:
            parts.append(f"{scheduler.num_begun} of them begun")
        if scheduler.replicates.trials:
            parts.append(f"up to {scheduler.replicates.trials} replicates")
        request = self.request
        parts.append(f"{request.count} at a time")
        parts.append(f"each on {request.cpus:g} CPUs and {request.gpus:g} GPUs")
        if request.memory_bytes:
            parts.append(f"with {request.memory_bytes / GIB:.1f} GiB of memory")
        self.display.line(f"search: {', '.join(parts)}")

    def _announce_steering(self, sweep: Sweep) -> None:
        """Print the requests of earlier sessions that still apply."""
        steering, run = sweep.steering, shlex.quote(sweep.run.location)
        if steering.workers is not None:
            self.display.line(f"search: at most {steering.workers} at a time, as raysweep control asked for")
        if steering.is_paused:
            self.display.warn(f"search: paused, as it was left; to let it go on: raysweep control {run} --resume")


def _with_scores(points: Sequence[Point]) -> list[Point]:
    """Return the points, produced by no trial, whose per-query scores a run stores."""
    return [point for point in points if point.kind in ("reference", "oracle", "probe")]


def _new_run(config: SweepConfig, display: Display) -> Folder:
    """Create a run folder named after the current second; further runs in the same second get a number."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = f"{config.name}-{stamp}"
    others = (f"{first}-{number}" for number in range(2, 1000))
    for name in (first, *others):
        run = open_folder(location.join(config.storage.runs, name), display.warn)
        with contextlib.suppress(FileExistsError):
            if isinstance(run, BucketFolder):  # another driver may start a run in the same second
                run.bucket.create("begun", uuid.uuid4().bytes)
            run.path.parent.mkdir(parents=True, exist_ok=True)
            run.path.mkdir(mode=0o700)
            (run.path / "points").mkdir()
            return run
    raise AssertionError("a thousand runs in one second")


def _run_at(place: str, display: Display) -> Folder:
    """Create or reuse the run folder at a place."""
    run = open_folder(place, display.warn)
    if run.path.is_symlink():
        raise InputError(f"{run.location}: is a symbolic link; a new run has a folder of its own")
    check_links(run)
    run.path.parent.mkdir(parents=True, exist_ok=True)
    run.path.mkdir(mode=0o700, exist_ok=True)
    (run.path / "points").mkdir(exist_ok=True)
    return run


def _describe(encoder: EncoderConfig) -> str:
    return encoder.name + (f"@{encoder.revision}" if encoder.revision else "")
