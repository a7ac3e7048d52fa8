"""The artifacts of a sweep, and their keys."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from raysweep.config.load import load
from raysweep.data.artifacts import Artifact
from raysweep.encoders.structure import Structure
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import ArtifactStage, Plan, check_structure, make_plan
from support.encoders import write_nan_encoder
from support.sequences import read_sweep
from support.sweep_files import read

ROWS = "text,label\n" + "".join(f"sentence {number},{number % 2}\n" for number in range(20))

SWEEP = """\
data: {train: train.csv}
model: demo
space:
  loss: {choices: {triplet: {margin: 0.1}, cosine_similarity: {}, softmax: {}}}
  learning_rate: 1e-5
  examples_per_rung: 2048
"""


def stored_encoder(folder: Path, model: Any) -> str:
    """Save a transformers model and return its folder."""
    model.save_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    return str(folder)


def plan(folder: Path, **overrides: str) -> Plan:
    """Return the plan of a sweep whose encoder is only hashed, never loaded."""
    (folder / "encoder").mkdir(exist_ok=True)
    (folder / "encoder" / "modules.json").write_text("[]")
    (folder / "train.csv").write_text(ROWS)
    (folder / "dev.csv").write_text(ROWS.upper().replace("TEXT,LABEL", "text,label"))
    paths = {"data__train": "train.csv", "model": "encoder", "storage__runs": "runs"}
    values = {key: str(folder / path) for key, path in paths.items()} | overrides
    return make_plan(*read(folder, SWEEP, **values))


def test_freezing_is_checked_before_preparing(tmp_path: Path) -> None:
    import transformers

    sizes = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
    model = transformers.NomicBertModel(
        transformers.NomicBertConfig(**sizes, num_attention_heads=2)
    )
    folder = stored_encoder(tmp_path / "nomic", model)
    sweep_plan = plan(tmp_path, model=folder, reference=folder, space__freezing="emb+B0")
    assert sweep_plan.prepared.model["name"] == folder
    with pytest.raises(InputError, match="'emb\\+B0-7': the encoder lacks it"):
        plan(tmp_path, model=folder, space__freezing="emb+B0-7")
    albert = transformers.AlbertModel(
        transformers.AlbertConfig(**sizes, num_attention_heads=2, embedding_size=6)
    )
    with pytest.raises(InputError, match="blocks that share their weights.*none, emb.base, emb;"):
        plan(tmp_path, model=stored_encoder(tmp_path / "albert", albert), space__freezing="emb+B0")
    bert = transformers.BertModel(transformers.BertConfig(**sizes, num_attention_heads=2))
    with pytest.raises(InputError, match="'emb\\+B0-7': the encoder lacks it"):
        plan(tmp_path, model=stored_encoder(tmp_path / "bert", bert), space__freezing="emb+B0-7")


def keys(sweep_plan: Plan) -> list[str]:
    return [stage.artifact.name for stage in sweep_plan.stages]


def test_settings_that_change_no_data_keep_the_keys(tmp_path: Path) -> None:
    sweep_plan = plan(tmp_path)
    sentences, encoded, neighbors, scored, triplets = keys(sweep_plan)
    assert [stage.name for stage in sweep_plan.stages] == [
        "sentences",
        "encoded",
        "neighbors",
        "examples scored_pair",
        "examples triplet",
    ]
    assert sweep_plan.prepared.sentences_artifact.name == sentences
    assert (
        sweep_plan.prepared.tokens_artifacts.document.name
        == sweep_plan.prepared.reference_artifacts.document.name
        == encoded
    )
    assert {
        kind: artifact.name for kind, artifact in sweep_plan.prepared.examples_artifacts.items()
    } == {
        "scored_pair": scored,
        "triplet": triplets,
    }
    assert keys(plan(tmp_path, examples__k="3"))[:2] == [sentences, encoded]
    assert neighbors not in keys(plan(tmp_path, examples__k="3"))
    assert keys(plan(tmp_path, seed="1"))[0] != sentences, "the seed carves dev"
    bf16 = json.dumps({"name": str(tmp_path / "encoder"), "precision": "bf16", "prompt": "query: "})
    first, tuned, reference = keys(plan(tmp_path, model=bf16, reference=str(tmp_path / "encoder")))[
        :3
    ]
    assert (first, reference) == (sentences, encoded)
    assert tuned != encoded


def test_key_includes_an_inverted_file_and_its_seed(tmp_path: Path) -> None:
    dev = str(tmp_path / "dev.csv")  # with a dev split, the seed does not change the sentences

    def neighbors(**overrides: str) -> str:
        return keys(plan(tmp_path, data__dev=dev, **overrides))[2]

    exact = neighbors(examples__index="exact")
    assert exact == neighbors() == neighbors(seed="1")
    inverted = [neighbors(examples__index="inverted_file", seed=seed) for seed in ("0", "1")]
    assert len({exact, *inverted}) == 3


def test_key_includes_a_given_dev_split_instead_of_the_seed(tmp_path: Path) -> None:
    dev = str(tmp_path / "dev.csv")
    names = keys(plan(tmp_path, data__dev=dev))
    assert names[0] != keys(plan(tmp_path))[0]
    assert keys(plan(tmp_path, data__dev=dev, seed="1", data__max_dev="7"))[0] == names[0]


def test_loss_on_single_sentences_needs_no_examples(tmp_path: Path) -> None:
    sweep_plan = plan(tmp_path, space__loss="softmax")
    assert keys(sweep_plan) == keys(plan(tmp_path))[:2]
    assert sweep_plan.prepared.examples_artifacts == {}


def test_stages_are_missing_until_their_manifests_exist(tmp_path: Path) -> None:
    sweep_plan = plan(tmp_path)
    assert sweep_plan.missing == list(sweep_plan.stages)
    first: ArtifactStage = sweep_plan.stages[0]
    sweep_plan.store.finish(
        first.artifact, first.parameters, {"num_sentences": {"train": 30, "dev": 4}}
    )
    assert sweep_plan.missing == list(sweep_plan.stages[1:])
    with pytest.raises(InputError, match="evaluation.k is 16; .*3"):
        plan(tmp_path, evaluation__num_pool="3").check_k()
    sweep_plan.check_k()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data__train": "none.csv"}, "none.csv: no such file"),
        ({"data__label_column": "stars"}, "column 'stars' is missing"),
        ({"model": "./nowhere"}, "no such folder"),
    ],
)
def test_unreadable_inputs_are_rejected(
    tmp_path: Path, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan(tmp_path, **overrides)


def test_freezing_level_is_checked_by_the_weights_header(tmp_path: Path, tiny_encoder: str) -> None:
    plan(tmp_path, model=tiny_encoder, space__freezing="emb+B0-2")
    with pytest.raises(InputError, match=r"emb\+B0-4.*4 blocks"):
        plan(tmp_path, model=tiny_encoder, space__freezing="emb+B0-4")


def test_layer_decay_is_checked_by_parameter_names(tmp_path: Path, tiny_encoder: str) -> None:
    planned = plan(tmp_path, model=tiny_encoder, space__layer_decay="{choices: [1.0, 0.8]}")
    with pytest.raises(InputError, match=r"layer_decay.*'convbert'; allowed"):
        check_structure(planned.config, planned.space, Structure("convbert", ["conv.weight"]))


def test_adapter_is_checked_by_the_family(tmp_path: Path, tiny_encoder: str) -> None:
    planned = plan(tmp_path, model=tiny_encoder, space__freezing="none", space__adapter="lora")
    with pytest.raises(InputError, match=r"lora.*'convbert'; allowed: .*--space.adapter none"):
        check_structure(planned.config, planned.space, Structure("convbert", ["conv.weight"]))


def test_checkpointed_blocks_are_checked_by_the_family(tmp_path: Path, tiny_encoder: str) -> None:
    overrides = {"space__freezing": "none", "resources__gradient_checkpointing": "true"}
    planned = plan(tmp_path, model=tiny_encoder, **overrides)
    with pytest.raises(InputError, match=r"gradient_checkpointing.*'convbert'; allowed: "):
        check_structure(planned.config, planned.space, Structure("convbert", ["conv.weight"]))


@pytest.mark.parametrize(
    ("key", "width"),
    [("space__matryoshka", "'16'"), ("space__matryoshka", "'40'"), ("evaluation__points", "20")],
)
def test_widths_are_below_that_of_a_dense_head(
    tmp_path: Path, tiny_encoder: str, key: str, width: str
) -> None:
    """The head puts out 16 coordinates, and the transformer below it 64."""
    model = SentenceTransformer(tiny_encoder, device="cpu")
    model.insert(2, Dense(64, 16))
    model.save(str(tmp_path / "dense"), create_model_card=False)
    shorter = {"space__matryoshka": "'8'", "evaluation__points": "{truncate: [8]}"}
    plan(tmp_path, model=str(tmp_path / "dense"), **shorter)
    value = width if key == "space__matryoshka" else f"{{truncate: [{width}]}}"
    with pytest.raises(InputError, match=r"allowed: (widths )?below 16"):
        plan(tmp_path, model=str(tmp_path / "dense"), **{**shorter, key: value})


def test_encoder_with_nan_embeddings_is_rejected(tmp_path: Path, tiny_encoder: str) -> None:
    broken = write_nan_encoder(tiny_encoder, tmp_path / "broken")
    (tmp_path / "train.csv").write_text(ROWS)
    overrides = {
        "data__train": str(tmp_path / "train.csv"),
        "model": broken,
        "storage__runs": str(tmp_path / "runs"),
    }
    with pytest.raises(InputError, match="model .*broken': its embeddings contain NaN or infinity"):
        prepare_here(*read(tmp_path, SWEEP, **overrides, evaluation__k="4"))
    assert not list(tmp_path.rglob("encoded-*/artifact.json"))


def test_prepare_here_builds_missing_artifacts_once(tmp_path: Path, tiny_encoder: str) -> None:
    (tmp_path / "train.csv").write_text(ROWS)
    overrides = {
        "data__train": str(tmp_path / "train.csv"),
        "model": tiny_encoder,
        "space__loss": "{choices: {triplet: {}, cosine_similarity: {}}}",
        "evaluation__k": "4",
        "storage__runs": str(tmp_path / "runs"),
        "examples__same_class_cosine": "0.8",
        "examples__other_class_cosine": "0.3",
    }
    sweep = read(tmp_path, SWEEP, **overrides)
    prepared = prepare_here(*sweep)
    assert prepared.target_cosines("scored_pair") == (0.8, 0.3)
    assert (
        prepared.target_cosines("triplet")
        == prepared.target_cosines("labeled_sentence")
        == (1.0, 0.0)
    )
    built = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "artifacts").iterdir()}
    assert {path.name.split("-")[0] for path in built} == {
        "sentences",
        "encoded",
        "neighbors",
        "examples",
    }
    assert prepare_here(*sweep) == prepared
    assert {path: path.stat().st_mtime_ns for path in built} == built


@pytest.mark.parametrize("content", ["", "[]", "{}", "{"])
def test_damaged_manifest_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "encoded-1").mkdir()
    (tmp_path / "encoded-1" / "artifact.json").write_text(content)
    with pytest.raises(
        InputError,
        match=r"encoded-1/artifact.json: is damaged; remove the folder .*/encoded-1 and prepare",
    ):
        _ = Artifact(str(tmp_path), "encoded-1").summary


def test_a_sequence_reuses_the_artifacts_of_sweeps_over_its_data_sets(
    tmp_path: Path, tiny_encoder: str
) -> None:
    sweep = read_sweep(tmp_path, tiny_encoder)
    tasks = make_plan(sweep.config, sweep.space).prepared.tasks
    assert list(tasks) == ["sentiment", "length"]
    for task in sweep.config.data.sequence:
        data = {
            "train": task.train,
            "test": task.test,
            "label_column": task.label_column or "label",
            "max_dev": 12,
        }
        space = {"loss": "softmax", "learning_rate": 1e-3}
        runs = {"runs": str(tmp_path / "runs")}
        file = tmp_path / f"{task.name}.yaml"
        file.write_text(
            yaml.safe_dump({"data": data, "model": tiny_encoder, "space": space, "storage": runs})
        )
        alone = load(file)
        prepared = make_plan(alone.config, alone.space).prepared
        assert prepared.sentences_artifact == tasks[task.name].sentences
        assert prepared.reference_artifacts == tasks[task.name].embeddings
