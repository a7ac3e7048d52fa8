"""How large an encoder is, read from its files."""

from pathlib import Path
from types import ModuleType

from sentence_transformers.sentence_transformer.modules import Pooling

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate
from raysweep.encoders.size import EncoderSize, embedding_width


def test_size_in_files_equals_that_of_the_loaded_encoder(tiny_encoder: str) -> None:
    model = encoder.load(EncoderConfig(name=tiny_encoder))
    num_bytes = sum(4 * parameter.numel() for parameter in model.parameters())
    assert EncoderSize.of(Path(tiny_encoder)) == EncoderSize(num_bytes, num_layers=4, width=64)


def test_half_precision_weights_count_as_fp32(demo_package: ModuleType, tmp_path: Path) -> None:
    model = encoder.load(EncoderConfig(name="demo"))
    model.save(str(tmp_path / "full"))
    model.half().save(str(tmp_path / "half"))
    assert EncoderSize.of(tmp_path / "half") == EncoderSize.of(tmp_path / "full")


def test_widths_in_files(demo_package: ModuleType, tmp_path: Path) -> None:
    """Of a model with the settings of sentence-transformers 2, of several pooling modes, and of a bare checkpoint."""
    assert embedding_width(locate(EncoderConfig(name="demo"))) == 384
    model = encoder.load(EncoderConfig(name="demo"))
    model[1] = Pooling(384, pooling_mode=("mean", "max"))
    model.save(str(tmp_path / "pooled"), create_model_card=False)
    assert embedding_width(locate(EncoderConfig(name=str(tmp_path / "pooled")))) == 768
    model[0].auto_model.config.save_pretrained(tmp_path / "bare")
    assert embedding_width(locate(EncoderConfig(name=str(tmp_path / "bare")))) == 384


def test_encoder_without_configuration_has_only_weights(tiny_encoder: str, tmp_path: Path) -> None:
    weights = next(Path(tiny_encoder).rglob("*.safetensors"))
    (tmp_path / weights.name).write_bytes(weights.read_bytes())
    size = EncoderSize.of(tmp_path)
    assert size.weights_bytes > 0
    assert (size.num_layers, size.width) == (0, 0)
