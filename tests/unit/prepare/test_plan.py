"""Which artifacts a sweep needs, and the keys that they have always had."""

import json
from pathlib import Path
from typing import Any

import pytest

from raysweep.data.artifacts import Artifact
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import Plan, Stage, check_freezing, make_plan
from support.encoders import write_nan_encoder
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
    """The weights of a model of transformers with random weights, as it saves them."""
    model.save_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    return str(folder)


def plan(folder: Path, **overrides: str) -> Plan:
    """The plan of a sweep over invented rows with an encoder that is only hashed, never loaded."""
    (folder / "encoder").mkdir(exist_ok=True)
    (folder / "encoder" / "modules.json").write_text("[]")
    (folder / "train.csv").write_text(ROWS)
    (folder / "dev.csv").write_text(ROWS.upper().replace("TEXT,LABEL", "text,label"))
    paths = {"data__train": "train.csv", "model": "encoder", "storage__runs": "runs"}
    given = {key: str(folder / path) for key, path in paths.items()} | overrides
    return make_plan(*read(folder, SWEEP, **given))


def test_freezing_is_checked_by_the_names_in_memory_before_anything_is_prepared(tmp_path: Path) -> None:
    import transformers

    sizes = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
    model = transformers.NomicBertModel(transformers.NomicBertConfig(**sizes, num_attention_heads=2))
    folder = stored_encoder(tmp_path / "nomic", model)
    found = plan(tmp_path, model=folder, reference=folder, space__freezing="emb+B0")
    assert found.prepared.model["name"] == folder
    with pytest.raises(InputError, match="'emb\\+B0-7': the encoder lacks it"):
        plan(tmp_path, model=folder, space__freezing="emb+B0-7")
    albert = transformers.AlbertModel(transformers.AlbertConfig(**sizes, num_attention_heads=2, embedding_size=6))
    with pytest.raises(InputError, match="need an encoder built like one of BERT"):
        plan(tmp_path, model=stored_encoder(tmp_path / "albert", albert), space__freezing="emb+B0")
    bert = transformers.BertModel(transformers.BertConfig(**sizes, num_attention_heads=2))
    with pytest.raises(InputError, match="'emb\\+B0-7': the encoder lacks it"):
        plan(tmp_path, model=stored_encoder(tmp_path / "bert", bert), space__freezing="emb+B0-7")


def keys(found: Plan) -> list[str]:
    return [stage.artifact.name for stage in found.stages]


def test_settings_that_change_no_data_leave_the_keys_as_they_are(tmp_path: Path) -> None:
    found = plan(tmp_path)
    sentences, encoded, neighbors, scored, triplets = keys(found)
    assert [stage.name for stage in found.stages] == [
        "sentences",
        "encoded",
        "neighbors",
        "examples scored_pair",
        "examples triplet",
    ]
    assert found.prepared.sentences_artifact.name == sentences
    assert found.prepared.tokens_artifact.name == found.prepared.reference_artifact.name == encoded
    assert {kind: artifact.name for kind, artifact in found.prepared.examples_artifacts.items()} == {
        "scored_pair": scored,
        "triplet": triplets,
    }
    assert keys(plan(tmp_path, examples__k="3"))[:2] == [sentences, encoded]
    assert neighbors not in keys(plan(tmp_path, examples__k="3"))
    assert keys(plan(tmp_path, seed="1"))[0] != sentences, "the seed carves dev"
    bf16 = json.dumps({"name": str(tmp_path / "encoder"), "precision": "bf16", "prompt": "query: "})
    first, tuned, reference = keys(plan(tmp_path, model=bf16, reference=str(tmp_path / "encoder")))[:3]
    assert (first, reference) == (sentences, encoded)
    assert tuned != encoded


def test_only_an_inverted_file_is_part_of_the_key_and_its_seed_with_it(tmp_path: Path) -> None:
    dev = str(tmp_path / "dev.csv")  # given, so that the seed does not change the sentences

    def neighbors(**overrides: str) -> str:
        return keys(plan(tmp_path, data__dev=dev, **overrides))[2]

    exact = neighbors(examples__index="exact")
    assert exact == neighbors() == neighbors(seed="1")
    inverted = [neighbors(examples__index="inverted_file", seed=seed) for seed in ("0", "1")]
    assert len({exact, *inverted}) == 3


