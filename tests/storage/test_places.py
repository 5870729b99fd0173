"""Places: paths and URIs, a real S3 server on this machine, connections that break, and secrets that stay hidden."""

import contextlib
import gzip
import json
import pickle
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import KEY, SECRET, Proxy, file_system, free_port, options, weed
from typer.testing import CliRunner

import dist_bpe
from dist_bpe.cli.main import app
from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import Plan, plan
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.tasks import CountTask
from dist_bpe.errors import AccessError, DataError, NetworkError, SourceError, UsageError
from dist_bpe.storage import places

TEXTS = [f"document {i} ü" for i in range(2000)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 server whose bucket `corpus` holds texts in many forms."""
    with weed(tmp_path_factory.mktemp("weed")) as port:
        fill(file_system(port))
        yield port


ODD = "odd/a b#c?é语%20/part [1].parquet"


def fill(client: Any) -> None:
    half = len(TEXTS) // 2
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in TEXTS]

    def write(key: str, data: bytes) -> None:
        with client.open_output_stream(f"corpus/{key}", compression=None) as stream:
            stream.write(data)

    for key, texts in (("en/0.parquet", TEXTS[:half]), ("en/1.parquet", TEXTS[half:]), (ODD, TEXTS)):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": texts}), sink, row_group_size=300)
        write(key, sink.getvalue().to_pybytes())
    write("en/_SUCCESS", b"")
    write("en/.crc", b"x")
    write("json/0.jsonl.gz", gzip.compress(b"".join(lines[:half])) + gzip.compress(b"".join(lines[half:])))
    write("json/list.txt", b"s3://corpus/en/0.parquet?OPTIONS\n")
    write("text/0.txt", "\n".join(TEXTS).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as writer:
        writer.write_table(pa.table({"text": TEXTS}), max_chunksize=500)
    write("arrow/0.arrow", sink.getvalue().to_pybytes())
    data = bytearray(client.open_input_file("corpus/en/0.parquet").read())
    data[300:400] = bytes(100)
    write("bad/page.parquet", bytes(data))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def read(planned: Plan, skipped: Skipped | None = None) -> list[str]:
    found = []
    for shard in pickle.loads(pickle.dumps(planned.shards)):  # noqa: S301  # our own
        for _, texts, _ in shard.batches(skipped):
            found += [text.decode() for text in texts.to_pylist()]
    return found


@pytest.mark.parametrize(
    "key",
    ["en/0.parquet en/1.parquet", "en/*.parquet", "en", "en/", "**/en/?.parquet", ODD, "odd/*/*", "json", "arrow"],
)
@pytest.mark.usefixtures("keys")
def test_s3_gives_the_same_documents(server: int, key: str) -> None:
    parts = [key] if key == ODD or " " not in key else key.split(" ")
    planned = plan([Source("a", [f"s3://corpus/{part}{options(server)}" for part in parts], format=None)])
    assert read(planned) == TEXTS
    assert all(file.path.startswith("s3://corpus/") and "?end" not in file.path for file in planned.files)
    assert all(file.size and file.modified for file in planned.files)


@pytest.mark.usefixtures("keys")
def test_s3_gives_the_same_count_table(server: int, tmp_path: Path) -> None:
    uris = [f"s3://corpus/{key}{options(server)}" for key in ("en", ODD, "json", "arrow")]
    digests = {
        dist_bpe.count(source, output=tmp_path / str(i), engine="local", progress="silent", partitions=2).digest
        for i, source in enumerate([*(Source("a", uri) for uri in uris), Source("a", documents=TEXTS)])
    }
    assert len(digests) == 1


@pytest.fixture
def google() -> Iterator[int]:
    """The port of an emulator of Google's storage with two Parquet files in the bucket `corpus`."""
    port = free_port()
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
    process = subprocess.Popen([*command, "--in-memory", "--default-bucket=corpus"], stderr=subprocess.DEVNULL)
    try:
        for number in range(2):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"text": TEXTS[number::2]}), sink)
            upload = f"http://127.0.0.1:{port}/upload/storage/v1/b/corpus/o?uploadType=media&name=en/{number}.parquet"
            deadline = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(
                        urllib.request.Request(upload, sink.getvalue().to_pybytes()), timeout=10
                    ).close()
                    break
                except urllib.error.URLError:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_google_storage_gives_the_same_count_table(google: int, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "all.parquet")
    options = f"?scheme=http&endpoint_override=127.0.0.1%3A{google}&retry_limit_seconds=5"
    tables = [
        dist_bpe.count(Source("en", path), output=tmp_path / str(i), engine="local", workers=1, progress="silent")
        for i, path in enumerate((f"gs://anonymous@corpus/en{options}", str(tmp_path / "all.parquet")))
    ]
    assert tables[0].digest == tables[1].digest
    with pytest.raises(SourceError, match=r"gs://corpus/nothing"):
        plan([Source("en", f"gs://anonymous@corpus/nothing{options}")])


