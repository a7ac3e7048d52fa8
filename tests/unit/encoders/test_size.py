"""How large an encoder is, read from its files."""

from pathlib import Path
from types import ModuleType

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.size import EncoderSize


def test_the_size_in_files_is_that_of_the_loaded_encoder(tiny_encoder: str) -> None:
    model = encoder.load(EncoderConfig(name=tiny_encoder))
    num_bytes = sum(4 * parameter.numel() for parameter in model.parameters())
    assert EncoderSize.of(Path(tiny_encoder)) == EncoderSize(num_bytes, num_layers=4, width=64)


def test_weights_in_half_precision_count_as_they_are_loaded(demo_package: ModuleType, tmp_path: Path) -> None:
    model = encoder.load(EncoderConfig(name="demo"))
    model.save(str(tmp_path / "whole"))
    model.half().save(str(tmp_path / "half"))
    assert EncoderSize.of(tmp_path / "half") == EncoderSize.of(tmp_path / "whole")


def test_an_encoder_whose_configuration_is_missing_has_weights_alone(tiny_encoder: str, tmp_path: Path) -> None:
    weights = next(Path(tiny_encoder).rglob("*.safetensors"))
    (tmp_path / weights.name).write_bytes(weights.read_bytes())
    size = EncoderSize.of(tmp_path)
    assert size.weights_bytes > 0
    assert (size.num_layers, size.width) == (0, 0)
