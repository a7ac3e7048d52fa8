"""YAML to typed configuration: what is accepted, and that every refusal names file, line, key, value and what is allowed."""

from pathlib import Path

import optuna
import pytest

from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document, parse_value
from raysweep.config.losses import LOSSES
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.errors import InputError
from support.paths import ROOT, SPACES
from support.sweep_files import MINIMAL, read

SHIPPED = sorted((SPACES).glob("*.yaml"))


def test_minimal_file_gets_the_documented_defaults(tmp_path: Path) -> None:
    config, space = read(tmp_path, MINIMAL)
    assert (config.examples.target, config.examples.k, config.evaluation.k) == (250_000, 16, 16)
    assert config.reference_encoder == config.mining_encoder == config.model
    assert space.values("learning_rate") == [1e-6, 1e-4], "1e-6 without a dot is a number, as in YAML 1.2"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_space_yields_valid_trials(path: Path) -> None:
    document = Document.read(path)
    config = configuration.parse(document)
    space = space_parser.parse(document, config)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    drawn = [trial_config(space.draw(study.ask())) for _ in range(200)]
    assert {trial.loss for trial in drawn} == set(space.values("loss"))
    for trial in drawn:
        assert TrialConfig(**trial.model_dump()) == trial
        assert (trial.margin is not None) == ("margin" in LOSSES[trial.loss].parameters)


def test_the_required_spaces_are_shipped() -> None:
    assert {"demo", "polarity", "published_grid", "adiabatic", "smoke"} <= {path.stem for path in SHIPPED}


def test_the_guides_file_is_valid(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "custom-space.md").read_text(encoding="utf-8")
    config, space = read(tmp_path, guide.split("```yaml\n")[1].split("```")[0])
    assert config.model.prompt == "query: "
    assert space.values("loss") == ["triplet", "multiple_negatives"]


def test_published_grid_is_the_17_published_configurations() -> None:
    document = Document.read(next(path for path in SHIPPED if path.stem == "published_grid"))
    config = configuration.parse(document)
    space = space_parser.parse(document, config)
    study = optuna.create_study()
    for parameters in space.grid():
        study.enqueue_trial(parameters)
    trials = [trial_config(space.draw(study.ask())) for _ in space.grid()]
    published = {("triplet", margin) for margin in (0.01, 0.1, 1.0, 5.0, 7.5, 10.0)}
    published |= {(loss, m) for loss in ("contrastive", "online_contrastive") for m in (0.1, 0.25, 0.5, 0.75, 1.0)}
    published |= {("multiple_negatives", None)}
    assert {(trial.loss, trial.margin) for trial in trials} == published
    assert len(trials) == 17


REFUSED = [
    ("model: demo", "modle: demo", r"line 3: modle: unknown key \(did you mean model\?\); allowed: .*budget, data"),
    ("  train: train.csv", "  trian: x.csv", r"line 2: data\.trian: unknown key .*allowed: .*train"),
    ("low: 1e-6", "low: 0", r"line 10: space\.learning_rate\.low: a log range must begin above 0, not at 0"),
    ("low: 1e-6", "low: 1", r"space\.learning_rate: low must be below high"),
    ("high: 1e-4", "high: 5.0", r"space\.learning_rate\.high: should be less than or equal to 1, not 5\.0"),
    (
        "cosine_similarity: {}",
        "cosine_similarity: {margin: 0.1}",
        r"line 9: .*the loss cosine_similarity has no margin",
    ),
    ("contrastive: {margin: 0.5}", "contrastive: {margin: 3.0}", r"margin must be above 0 and at most 2, not 3"),
    ("model: demo", "model: demo\nbudget: {prices: 3}", r"line 4: budget\.prices: should be a valid mapping, not 3"),
    ("      contrastive", "      contrastiv", r"contrastiv.* is no loss|loss is 'contrastiv'"),
    ("emb+B0]", "embb]", r"line 11: space\.freezing\.choices\[1\]: .*embb"),
    ("  learning_rate: {low: 1e-6, high: 1e-4, log: true}\n", "", r"space: learning_rate is required, also where"),
    (
        "  examples_per_rung: 2048",
        "  examples_per_rung: 3000\nearly_stopping: {policy: asha}",
        r"2048 is no multiple of examples_per_rung 3000",
    ),
    ("  examples_per_rung: 2048", "  examples_per_rung: 32", r"less than one batch of 64"),
    ("  examples_per_rung: 2048", "  examples_per_run: 2048", r"unknown key \(did you mean examples_per_rung\?\)"),
    (
        "model: demo",
        "model: demo\nevaluation: {k: 0}",
        r"line 4: evaluation\.k: should be greater than or equal to 1, not 0",
    ),
    ("model: demo", "model: demo\nmodel: demo", r"line 4: model stands twice \(first in line 3\)"),
    ("model: demo", "model: [", r"line \d+:"),
    ("model: demo", "model: &a [*a]", r"an alias refers to what it is a part of"),
    ("  examples_per_rung: 2048", "  examples_per_rung: {low: 512, high: 2048}", r"a range meets no milestone"),
    ("contrastive: {margin: 0.5}", "contrastive: {margin: null}", r"margin: must be a number, not null"),
    ("  learning_rate: {low: 1e-6, high: 1e-4, log: true}\n", "", r"learning_rate is required, also where"),
    ("{choices: [none, emb+B0]}", "[none, emb+B0]", r"a list of choices is written \{choices:"),
]


