"""Runs in an object store: a real S3 server, the bytes of a local run, and everything that can happen on the way."""

import hashlib
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore.store
import pytest
from conftest import SMALL, Writer
from helpers import hashes, quiet, stop_after
from servers import KEY, SECRET, Proxy, options, weed
from typer.testing import CliRunner

import dist_bpe
from dist_bpe import errors
from dist_bpe.cli.main import app
from dist_bpe.counting.tasks import CountTask
from dist_bpe.counting.tasks import count_shard as tasks_count_shard
from dist_bpe.storage import files
from dist_bpe.storage.bucket import BucketPath, _store, bucket_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with weed(tmp_path_factory.mktemp("weed")) as port:
        yield port


@pytest.fixture
def uri(server: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """URIs of a prefix that this test alone has."""
    monkeypatch.setattr("dist_bpe.storage.places.RETRY_SECONDS", 10)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    return lambda path="run", port=server: f"s3://corpus/{name}/{path}{options(port)}"


def objects(folder: BucketPath) -> dict[str, bytes]:
    """Every object below a prefix, by its name there."""
    found: dict[str, bytes] = {}
    for path in folder.iterdir():
        if path.is_file():
            found[path.name] = path.read_bytes()
        else:
            found |= {f"{path.name}/{name}": content for name, content in objects(path).items()}
    return found


def hashes_of(folder: BucketPath) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in objects(folder).items()}


def staged(run: str) -> list[str]:
    """Shards that are finished in an unfinished run."""
    return sorted(name for name in objects(bucket_path(run)) if "/shard-" in name and name.endswith(".json"))


def test_a_prefix_does_what_a_folder_does(uri: Callable[..., str], tmp_path: Path) -> None:
    seen = []
    for root in (tmp_path / "run", bucket_path(uri())):
        folder = root / "a"
        before = (folder.exists(), (folder / "x").exists())
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / "x", b"one")
        files.write(folder / "x", b"two")
        files.write(folder / "y.json", b"{}")
        (folder / "inner").mkdir()
        files.write(folder / "inner" / "ü z", b"3")
        with files.publish(folder / "large") as temporary:
            temporary.write_bytes(bytes(20 << 20))
        with pytest.raises(RuntimeError), files.publish(folder / "none") as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError
        with files.publish_folder(root / "whole") as temporary:
            for name in ("manifest.json", "old", "kept"):
                (temporary / name).write_bytes(name.encode())
        with files.publish_folder(root / "whole") as temporary:
            for name in ("manifest.json", "kept"):
                (temporary / name).write_bytes(b"new")
        with files.ranges(folder / "x") as read:
            part = read(1, 2)
        with pytest.raises(FileNotFoundError), files.ranges(folder / "none") as read:
            read(0, 1)
        with pytest.raises(FileNotFoundError):
            (folder / "none").read_bytes()
        with pytest.raises(FileNotFoundError):
            (folder / "none").unlink()
        (folder / "none").unlink(missing_ok=True)
        (folder / "y.json").unlink()
        there = files.sizes(folder)
        seen.append(
            (
                before, part, there, sorted(path.name for path in folder.iterdir()),
                sorted(path.name for path in folder.glob("l*")), files.sha256(folder / "large"),
                (folder.exists(), folder.is_dir(), folder.is_file(), (folder / "x").is_file(), (folder / "x").is_dir()),
                (folder / "x").read_text(), (folder / "inner" / "ü z").read_bytes(), folder.name, folder.parent.name,
                (folder / "x.json").suffix, (folder / "x.json").with_suffix(".b").name, files.unsealed(folder / "x"),
                {path.name: path.read_bytes() for path in (root / "whole").iterdir()},
            )
        )  # fmt: skip
        files.remove(folder)
        assert not folder.exists()
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://key:se%2Fcret@bucket/a b/ü/?endpoint_override=http://h:1&region=x", "s3://bucket/a b/ü"),
        ("gs://bucket/a?endpoint_override=h:1&scheme=http", "gs://bucket/a"),
        ("abfs://box@account.dfs.core.windows.net/a/b", "abfs://account.dfs.core.windows.net/box/a/b"),
        ("abfss://box:secret@account/a", "abfss://account/box/a"),
    ],
)
def test_a_path_goes_out_and_comes_back(uri: str, shown: str) -> None:
    path = files.parse_path(uri)
    assert isinstance(path, BucketPath)
    assert str(path) == shown
    assert files.parse_path(path.uri()) == path == pickle.loads(pickle.dumps(path))  # noqa: S301  # our own
    assert files.parse_path(Path(uri)) == path
    assert files.parse_path((path / "inner").uri()) == path / "inner"
    assert (path / "inner").parent == path