@pytest.mark.usefixtures("keys")
def test_s3_lines_in_pieces_lists_and_markers(server: int, tmp_path: Path) -> None:
    source = Source("a", f"s3://corpus/text/0.txt{options(server)}", format="lines")
    assert len(plan([source], 5000).shards) > 3
    assert read(plan([source], 5000)) == TEXTS
    (tmp_path / "list").write_text(
        f"s3://corpus/en/0.parquet{options(server)}\ns3://corpus/en/1.parquet{options(server)}\n"
    )
    assert read(plan([Source("a", f"@{tmp_path}/list")])) == TEXTS
    left = plan([Source("a", f"s3://corpus/en{options(server)}")]).left_out
    assert sorted((entry.path, entry.reason) for entry in left) == [
        ("s3://corpus/en/.crc", "hidden, or a marker"),
        ("s3://corpus/en/_SUCCESS", "hidden, or a marker"),
    ]
    with pytest.raises(SourceError, match="no file matches s3://corpus/nothing/x"):
        plan([Source("a", f"s3://corpus/nothing/x.parquet{options(server)}")])


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_an_object_written_anew_at_equal_size_stops_the_run(server: int, policy: Any) -> None:
    """Times of objects are whole seconds; the etag tells one from the other."""
    client = file_system(server)

    def put(text: bytes) -> None:
        with client.open_output_stream("corpus/changed/a.jsonl", compression=None) as stream:
            stream.write(b'{"text": "' + text + b'"}\n')

    put(b"old")
    planned = plan([Source("a", f"s3://corpus/changed{options(server)}", on_bad_file=policy)])
    assert planned.shards[0].pieces[0].require_file().version
    assert read(planned) == ["old"]
    put(b"new")
    with pytest.raises(DataError, match=r"s3://corpus/changed/a\.jsonl was changed after the run .*another etag"):
        read(planned, Skipped())


def test_what_is_shown_of_a_path_that_is_none() -> None:
    for text in ("s3://KEY:SECRET@bucket/x", "s3:/KEY:SECRET@bucket/x", str(Path("s3://KEY:SECRET@bucket/x?secret=y")),
                 "s3://KEY:SECRET@", "nosuch://KEY:SECRET@bucket/x?secret=y"):  # fmt: skip
        shown = places.redacted(text)
        assert "SECRET" not in shown
        assert "secret" not in shown
    for text in ("", "a/b", "/x:/y", "a b?c=d"):
        assert places.redacted(text) == text
    for text in ("", "a\0b"):
        with pytest.raises(UsageError, match="names no file or folder"):
            places.split(text)


def test_keys_in_the_uri_never_show(server: int) -> None:
    login = f"{KEY}:veiled%2Fsecret%2Bkey@"
    planned = plan([Source("a", f"s3://{login}corpus/en{options(server)}")])
    assert read(planned) == TEXTS
    for text in (repr(planned), str(planned.shards[0]), *(file.path for file in planned.files)):
        assert "veiled" not in text
        assert KEY not in text
    assert places.redacted(f"s3://{login}corpus/en{options(server)}") == "s3://corpus/en"


