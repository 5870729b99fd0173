"""From paths to files: what listings take, what they leave out and say, and what is refused by name."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import quiet, run

from dist_bpe.corpus.finding import HIDDEN, OWN_RUN
from dist_bpe.corpus.plan import Plan, plan
from dist_bpe.corpus.source import Source
from dist_bpe.errors import SourceError
from dist_bpe.storage.places import BROKEN_LINK, LOOP


def put(path: Path, text: str = "a b") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": [text]}), path)
    return path


def names(planned: Plan, folder: Path) -> list[str]:
    return [str(Path(file.path).relative_to(folder)) for file in planned.files]


def left(planned: Plan, folder: Path) -> dict[str, str]:
    return {str(Path(one.path).relative_to(folder)): one.reason for one in planned.left_out}


@pytest.mark.parametrize("form", ["", "/**/*.parquet", "/**", "/*", "/*.parquet"])
def test_links_back_are_not_followed(tmp_path: Path, form: str) -> None:
    put(tmp_path / "in/a.parquet")
    put(tmp_path / "in/deep/b.parquet")
    for name, target in (("self", "."), ("up", ".."), ("other", "deep"), ("deep/back", "../..")):
        (tmp_path / "in" / name).symlink_to(target)
    planned = plan([Source("s", f"{tmp_path}/in{form}")])
    expected = ["a.parquet"] if form == "/*.parquet" else ["a.parquet", "deep/b.parquet"]
    assert names(planned, tmp_path / "in") == expected
    if form != "/*.parquet":
        assert left(planned, tmp_path / "in").get("self") == LOOP
        assert left(planned, tmp_path / "in").get("other") == LOOP


def test_a_link_to_files_elsewhere_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere/x/a.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/b.parquet").symlink_to(tmp_path / "elsewhere/x/a.parquet")
    expected = ["b.parquet", "link/x/a.parquet"]
    assert names(plan([Source("s", str(tmp_path / "in"))]), tmp_path / "in") == expected
    assert names(plan([Source("s", f"{tmp_path}/in/link")]), tmp_path / "in") == expected[1:]
    assert names(plan([Source("s", f"{tmp_path}/in/lin*")]), tmp_path / "in") == expected[1:]


def test_globs_leave_out_what_folders_do(tmp_path: Path) -> None:
    put(tmp_path / "a/1.parquet")
    put(tmp_path / "_temporary/0/2.parquet")
    put(tmp_path / "a/_part.parquet")
    put(tmp_path / "a/.3.parquet")
    for form in ("/**/*.parquet", "/**", "", "/*"):
        planned = plan([Source("s", f"{tmp_path}{form}")])
        assert names(planned, tmp_path) == ["a/1.parquet"], form
    assert left(plan([Source("s", f"{tmp_path}/**/*.parquet")]), tmp_path) == {
        "_temporary/0/2.parquet": HIDDEN,
        "a/_part.parquet": HIDDEN,
    }
    # Who names them means them.
    assert names(plan([Source("s", f"{tmp_path}/_temporary/**/*.parquet")]), tmp_path) == ["_temporary/0/2.parquet"]
    assert names(plan([Source("s", f"{tmp_path}/_temp*/*/*.parquet")]), tmp_path) == ["_temporary/0/2.parquet"]
    assert names(plan([Source("s", f"{tmp_path}/a/_*.parquet")]), tmp_path) == ["a/_part.parquet"]
    with pytest.raises(SourceError, match=r"no file matches .*/2\.parquet is left out \(hidden"):
        plan([Source("s", f"{tmp_path}/**/2.parquet")])


@pytest.mark.parametrize("form", ["", "/*", "/*.parquet", "/**"])
def test_broken_links_and_pipes_are_named(tmp_path: Path, form: str) -> None:
    put(tmp_path / "a.parquet")
    (tmp_path / "gone.parquet").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.parquet")
    planned = plan([Source("s", f"{tmp_path}{form}")])
    assert names(planned, tmp_path) == ["a.parquet"]
    assert left(planned, tmp_path) == {
        "gone.parquet": BROKEN_LINK,
        "pipe.parquet": "no regular file but a pipe",
    }
    for name, reason in (("gone", "a link that leads nowhere"), ("pipe", "a pipe")):
        with pytest.raises(SourceError, match=rf"{name}\.parquet is .*{reason}"):
            plan([Source("s", str(tmp_path / f"{name}.parquet"))])


def test_empty_paths_are_refused() -> None:
    for paths in ("", ["a.parquet", ""], " "):
        with pytest.raises(SourceError, match="a path is empty"):
            plan([Source("en", paths)])
    with pytest.raises(SourceError, match="NUL"):
        plan([Source("en", "a\0b")])


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.parquet")
    os.rename(put(tmp_path / "x.parquet"), odd)  # noqa: PTH104
    for paths in (str(tmp_path), f"{tmp_path}/*.parquet", odd):
        with pytest.raises(SourceError, match=r"caf\\xe9\.parquet cannot be read: its name is not UTF-8\. Rename it"):
            plan([Source("s", paths)])
    planned = plan([Source("s", str(tmp_path), on_bad_file="skip")])
    assert names(planned, tmp_path) == ["a.parquet"]
    assert [one.bad for one in planned.left_out] == [True]
    os.rename(odd, odd.replace(".parquet", ".pdf"))  # noqa: PTH104
    assert left(plan([Source("s", str(tmp_path))]), tmp_path) == {"caf\\xe9.pdf": "its name tells no known format"}
    ran = run("plan", tmp_path)
    assert ran.exit_code == 0, ran.stderr


def test_folders_of_partitions_give_the_column_that_files_lack(tmp_path: Path) -> None:
    for lang in ("en", "de%2FAT", "__HIVE_DEFAULT_PARTITION__"):
        put(tmp_path / f"lang={lang}/year=2020/0.parquet", lang)
        (tmp_path / f"lang={lang}/1.jsonl").write_text(f'{{"text": "{lang}"}}\n')
        (tmp_path / f"lang={lang}/2.txt").write_text(lang)
    pq.write_table(pa.table({"text": ["x"], "lang": ["own"]}), tmp_path / "lang=en/own.parquet")
    for pattern in ("**/0.parquet", "**/*.jsonl", "**/*.txt"):
        planned = plan([Source("s", f"{tmp_path}/{pattern}", group_by="lang")])
        found = {
            name: texts.to_pylist() for shard in planned.shards for name, texts, _ in shard.batches() if shard.sources()
        }
        assert found == {"en": [b"en"], "de/AT": [b"de%2FAT"], "(none)": [b"__HIVE_DEFAULT_PARTITION__"]}, pattern
        assert {name for shard in planned.shards for name in shard.sources()} == found.keys()
    planned = plan([Source("s", str(tmp_path / "lang=en/own.parquet"), group_by="lang")])
    assert planned.shards[0].sources() == ["own"]
    table = quiet(Source("s", str(tmp_path), group_by="lang"), output=tmp_path / "run")
    assert set(table.sources) == {"en", "de/AT", "(none)", "own"}
    with pytest.raises(SourceError, match="no group column 'day'"):
        plan([Source("s", f"{tmp_path}/**/0.parquet", group_by="day")])


def test_run_folders_of_ours_are_no_input(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", "the same text " * 20)
    source = Source("s", str(tmp_path / "in"))
    first = quiet(source, output=tmp_path / "in/run")
    assert quiet(source, output=tmp_path / "in/run").digest == first.digest
    for form in ("", "/**/*.parquet", "/**", "/*", "/*/**"):
        if form == "/*/**":
            with pytest.raises(SourceError, match=r"in/run is left out \(a run folder"):
                plan([Source("s", f"{tmp_path}/in{form}")])
            continue
        planned = plan([Source("s", f"{tmp_path}/in{form}")])
        assert names(planned, tmp_path) == ["in/a.parquet"]
        assert left(planned, tmp_path) == {"in/run": OWN_RUN}
    # What merely bears such a name is read.
    put(tmp_path / "in/counts/b.parquet")
    (tmp_path / "in/counts/manifest.json").write_text("{}")
    assert names(plan([source]), tmp_path) == ["in/a.parquet", "in/counts/b.parquet"]


OTHERS = {
    "a.csv": "CSV", "a.csv.gz": "CSV", "a.warc.gz": "a web archive", "a.orc": "ORC", "a.html": "a page of markup",
    "a.zip": "an archive", "a.pdf": "an office document", "a.avro": "a format that is not read",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_format_is_said_with_the_way_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text,lang\na,b\n")
    for path in (tmp_path / name, tmp_path):
        with pytest.raises(SourceError) as caught:
            plan([Source("s", str(path))])
        assert f"{name} is " in str(caught.value)
        assert OTHERS[name] in str(caught.value)
        assert "*.parquet" not in str(caught.value)


def test_a_damaged_saved_dataset_is_one_sentence(tmp_path: Path) -> None:
    for content in ("[" * 100_000, "{}", '{"_data_files": 3}', '{"_data_files": [{}]}', "\xff"):
        (tmp_path / "state.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(SourceError, match=r"no `save_to_disk` folder that can be read: state\.json"):
            plan([Source("s", str(tmp_path))])
    (tmp_path / "dataset_dict.json").write_text('{"splits": "train"}')
    with pytest.raises(SourceError, match=r"dataset_dict\.json"):
        plan([Source("s", str(tmp_path))])