def test_local_uris_are_paths_and_buckets_alone_are_refused(tmp_path: Path) -> None:
    assert files.parse_path(f"file://{tmp_path}") == files.parse_path(Path(f"file://{tmp_path}")) == tmp_path
    assert files.parse_path(tmp_path) == tmp_path
    for uri in ("s3://bucket", "s3://bucket/", "s3://bucket//run", "gs://bucket"):
        with pytest.raises(
            errors.UsageError, match=f"{uri.rstrip('/')}.* cannot hold a run: name a folder in a bucket"
        ):
            files.parse_path(uri)


def test_a_store_that_complains_of_objects_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Google's and Azure's do, and obstore's own of a local folder."""
    store = obstore.store.LocalStore(tmp_path)
    monkeypatch.setattr("dist_bpe.storage.bucket._store", lambda *_: store)
    folder = bucket_path("gs://bucket/run")
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(b"x")
    folder.delete([folder / name for name in ("none", "a", "nothing", "b")])
    assert list(objects(folder)) == ["c"]
    (folder / "none").unlink(missing_ok=True)


def test_of_several_writers_one_wins(uri: Callable[..., str]) -> None:
    path = bucket_path(uri("x"))
    with ThreadPoolExecutor(8) as pool:
        for version in (None, *(1 for _ in range(4))):
            looked = version and path.version()
            contents = [os.urandom(8) for _ in range(16)]
            won = list(pool.map(lambda content, looked=looked: path.replace(content, looked), contents))
            assert won.count(True) == 1
            assert path.read_bytes() == contents[won.index(True)]
    assert not files.create_if_absent(path, b"late")
    assert files.create_if_absent(path, path.read_bytes())  # the answer to a first try may have been lost