def test_keys_are_neither_printed_nor_written(server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a plan, a run, a failed run and the working files of a run show is searched for the secret."""
    login = f"{KEY}:veiled%2Fsecret%2Bkey@"
    uri = f"s3://{login}corpus/en{options(server)}"
    monkeypatch.setattr("dist_bpe.run.publish.remove", lambda *_, **__: None)  # staging stays
    shown = []
    for arguments in (
        ["plan", uri],
        ["plan", uri, "--json"],
        ["count", uri, "-o", str(tmp_path / "run"), "--engine", "local"],
        ["count", uri, "-o", str(tmp_path / "bad"), "--engine", "local", "--text-column", "nothing"],
        ["plan", uri.replace("/en?", "/nothing/*.parquet?")],
        ["plan", uri.replace("region=us", "regio=us")],
        ["plan", uri.replace("s3:", "nosuch:")],
        ["plan", uri.replace("veiled", "veiled-and-wrong")],
        ["plan", "--seed", "x", uri],
    ):
        ran = CliRunner().invoke(app, arguments)
        shown.append(ran.output + ran.stderr + repr(ran.exception))
    assert "s3://corpus/en/0.parquet" in shown[1]
    source = Source("a", uri)
    planned = plan([source])
    task = CountTask(planned.shards[0], tmp_path, CountOptions(), 1 << 20)
    shown += [repr(source), repr(planned), repr(task), str(task)]
    staged = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"report.json", "manifest.json", "shard-000000.json"} <= {path.name for path in staged}
    for text in (*shown, *(path.read_bytes().decode(errors="replace") for path in staged)):
        for secret in ("veiled", "secret+key", "secret%2B", KEY):
            assert secret not in text


def test_a_wrong_configuration_shows_no_secrets(tmp_path: Path) -> None:
    secret = "s3://key:veiled@bucket/x?secret_key=hidden"
    for text in (
        f'output = "o"\n[sources]\nname = "a"\npaths = "{secret}"\n',
        f'output = "{secret}"\n[[sources]]\nname = "a"\npaths = "x"\n[mixture]\n[learn.mixture]\nalpha = 1\n',
        f'output = "o"\noverwrite = "{secret}"\n[[sources]]\nname = "a"\npaths = "x"\n',
    ):
        (tmp_path / "run.toml").write_text(text)
        ran = CliRunner().invoke(app, ["train", str(tmp_path / "run.toml")])
        assert ran.exit_code == 2
        assert "veiled" not in ran.stderr
        assert "hidden" not in ran.stderr
    assert "veiled" not in CliRunner().invoke(app, ["train", "s3://key:veiled@bucket/run.toml"]).stderr


@pytest.mark.parametrize("login", [f"{KEY}:wrong-secret@", "wrong-key-id:wrong-secret@"])
def test_wrong_keys_are_one_clear_sentence(server: int, login: str) -> None:
    for policy in ("error", "skip"):
        with pytest.raises(AccessError) as caught:
            plan([Source("a", f"s3://{login}corpus/en/0.parquet{options(server)}", on_bad_file=policy)])
        message = str(caught.value)
        assert message.startswith("s3://corpus/en/0.parquet: access denied. Check AWS_ACCESS_KEY_ID")
        assert "wrong-secret" not in message
        assert caught.value.__cause__ is None or "wrong-secret" not in str(caught.value.__cause__)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("key", ["en", "json/0.jsonl.gz", "arrow"])
def test_a_broken_connection_is_tried_again(server: int, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dist_bpe.storage.places.FIRST_WAIT_SECONDS", 0.01)
    with Proxy(server) as proxy:
        planned = plan([Source("a", f"s3://corpus/{key}{options(proxy.port)}")])
        proxy.cuts, proxy.after = 12, 2000
        assert read(planned) == TEXTS
        assert proxy.cuts < 12


@pytest.mark.usefixtures("keys")
def test_a_dead_network_ends_at_the_deadline_and_is_never_skipped(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dist_bpe.storage.places.RETRY_SECONDS", 0.3)
    monkeypatch.setattr("dist_bpe.storage.places.FIRST_WAIT_SECONDS", 0.1)
    with Proxy(server) as proxy:
        source = Source("a", f"s3://corpus/en{options(proxy.port)}", on_bad_file="skip")
        planned = plan([source])
        proxy.cuts = 1 << 30
        with pytest.raises(
            NetworkError, match=r"s3://corpus/en/0\.parquet: no answer for 0 seconds; the last error was"
        ):
            read(planned)


@pytest.mark.usefixtures("keys")
def test_a_corrupt_page_is_not_tried_again(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_wait(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} seconds for a damaged file")

    planned = plan([Source("a", f"s3://corpus/bad/page.parquet{options(server)}")])
    monkeypatch.setattr("dist_bpe.storage.places.time.sleep", no_wait)
    with pytest.raises(DataError, match=r"s3://corpus/bad/page\.parquet is damaged"):
        read(planned)
    skipped = Skipped()
    read(plan([Source("a", f"s3://corpus/bad/page.parquet{options(server)}", on_bad_file="skip")]), skipped)
    assert list(skipped.files) == ["s3://corpus/bad/page.parquet"]


def test_a_web_server_and_what_its_links_hide(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    with web_server(tmp_path) as port:
        source = Source("a", f"http://127.0.0.1:{port}/a.parquet?sig=hidden")
        planned = plan([source])
        assert read(planned) == TEXTS
        assert planned.files[0].path == f"http://127.0.0.1:{port}/a.parquet"
        assert "hidden" not in repr(planned)
        with pytest.raises(SourceError, match=r"no file matches http://127\.0\.0\.1:\d+/b\.parquet"):
            plan([Source("a", f"http://127.0.0.1:{port}/b.parquet?sig=hidden")])


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[int]:
    """Serves files, in ranges."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(False)

        def do_GET(self) -> None:
            self.answer(True)

        def answer(self, body: bool) -> None:
            path = folder / self.path.split("?")[0].lstrip("/")
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            span = self.headers.get("Range")
            if span:
                first, _, last = span.removeprefix("bytes=").partition("-")
                stop = min(int(last) + 1 if last else len(data), len(data))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{stop - 1}/{len(data)}")
                data = data[int(first) : stop]
            else:
                self.send_response(200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_any_place_that_fsspec_knows() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("a b#é.jsonl", "x/b.jsonl", "x/_SUCCESS"):
        memory.pipe(f"/place/{name}", b'{"text": "one"}\n')
    assert read(plan([Source("a", "memory://place")])) == ["one", "one"]
    assert read(plan([Source("a", "memory://place/a b#é.jsonl")])) == ["one"]
    planned = plan([Source("a", "memory://place/*/*.jsonl")])
    assert [file.path for file in planned.files] == ["memory://place/x/b.jsonl"]
    with pytest.raises(SourceError, match="no file matches memory://place/nothing"):
        plan([Source("a", "memory://place/nothing")])


def test_schemes_and_options_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="nosuch:// is no place that is known here"):
        plan([Source("a", "nosuch://x/y.parquet")])
    with pytest.raises(UsageError, match="Unexpected query parameter in S3 URI: 'nosuch'"):
        plan([Source("a", "s3://bucket/y.parquet?nosuch=1")])
    with pytest.raises(UsageError, match="s3:// names no bucket"):
        plan([Source("a", "s3:///y.parquet")])


@pytest.mark.parametrize(
    ("text", "key", "shown"),
    [
        (
            "s3://K:S%2Fx@b/k #?/x*.parquet?endpoint_override=h:1&scheme=http",
            "b/k #?/x*.parquet",
            "s3://b/k #?/x*.parquet",
        ),
        ("s3a://b/k", "b/k", "s3://b/k"),
        ("gs://b", "b", "gs://b"),
        ("abfs://c:pw@acc.dfs.core.windows.net/k", "c/k", "abfs://acc.dfs.core.windows.net/c/k"),
        ("abfs://c/k", "c/k", "abfs://c/k"),
        ("hdfs://host:8020/a/b", "/a/b", "hdfs://host:8020/a/b"),
        (
            "hf://datasets/o/n@main/x?.parquet?token=t",
            "datasets/o/n@main/x?.parquet",
            "hf://datasets/o/n@main/x?.parquet",
        ),
        ("https://u:p@h/x.parquet?sig=1", "https://u:p@h/x.parquet?sig=1", "https://h/x.parquet"),
        ("file:///a%20b", "/a b", "/a b"),
        ("/a%20b?c=d", "/a%20b?c=d", "/a%20b?c=d"),
    ],
)
def test_paths_and_uris(text: str, key: str, shown: str) -> None:
    place, found = places.split(text)
    assert found == key
    assert place.uri(found) == shown
    assert not {"S%2Fx", "pw", "token=t", "sig=1"} & {part for part in (repr(place),) if part}
    for secret in ("S%2Fx", ":pw", "=t'", "sig"):
        assert secret not in repr(place)


def test_errors_are_told_apart() -> None:
    assert places.transient(OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7"))
    assert places.transient(OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate"))
    assert places.transient(ConnectionResetError(104, "Connection reset by peer"))
    assert places.transient(TimeoutError())
    assert not places.transient(OSError("AWS Error ACCESS_DENIED during HeadObject operation"))
    assert not places.transient(FileNotFoundError("x"))
    calls: list[int] = []

    def request() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionResetError("reset")
        return "answer"

    place, key = places.split("s3://bucket/x")
    places_wait, places.FIRST_WAIT_SECONDS = places.FIRST_WAIT_SECONDS, 0.001
    try:
        assert places.with_retries(request, place, key) == "answer"
    finally:
        places.FIRST_WAIT_SECONDS = places_wait
    assert len(calls) == 3
    place, key = places.split("s3://key:secret%2Fword@bucket/x?region=r-1&token=hidden")
    message = place.safe(OSError("cannot reach key:secret%2Fword or secret/word with hidden in region r-1"))
    assert message == "cannot reach … or … with … in region r-1"
