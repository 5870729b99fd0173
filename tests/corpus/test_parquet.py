"""Parquet that is encrypted, damaged under its checksums, or has odd names."""

import base64
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from helpers import quiet, run

from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.heldout import read_parallel
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.readers.thrift import ThriftError, chunks
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, SourceError


class _Kms(pe.KmsClient):  # type: ignore[misc]
    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64decode(key)


def encrypted(path: Path, columns: list[str], plaintext_footer: bool = True) -> Path:
    config = pe.EncryptionConfiguration(footer_key="f", column_keys={"k": columns}, plaintext_footer=plaintext_footer)
    properties = pe.CryptoFactory(_Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)
    table = pa.table({"text": ["a b"] * 20, "lang": ["en"] * 20, "doc": list(map(str, range(20)))})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=5)
    return path


def test_an_encrypted_column_is_one_sentence(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["good"], "lang": ["de"]}), tmp_path / "good.parquet")
    path = encrypted(tmp_path / "secret.parquet", ["text"])
    with pytest.raises(SourceError, match=r"secret\.parquet: the column 'text' is encrypted"):
        plan([Source("s", str(path))])
    ran = run("count", tmp_path, "-o", tmp_path / "run", "--engine", "local", "--on-bad-file", "skip")
    assert ran.exit_code == 0, ran.stderr
    assert "the column 'text' is encrypted" in ran.stderr
    with pytest.raises(SourceError, match="the column 'text' is encrypted"):
        plan([Source("s", str(path), text="text", group_by="lang")])
    with pytest.raises(SourceError, match="encrypted"):
        read_parallel(path)
    encrypted(path, ["lang"])
    with pytest.raises(SourceError, match="the column 'lang' is encrypted"):
        plan([Source("s", str(path), group_by="lang")])
    # What is not encrypted can be read.
    shards = plan([Source("s", str(path))]).shards
    assert sum(len(batch.texts) for shard in shards for batch in shard.batches()) == 20
    encrypted(path, ["text"], plaintext_footer=False)
    with pytest.raises(SourceError, match=r"secret\.parquet cannot be read as Parquet: .*encrypted"):
        plan([Source("s", str(path))])


def test_a_footer_that_is_no_thrift_is_an_error_and_never_a_hang(tmp_path: Path) -> None:
    data = encrypted(tmp_path / "a.parquet", ["text"]).read_bytes()
    length = struct.unpack("<I", data[-8:-4])[0]
    footer = data[-8 - length : -8]
    assert [[chunk.encrypted for chunk in group] for group in chunks(footer)] == [[True, False, False]] * 4
    for i in range(len(footer)):
        for byte in (0, 0xFF, footer[i] ^ 1):
            try:
                chunks(footer[:i] + bytes([byte]) + footer[i + 1 :])
            except ThriftError as error:
                assert str(error).startswith("its ")
        if i < len(footer) - 28:
            with pytest.raises(ThriftError):
                chunks(footer[: i // 2])


def test_page_checksums_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"a text that is stored as it is {i}" for i in range(1000)]
    pq.write_table(pa.table({"text": texts}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = path.read_bytes()
    at = data.index(b"as it is 500")
    path.write_bytes(data[:at] + b"AS" + data[at + 2 :])
    with pytest.raises(DataError, match=r"a\.parquet is damaged: .*(CRC|checksum)"):
        [list(shard.batches()) for shard in plan([Source("s", str(path))]).shards]
    skipped = Skipped()
    for shard in plan([Source("s", str(path), on_bad_file="skip")]).shards:
        assert all(b"AS" not in text for batch in shard.batches(skipped) for text in batch.texts.to_pylist())
    assert list(skipped.files) == [str(path)]


def test_names_of_columns_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "qqqq": ["b"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"q\xffqq"))
    with pytest.raises(SourceError, match=r"a\.parquet: the name of a column is not UTF-8"):
        plan([Source("s", str(path))])
    with pa.ipc.new_file(
        str(tmp_path / "a.arrow"), pa.schema([("text", pa.string()), ("qqqq", pa.string())])
    ) as writer:
        writer.write_table(pa.table({"text": ["a"], "qqqq": ["b"]}))
    path = tmp_path / "a.arrow"
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"q\xffqq"))
    with pytest.raises(SourceError, match=r"a\.arrow.*not UTF-8"):
        plan([Source("s", str(path))])


def test_a_damaged_file_alone_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(SourceError, match=r"cannot be read and is left out: .*a\.parquet cannot be read as Parquet"):
        plan([Source("s", str(tmp_path / "a.parquet"), on_bad_file="skip")])


def test_a_parallel_set_with_a_login_in_its_name_shows_none(tmp_path: Path) -> None:
    for text in ("s3://KEY:SECRET@bucket/a.parquet?endpoint_override=127.0.0.1:1&scheme=http&region=x", tmp_path / "a"):
        with pytest.raises((SourceError, DataError)) as caught:
            if "s3:" in str(text):
                pytest.MonkeyPatch().setattr("dist_bpe.storage.places.RETRY_SECONDS", 0.1)
            read_parallel(text)
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_group_that_is_no_utf8_is_damage(tmp_path: Path, name: str) -> None:
    groups = pa.Array.from_buffers(pa.string(), 2, pa.array([b"x", b"\xff"], pa.binary()).buffers())
    table = pa.table({"text": ["one", "two"], "lang": groups})
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        with pa.ipc.new_file(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(DataError, match=f"{name}.* can't decode byte 0xff"):
        quiet(Source("s", str(tmp_path / name), group_by="lang"), output=tmp_path / "run")


def test_a_footer_with_two_numbers_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"] * 1000}), path, store_schema=False)
    data, number = path.read_bytes(), b"\xd0\x0f"  # 1000 as a zigzag varint
    assert data.count(number) >= 2
    at = data.rindex(number)
    path.write_bytes(data[:at] + b"\xd0\x0e" + data[at + 2 :])
    with pytest.raises(SourceError, match=r"a\.parquet is damaged: its footer says 1,000 rows in all, and 936 in its"):
        plan([Source("s", str(path))])