@pytest.mark.usefixtures("source")
def test_the_same_bytes_as_in_a_folder(
    uri: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train, learn again, evaluate, encode, add: everything that a run folder is for."""
    monkeypatch.chdir(tmp_path)
    run, other, both = (uri(name) for name in ("run", "other", "both"))

    def call(*arguments: str, code: int = 0, text: str = "") -> str:
        ran = CliRunner().invoke(app, arguments, input=text)
        assert ran.exit_code == code, ran.output
        assert "endpoint" not in ran.output
        return ran.output

    begin = ("train", str(tmp_path / "in"), "--engine", "local", "--vocab-size")
    call(*begin, "400", "-o", "local")
    call(*begin, "400", "-o", run)
    call("learn", "local", "--vocab-size", "300,350", "--name", "n")
    call("learn", run, "--vocab-size", "300,350", "--name", "n")
    folder = bucket_path(run)
    expected, found = hashes(tmp_path / "local"), hashes_of(folder)
    reports = {name for name in expected.keys() | found.keys() if "report" in name or name.startswith("lease/")}
    assert {name: found[name] for name in found.keys() - reports} == {
        name: expected[name] for name in expected.keys() - reports
    }
    assert "is there already, of the same inputs" in call(*begin, "300", "-o", run)
    assert "differ" not in call("evaluate", run.replace("/run?", "/run/vocabularies/400?"), "--table", run)
    ids = call("encode", run.replace("/run?", "/run/vocabularies/400?"), text="the text")
    assert call("decode", "local/vocabularies/400", text=ids).startswith("the text")
    call("count", str(tmp_path / "in"), "--engine", "local", "-o", other, "--shard-bytes", "2000")
    call("add", run, other, "-o", both)
    call("add", "local", "local", "-o", "sum")
    assert hashes_of(bucket_path(both) / "counts") == hashes(tmp_path / "sum" / "counts")
    call("export", run.replace("/run?", "/run/vocabularies/400?"), "-o", uri("out"), "--format", "tiktoken")
    assert (bucket_path(uri("out")) / "vocab.tiktoken").is_file()
    # Another table takes the place of the first only when that is asked for, and leaves nothing of it.
    assert "of another run (pattern was" in call(*begin, "400", "-o", run, "--pattern", "cl100k", code=6)
    assert hashes_of(folder / "counts") == {name: found[f"counts/{name}"] for name in objects(folder / "counts")}
    call(*begin, "400", "-o", run, "--pattern", "cl100k", "--overwrite", "--name", "n-300")
    call(*begin, "400", "-o", "local", "--pattern", "cl100k", "--overwrite", "--name", "n-300")
    assert hashes_of(folder / "counts") == hashes(tmp_path / "local" / "counts")
    replaced = hashes_of(folder / "vocabularies" / "n-300")
    replaced.pop("report.json")
    assert replaced == hashes(tmp_path / "local" / "vocabularies" / "n-300")


def test_ray_workers_meet_in_the_store(source: dist_bpe.Source, clean: dict[str, str], uri: Callable[..., str]) -> None:
    table = quiet(source, output=uri(), engine="ray", workers=2, **SMALL)
    assert isinstance(table.folder, BucketPath)
    assert hashes_of(table.folder) == clean
    # A Path made of a URI has lost a slash.
    again = quiet(source, output=Path(uri()), **SMALL)
    assert again.digest == table.digest


def test_the_same_call_goes_on_and_a_changed_one_is_refused(
    source: dist_bpe.Source, clean: dict[str, str], uri: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = uri()
    for shards, workers in ((1, 1), (2, 3), (0, 2)):
        stop_after(monkeypatch, shards)
        with pytest.raises(KeyboardInterrupt):
            quiet(source, output=run, workers=workers, **SMALL)
    counted = staged(run)
    assert counted
    with pytest.raises(errors.RunError, match="partitions was 3 and is 4"):
        quiet(source, output=run, **SMALL | {"partitions": 4})
    assert staged(run) == counted
    shown = CliRunner().invoke(app, ["status", run]).output
    assert f"{len(counted)} of " in shown
    assert SECRET not in shown
    real, again = tasks_count_shard, []

    def count_shard(task: CountTask) -> dict[str, object]:
        again.append(task.name)
        return real(task)

    monkeypatch.setattr("dist_bpe.run.count.count_shard", count_shard)
    assert hashes_of(quiet(source, output=run, **SMALL).folder) == clean
    assert not {name for name in again if any(f"/{name}.json" in path for path in counted)}
    assert {name.partition("/")[0] for name in objects(bucket_path(run))} == {
        "counts", "lease", "plan.json", "report.json",
    }  # fmt: skip


@pytest.mark.usefixtures("source")
def test_a_vocabulary_that_was_half_put_there_is_finished_by_the_same_command(
    uri: Callable[..., str], tmp_path: Path
) -> None:
    for where in (uri(), str(tmp_path / "run")):
        run = files.parse_path(where)
        quiet(dist_bpe.Source("s", str(tmp_path / "in")), output=where)
        command = ["learn", where, "--vocab-size", "300,350", "--no-verify"]

        def learn(*more: str, command: list[str] = command) -> tuple[int, str]:
            ran = CliRunner().invoke(app, [*command, *more])
            return ran.exit_code, ran.stderr

        assert learn()[0] == 0
        read = objects if isinstance(run, BucketPath) else hashes
        whole = {name: value for name, value in read(run / "vocabularies").items() if "report" not in name}  # type: ignore[operator]
        code, text = learn()
        assert (code, "is there already" in text) == (0, True)
        # Killed before the second one's manifest, and before any report.
        for name in ("350/manifest.json", "350/merges.txt", "350/report.json", "300/report.json"):
            folder, file = name.split("/")
            (run / "vocabularies" / folder / file).unlink()
        code, text = learn("--min-pair-count", "3")
        assert (code, "300 is there already" in text) == (6, True)
        assert learn()[0] == 0
        assert {name: value for name, value in read(run / "vocabularies").items() if "report" not in name} == whole  # type: ignore[operator]
        assert learn()[0] == 0


def test_a_damaged_or_missing_object_is_counted_again(
    source: dist_bpe.Source, clean: dict[str, str], uri: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = uri()
    stop_after(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, output=run, **SMALL)
    names = [name for name in objects(bucket_path(run)) if name.endswith(".run")]
    damaged, gone, short = (bucket_path(run) / name for name in names[:3])
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(bytes(content))
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    assert hashes_of(quiet(source, output=run, **SMALL).folder) == clean


def test_a_store_that_is_busy_or_breaks_off(
    source: dist_bpe.Source, clean: dict[str, str], uri: Callable[..., str], server: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("dist_bpe.storage.places.FIRST_WAIT_SECONDS", 0.01)
    rng = random.Random(5)
    real = BucketPath._request

    def request(self: BucketPath, name: str, action: Callable[..., object]) -> object:
        _store.cache_clear()  # a new connection each time
        if not rng.randrange(25):
            proxy.busy, proxy.cuts, proxy.after = rng.choice([(5, 0, 0), (0, 5, 0), (0, 5, 30)])
        return real(self, name, action)

    with Proxy(server) as proxy:
        monkeypatch.setattr(BucketPath, "_request", request)
        table = quiet(source, output=uri("broken", proxy.port), **SMALL)
        proxy.busy = proxy.cuts = 0
        assert hashes_of(table.folder) == clean
        assert proxy.connections > 50
        monkeypatch.setattr("dist_bpe.storage.places.RETRY_SECONDS", 0.3)
        monkeypatch.setattr(BucketPath, "_request", real)
        proxy.cuts = 1 << 30
        with pytest.raises(errors.NetworkError, match=r"s3://corpus/.*/gone.*: no answer for 0 seconds"):
            quiet(source, output=uri("gone", proxy.port), **SMALL)


@pytest.mark.parametrize("login", [f"{KEY}:wrong-secret@", "wrong-key:wrong-secret@"])
def test_what_cannot_hold_a_run_is_one_sentence(
    source: dist_bpe.Source, uri: Callable[..., str], login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(run: str, match: str, kind: type[errors.DistBpeError] = errors.UsageError) -> None:
        with pytest.raises(kind, match=match) as caught:
            quiet(source, output=run)
        assert "wrong-secret" not in str(caught.value)

    refused(uri().replace("s3://", f"s3://{login}"), "access denied. Check AWS_ACCESS_KEY_ID", errors.AccessError)
    refused(uri().replace("s3://corpus", "s3://nothing-here"), "no such bucket")
    refused(uri() + "&colour=red", "the option 'colour' has no meaning for a run folder")
    refused("hdfs://host/run", "hdfs://host/run cannot hold a run: name a folder that all nodes share")
    monkeypatch.setattr(BucketPath, "create", lambda self, content: self.write_bytes(content) or True)
    refused(uri("careless"), "a store that does not keep to conditional requests")


def test_a_driver_that_was_replaced_publishes_nothing(
    source: dist_bpe.Source, uri: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at the worst moment: its ownership was just checked, and the table is half on its way."""
    monkeypatch.setattr("dist_bpe.run.lease.DEAD_SECONDS", 0.3)
    monkeypatch.setattr("dist_bpe.run.lease.BEAT_SECONDS", 0.05)
    script = (
        "import dist_bpe, os, signal\nfrom dist_bpe.storage.bucket import BucketPath\n"
        "def copy(self, target, real=BucketPath.copy):\n"
        "    real(self, target)\n    print('published', flush=True)\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "BucketPath.copy = copy\n"
        f"dist_bpe.count(dist_bpe.Source('s', {source.paths!r}), output={uri()!r}, engine='local',"
        f" workers=1, progress='lines', pattern='cl100k', **{SMALL!r})\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "published\n"
    try:
        table = quiet(source, output=uri(), restart=True, **SMALL)
        before = objects(bucket_path(uri()))
    finally:
        process.send_signal(signal.SIGCONT)
    while process.poll() is None:  # it stops itself at each part
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    assert "has taken over" in process.communicate()[1].splitlines()[-1]
    after = objects(bucket_path(uri()))
    assert {name: content for name, content in after.items() if name in before} == before
    # What it copied before it could know is named by its content, and no table's.
    assert all(name.startswith("counts/part-") for name in after.keys() - before.keys())
    assert dist_bpe.CountTable.open(uri()).digest == table.digest
    assert hashes(quiet(source, output=tmp_path / "local", **SMALL).folder) == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in objects(table.folder).items()
        if name in {"manifest.json", *(part.name for part in table.parts)}
    }


# As in test_faults.py: each crash is a real end of a process, at a request to the store.
CRASHER = """
import os, sys
import dist_bpe
from dist_bpe.run import count  # before the forks, since it takes longer than a run
from dist_bpe.storage import bucket
source = sys.argv[1]
def crash_at(limit):
    done = 0
    def inject(name, path):
        nonlocal done
        done += 1
        if done > limit:
            os._exit(9)
    bucket.inject = inject
for line in sys.stdin:
    limit, output = line.split()
    child = os.fork()
    if not child:
        try:
            crash_at(int(limit))
            dist_bpe.count(dist_bpe.Source("s", source), output=output, engine="local", workers=1, progress="silent",
                           shard_bytes=9000, partitions=2)
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.faults)])
def test_a_crash_at_a_request(
    every: int, write: Writer, tmp_path: Path, documents: list[str], uri: Callable[..., str]
) -> None:
    write("in/a.parquet", documents[:100])
    clean = hashes(quiet(dist_bpe.Source("s", str(tmp_path / "in")), output=tmp_path / "clean", partitions=2).folder)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CRASHER, str(tmp_path / "in")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ran(steps: int, run: str) -> int:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{steps} {run}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    steps = 0
    while ran(steps, uri(str(steps))) == 9:
        folder = bucket_path(uri(str(steps)))
        if (folder / "counts" / "manifest.json").is_file():
            dist_bpe.CountTable.open(folder)
        assert ran(10**9, uri(str(steps))) == 0
        assert hashes_of(folder / "counts") == clean, f"after a crash at request {steps}"
        steps += every
    assert steps > 50
    process.communicate()


def test_a_table_there_is_queried_and_a_mixture_there_is_taken(uri: Callable[..., str]) -> None:
    sources = [dist_bpe.Source(name, documents=[f"{name} low lower lowest"] * 9) for name in "ab"]
    table = quiet(*sources, output=uri())
    scan = table.scan()
    assert scan.to_table().sort_by("word").to_pydict() == table.to_arrow().sort_by("word").to_pydict()
    assert scan.to_table().num_rows == table.rows  # once more, of the same open files
    report = dist_bpe.balance(table, 262, progress="silent")
    assert isinstance(report.file, BucketPath)
    made = [
        dist_bpe.learn(table, 262, mixture=mixture, progress="silent")
        for mixture in (report.mixture, report.file, uri("run/mixtures/balanced.toml"))
    ]
    assert made[0] == made[1] == made[2]