def test_a_dev_split_that_is_given_is_part_of_the_key_and_the_seed_is_not(tmp_path: Path) -> None:
    dev = str(tmp_path / "dev.csv")
    found = keys(plan(tmp_path, data__dev=dev))
    assert found[0] != keys(plan(tmp_path))[0]
    assert keys(plan(tmp_path, data__dev=dev, seed="1", data__max_dev="7"))[0] == found[0]


def test_a_loss_over_single_sentences_mines_nothing(tmp_path: Path) -> None:
    found = plan(tmp_path, space__loss="softmax")
    assert keys(found) == keys(plan(tmp_path))[:2]
    assert found.prepared.examples_artifacts == {}


def test_stages_are_missing_until_their_manifests_are_there(tmp_path: Path) -> None:
    found = plan(tmp_path)
    assert found.missing == list(found.stages)
    first: Stage = found.stages[0]
    found.store.finish(first.artifact, first.parameters, {"num_sentences": {"train": 30, "dev": 4}})
    assert found.missing == list(found.stages[1:])
    with pytest.raises(InputError, match="evaluation.k is 16; .*3"):
        plan(tmp_path, evaluation__num_pool="3").check_k()
    found.check_k()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data__train": "none.csv"}, "none.csv: no such file"),
        ({"data__label_column": "stars"}, "column 'stars' is missing"),
        ({"model": "./nowhere"}, "no such folder"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(tmp_path, **overrides)


def test_a_freezing_level_is_checked_by_the_header_of_the_weights(tmp_path: Path, tiny_encoder: str) -> None:
    plan(tmp_path, model=tiny_encoder, space__freezing="emb+B0-2")
    with pytest.raises(InputError, match=r"emb\+B0-4.*4 blocks"):
        plan(tmp_path, model=tiny_encoder, space__freezing="emb+B0-4")


def test_layers_that_decay_are_checked_by_the_names_of_parameters(tmp_path: Path, tiny_encoder: str) -> None:
    space = plan(tmp_path, model=tiny_encoder, space__layer_decay="{choices: [1.0, 0.8]}").space
    with pytest.raises(InputError, match=r"freezing and layer_decay need an encoder built like .* named conv\.weight"):
        check_freezing(space, ["conv.weight"])


def test_an_encoder_that_gives_no_numbers_is_refused_and_nothing_of_it_is_kept(
    tmp_path: Path, tiny_encoder: str
) -> None:
    broken = write_nan_encoder(tiny_encoder, tmp_path / "broken")
    (tmp_path / "train.csv").write_text(ROWS)
    overrides = {"data__train": str(tmp_path / "train.csv"), "model": broken, "storage__runs": str(tmp_path / "runs")}
    with pytest.raises(InputError, match="model .*broken': its embeddings are not finite numbers"):
        prepare_here(*read(tmp_path, SWEEP, **overrides, evaluation__k="4"))
    assert not list(tmp_path.rglob("encoded-*/artifact.json"))


def test_preparing_without_ray_builds_what_is_missing_once(tmp_path: Path, tiny_encoder: str) -> None:
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
    assert prepared.target_cosines("triplet") == prepared.target_cosines("labeled_sentence") == (1.0, 0.0)
    built = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "artifacts").iterdir()}
    assert {path.name.split("-")[0] for path in built} == {"sentences", "encoded", "neighbors", "examples"}
    assert prepare_here(*sweep) == prepared
    assert {path: path.stat().st_mtime_ns for path in built} == built


@pytest.mark.parametrize("content", ["", "[]", "{}", "{"])
def test_a_damaged_manifest_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "encoded-1").mkdir()
    (tmp_path / "encoded-1" / "artifact.json").write_text(content)
    with pytest.raises(
        InputError, match=r"encoded-1/artifact.json: is damaged; remove the folder .*/encoded-1, and prepare"
    ):
        _ = Artifact(str(tmp_path), "encoded-1").summary
