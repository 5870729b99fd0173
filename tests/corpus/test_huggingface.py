"""Datasets by name: what the network does is told from what the name does."""

from pathlib import Path

import pytest
from servers import free_port

from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.readers.huggingface import hub_split
from dist_bpe.corpus.source import Source
from dist_bpe.errors import NetworkError, SourceError


def test_no_connection_is_the_networks_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dist_bpe.storage.places.RETRY_SECONDS", 0.2)
    monkeypatch.setattr("dist_bpe.storage.places.FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the library waits, too
    nowhere = f"http://127.0.0.1:{free_port()}"
    for module in ("datasets.config", "huggingface_hub.constants"):
        for name in ("HF_ENDPOINT", "ENDPOINT"):
            monkeypatch.setattr(f"{module}.{name}", nowhere, raising=False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False, raising=False)
    for policy in ("error", "skip"):
        with pytest.raises(NetworkError, match="hf://datasets/owner/name: no answer for"):
            plan([Source("s", "hf://datasets/owner/name", on_bad_file=policy)])  # type: ignore[arg-type]


def test_offline_mode_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
    for name in ("huggingface_hub.constants.HF_HUB_OFFLINE", "datasets.config.HF_HUB_OFFLINE"):
        monkeypatch.setattr(name, True, raising=False)
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE"):
        plan([Source("s", "hf://datasets/owner/name/data/0.parquet")])
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE"):
        hub_split("owner/name", None, None, None)
