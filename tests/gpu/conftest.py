"""Without a GPU, every test of this lane is skipped."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