@pytest.mark.parametrize(("old", "new", "message"), REFUSED, ids=[new[:40] or "missing" for _, new, _ in REFUSED])
def test_refusals_name_the_place_and_the_remedy(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MINIMAL
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, MINIMAL.replace(old, new, 1))
    assert str(caught.value).startswith(str(tmp_path / "sweep.yaml"))


def test_overrides_go_by_dotted_path_and_are_named_when_wrong(tmp_path: Path) -> None:
    config, _ = read(tmp_path, MINIMAL, budget__trials="7", data__test="test.csv", evaluation__rank_weights="linear")
    assert (config.budget.trials, config.data.test, config.evaluation.rank_weights) == (
        7,
        str(Path("test.csv").absolute()),
        "linear",
    )
    with pytest.raises(InputError, match=r"--budget\.trials: should be greater than or equal to 1, not 0"):
        read(tmp_path, MINIMAL, budget__trials="0")
    with pytest.raises(InputError, match=r"--budget: must be a mapping of trials, rungs.*, not 5"):
        read(tmp_path, MINIMAL, budget="5")
    with pytest.raises(InputError, match=r"--model\.name: must name an encoder|--model: must name an encoder"):
        read(tmp_path, MINIMAL, model="''")
    for value in ("1.5", "-1", "many"):
        allowed = r"must lie in \[0, 1\], or be a whole number, or measured"
        with pytest.raises(InputError, match=rf"--resources\.gpus_per_trial: {allowed}, not {value}"):
            read(tmp_path, MINIMAL, resources__gpus_per_trial=value)
    with pytest.raises(InputError, match=r"--storage\.max_gib: should be a finite number, not inf"):
        read(tmp_path, MINIMAL, storage__max_gib=".inf")
    with pytest.raises(InputError, match=r"--space\.learning_rate: '\{low: 1' is not a YAML value"):
        read(tmp_path, MINIMAL, space__learning_rate="{low: 1")
    with pytest.raises(InputError, match=r"--budget\.trails: unknown key \(did you mean trials\?\)"):
        read(tmp_path, MINIMAL, budget__trails="3")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("-2.5E3", -2500.0), ("12", 12), ("1.", 1.0), ("none", "none"), ("1e5x", "1e5x"), ("true", True)],
)
def test_numbers_read_as_in_yaml_1_2(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_a_range_of_integers_is_sampled_in_integers(tmp_path: Path) -> None:
    _, space = read(
        tmp_path, MINIMAL.replace("  examples_per_rung", "  batch_size: {low: 16, high: 64}\n  examples_per_rung")
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    sizes = {trial_config(space.draw(study.ask())).batch_size for _ in range(50)}
    assert all(isinstance(size, int) and 16 <= size <= 64 for size in sizes)
    assert len(sizes) > 10


def test_relative_paths_are_settled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have working folders of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").mkdir()
    config, _ = read(tmp_path, MINIMAL, model="encoder", data__dev="s3://bucket/dev.csv", data__test="demo")
    assert config.model.name == str(tmp_path / "encoder")
    assert (config.data.train, config.data.dev, config.data.test) == (
        str(tmp_path / "train.csv"),
        "s3://bucket/dev.csv",
        "demo",
    )
    with pytest.raises(InputError, match=r"--storage\.runs: must be a folder that every node sees"):
        read(tmp_path, MINIMAL, storage__runs="s3://bucket/runs")


def test_choices_of_one_value_may_stand_under_several_parameters(tmp_path: Path) -> None:
    nested = "{choices: {true: {weight_decay: {low: 0.0, high: 0.1}}, false: {}}}"
    _, space = read(
        tmp_path, MINIMAL, space__freeze_output_dense=nested, space__restart_each_rung=nested.replace("0.1", "0.2")
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial_config(space.draw(study.ask()))


def test_every_trial_can_see_equally_many_examples(tmp_path: Path) -> None:
    text = MINIMAL.replace("examples_per_rung: 2048", "examples_per_rung: {choices: [1024, 2048]}")
    config, space = read(tmp_path, text, budget__examples_per_trial="8192")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = [trial_config(space.draw(study.ask())) for _ in range(20)]
    assert {config.budget.rungs_of(trial.examples_per_rung) * trial.examples_per_rung for trial in trials} == {8192}
    with pytest.raises(InputError, match="5000 is no multiple of examples_per_rung 1024"):
        read(tmp_path, text, budget__examples_per_trial="5000")


def test_every_limit_of_a_search_is_listed(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL)[0].limits == []
    given = {"budget__minutes": "30", "budget__money": "2.5", "budget__prices__default": "1"}
    given |= {"early_stopping__plateau__trials": "10", "objective__constraints__retention": "0.95"}
    limits = read(tmp_path, MINIMAL, **given)[0].limits
    assert limits == ["minutes 30", "money 2.5", "plateau of trials 10", "retention at least 0.95"]


def test_grid_refuses_a_range(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loss=triplet\.margin is a range; the grid sampler needs choices"):
        read(tmp_path, "sampler: grid\n" + MINIMAL)


def test_trial_config_needs_exactly_the_parameters_of_its_loss() -> None:
    assert (
        trial_config({"loss": "triplet", "learning_rate": 1e-5}).margin
        == LOSSES["triplet"].parameters["margin"].default
    )
    with pytest.raises(InputError, match="the loss cosine_similarity has none"):
        trial_config({"loss": "cosine_similarity", "margin": 0.1, "learning_rate": 1e-5})
    with pytest.raises(InputError, match="learning_rate: should be greater than 0, not 0"):
        trial_config({"loss": "triplet", "learning_rate": 0.0})
