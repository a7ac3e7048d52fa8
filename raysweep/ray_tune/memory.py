"""The node memory that a trial of a sweep needs, estimated from the prepared artifacts."""

from raysweep.cluster.resources import trial_bytes
from raysweep.config.losses import LOSSES
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders.locate import locate_same
from raysweep.encoders.size import FP32_BYTES, EncoderSize
from raysweep.encoders.tokens import Tokens


def needed_by_trial(prepared: Prepared, space: Space, cache_bytes: int) -> int:
    """Return the bytes that the space's most demanding trial needs on CPUs.

    The estimate assumes batches of sentences of mean length and includes the trial's cache. ``cache_bytes`` limits the
    cache of frozen blocks' outputs, which never exceeds the outputs of all sentences.
    """
    source = locate_same(EncoderConfig(**prepared.model), prepared.model_identity)
    encoder = EncoderSize.of(source.folder)
    tokens = Tokens.open(prepared.tokens_artifact.folder)
    num_tokens = int(tokens.offsets[-1])
    tokens_per_sentence = num_tokens / max(1, len(tokens))
    trials = space.largest()
    most_sentences = max(_sentences_of_batch(prepared, trial) for trial in trials)
    is_averaged = any(trial.average_decay is not None for trial in trials)
    bytes_of_averages = encoder.weights_bytes if is_averaged else 0
    return bytes_of_averages + trial_bytes(
        encoder.weights_bytes,
        num_layers=encoder.num_layers,
        width=encoder.width,
        tokens_of_batch=round(most_sentences * tokens_per_sentence),
        cache_bytes=min(cache_bytes, FP32_BYTES * encoder.width * num_tokens),
    )


def _sentences_of_batch(prepared: Prepared, trial: TrialConfig) -> int:
    """Return the maximum number of distinct sentences in a batch; those embedded twice count twice."""
    ids, _ = prepared.examples(LOSSES[trial.loss].example_kind)
    num_columns = int(ids.shape[1])
    num_passes = 2 if trial.consistency_weight else 1
    return num_passes * min(trial.batch_size * num_columns, len(prepared.sentences.ids("train")))
