"""What lies in jobs/ is what it says: configurations load, schemas fit, scripts run."""

import json
import os
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import yaml

import dist_bpe
from dist_bpe.options import build
from dist_bpe.run.config import RunConfig, in_file, read_toml

ROOT = Path(__file__).parent.parent
JOBS = ROOT / "jobs"


def run(*command: object, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        list(map(str, command)), cwd=cwd, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.toml")), ids=lambda path: path.stem)
def test_configurations_are_whole_runs(path: Path) -> None:
    config = build(RunConfig, read_toml(path), in_file(path))
    assert config.learn is not None
    assert config.learn.merges(config.count.special_tokens) > 0


@pytest.mark.parametrize(
    "path", sorted(p for p in JOBS.iterdir() if p.suffix in (".sh", ".sbatch")), ids=lambda p: p.name
)
def test_scripts_are_bash(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    assert os.access(path, os.X_OK)


def test_every_file_is_in_the_readme() -> None:
    named = set(re.findall(r"\]\(([\w.-]+)\)", (JOBS / "README.md").read_text()))
    assert named == {path.name for path in JOBS.iterdir()} - {"README.md", "sample_corpus.py"}


def test_the_cloud_cluster_fits_rays_schema() -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    cluster = yaml.safe_load((JOBS / "ray-cluster.yaml").read_text())
    jsonschema.validate(cluster, schema)
    assert cluster["head_node_type"] in cluster["available_node_types"]


def test_the_kubernetes_job_hangs_together() -> None:
    config_map, job = yaml.safe_load_all((JOBS / "kuberay-rayjob.yaml").read_text())
    config = build(RunConfig, tomllib.loads(config_map["data"]["run.toml"]))
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = spec["rayClusterSpec"]
    assert f"ray=={cluster['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts.keys() == volumes.keys()
        assert volumes["config"]["configMap"]["name"] == config_map["metadata"]["name"]
        assert config.output.startswith("s3://")
        assert spec["entrypoint"] == f"dist-bpe train {mounts['config']}/run.toml"
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """docker-compose.yml as Compose itself reads it."""
    command = [Path(sys.executable).parent / "docker-compose", "--file", ROOT / "docker-compose.yml", "config"]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    ran = subprocess.run([*command, "--quiet"], env=environment, capture_output=True, text=True)
    assert ran.returncode, "without a token nothing may start"
    assert "set RAY_AUTH_TOKEN to a long random text" in ran.stderr
    environment["RAY_AUTH_TOKEN"] = "token"
    ran = subprocess.run([*command, "--format", "json"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def test_the_compose_project_is_confined(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        limits = service["deploy"]["resources"]["limits"]
        assert float(limits["cpus"]) > 0, name
        assert int(limits["memory"]) > 0, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & service.keys(), name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", [])), name
        if "build" in service:
            assert service["environment"]["RAY_AUTH_MODE"] == "token", name
            assert service["environment"]["RAY_AUTH_TOKEN"] == "token", name
        else:
            assert service["user"] == "1000:1000", name
            assert re.search(r":\d+(\.\d+)+$", service["image"]), "a version, not whatever is the latest"
    # What goes on has a health check; what ends is waited for.
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            checked = "healthcheck" in services[needed]
            assert how["condition"] == ("service_healthy" if checked else "service_completed_successfully"), name
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"job", "sample"}
    assert services["worker"]["deploy"]["replicas"] == 2


def test_the_image_is_pinned_and_not_of_root() -> None:
    steps = (ROOT / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", steps, re.MULTILINE)
    assert all(re.search(r":\d+\.\d+\.\d+-", base) for base in bases)
    last = steps.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE) == ["trainer"]
    assert not re.search(r"amd64|x86_64|aarch64|arm64", steps)


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    from ray.util.metrics import Counter, Histogram

    from dist_bpe.engine.metrics import PREFIX, Metrics

    board = json.loads((JOBS / "grafana.json").read_text())
    assert {"datasource", "run"} == {variable["name"] for variable in board["templating"]["list"]}
    queries = []
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["description"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        queries += [target["expr"] for target in panel["targets"]]
    # As Ray serves them: its prefix, and the endings of Prometheus for each kind.
    ends = {Counter: "_total", Histogram: "_bucket"}
    made = {f"ray_{PREFIX}{name}{ends.get(type(metric), '')}" for name, metric in Metrics("r")._metrics.items()}
    assert {name for query in queries for name in re.findall(r"ray_\w+", query)} == made
    for query in queries:
        assert query.count("{") == query.count('run="$run"'), query
        assert query.count("(") == query.count(")"), query
    # No two panels lie on each other.
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    # What docs/observing.md lists is made, and the other way round; "`dist_bpe_a`, `_b`" is two names.
    table = (ROOT / "docs" / "observing.md").read_text().partition("## Metrics")[2]
    listed = {
        PREFIX + name.removeprefix("dist_bpe").removeprefix("_")
        for cell in re.findall(r"^\| (`.*?`) \|", table, re.M)
        for name in re.findall(r"`(\w+)", cell)
    }
    assert listed == {PREFIX + name for name in Metrics("r")._metrics}


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet files en, de, fi, and a parallel set of the first two."""
    folder = tmp_path_factory.mktemp("jobs")
    rng = random.Random(7)
    parallel = []
    for lang in ("en", "de", "fi"):
        words = ["".join(rng.choices("etaoinshrdlu" + lang, k=rng.randint(2, 9))) for _ in range(500)]
        texts = [" ".join(rng.choices(words, k=80)) for _ in range(60)]
        pq.write_table(pa.table({"text": texts}), folder / f"{lang}.parquet")
        parallel += [(lang, f"d{i}", " ".join(rng.choices(words, k=40))) for i in range(20) if lang != "fi"]
    lang, doc, text = zip(*parallel, strict=True)
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), folder / "parallel.parquet")
    dist_bpe.count(
        *(dist_bpe.Source(lang, str(folder / f"{lang}.parquet")) for lang in ("en", "de")),
        output=folder / "kept", engine="local", progress="silent",
    )  # fmt: skip
    return folder


def test_one_more_language_is_as_if_counted_together(languages: Path) -> None:
    run(JOBS / "one-more-language.sh", "kept", "fi", "fi.parquet", "more", "--engine", "local", cwd=languages)
    together = dist_bpe.count(
        *(dist_bpe.Source(lang, str(languages / f"{lang}.parquet")) for lang in ("en", "de", "fi")),
        output=languages / "together", engine="local", progress="silent",
    )  # fmt: skip
    added = dist_bpe.CountTable.open(languages / "more")
    assert added.digest == together.digest
    assert (languages / "more" / "vocabularies" / "128000" / "tokenizer.json").exists()


def test_the_sweep_compares_all_mixtures(languages: Path) -> None:
    shown = run(JOBS / "rebalancing-sweep.sh", "kept", "parallel.parquet", 700, cwd=languages)
    for name in ("alpha-1", "alpha-0.3", "unimax-4", "balanced"):
        assert name in shown
    # A job that is given again ends as well: what is there is done at once, or made to the same bytes.
    again = run(JOBS / "rebalancing-sweep.sh", "kept", "parallel.parquet", 700, cwd=languages)
    assert again.splitlines()[-8:] == shown.splitlines()[-8:]
