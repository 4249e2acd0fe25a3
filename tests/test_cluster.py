"""Pictures on a Ray cluster: from and to any file system, each exactly once whoever is killed."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from joem import cli, cluster, parquet_files, prediction
from joem.data.scenes import Scenes
from joem.errors import BadUsage, JoemError
from joem.saving import Saving
from joem.shards import Shard

pytest.importorskip("ray")
NAMES = "red circle, green dog"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(12):
        Image.fromarray(Scenes(12, 32)[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number:02}.png")
    return folder


@pytest.fixture
def bucket(pictures):
    """The same pictures in a file system that is no folder."""
    system = fsspec.filesystem("memory")
    for file in pictures.iterdir():
        system.pipe_file(f"/bucket/in/{file.name}", file.read_bytes())
    system.pipe_file("/bucket/in/notes.txt", b"no picture")
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def test_pictures_are_found_at_addresses_and_paths(bucket, pictures, monkeypatch):
    found = cluster.find_pictures([f"{bucket}/in"])
    assert [Path(each).name for each in found] == [f"{number:02}.png" for number in range(12)]
    assert all(fsspec.open(each).open().read(4) == b"\x89PNG" for each in found)
    assert cluster.find_pictures([f"{bucket}/in/*1.png"]) == [found[1], found[11]]
    assert cluster.find_pictures(["-"], [f"{bucket}/in/03.png\n", "\n"]) == [f"{bucket}/in/03.png"]
    monkeypatch.chdir(pictures.parent)
    assert cluster.find_pictures([pictures.name])[0] == str(pictures / "00.png")
    with pytest.raises(BadUsage, match="There are no pictures at memory://bucket/nowhere"):
        cluster.find_pictures([f"{bucket}/nowhere"])
    with pytest.raises(JoemError, match=r"nix://bucket cannot be reached: Protocol not known: nix"):
        cluster.find_pictures(["nix://bucket"])


def test_a_worker_reads_and_writes_addresses_and_the_same_work_again_writes_the_same_file(trained, bucket):
    import pyarrow

    saving = Saving("parquet", shard=Shard(1, 1), identity={"asked": NAMES}, skip_done=True)
    chunk = [*cluster.find_pictures([f"{bucket}/in"])[:3], f"{bucket}/in/gone.png", f"{bucket}/in/notes.txt"]
    worker = cluster._Worker(lambda: trained, prediction.Request(NAMES), f"{bucket}/out", saving)
    batch = pyarrow.table({"chunk": [chunk]})
    for _ in range(2):  # as Ray does where a worker was lost after it wrote
        (told,) = worker(cluster._fetch(batch)).to_pylist()
        assert told["pictures"] == 3
        assert ["gone.png" in told["errors"][0], "notes.txt" in told["errors"][1]] == [True, True]
    (file,) = fsspec.filesystem("memory").ls("/bucket/out", detail=False)
    assert told["file"] == f"memory:/{file}"
    with fsspec.open(told["file"]) as opened:
        rows = list(parquet_files.read(opened))
    for row, picture in zip(rows, chunk, strict=False):
        expected = trained(fsspec.open(picture).open().read(), NAMES).labels.numpy()
        assert np.array_equal(parquet_files.labels(row), expected)
    assert cluster._finished(f"{bucket}/out", saving) == set(chunk[:3])
    with pytest.raises(BadUsage, match="another request"):
        cluster._finished(f"{bucket}/out", Saving("parquet", skip_done=True))


def test_engines_say_what_they_need(pictures, capsys, monkeypatch):
    assert cli.main(["predict", str(pictures), "--engine", "ray"]) == 2
    assert "--engine ray writes Parquet files, not folders: add --format parquet" in capsys.readouterr().err
    assert cli.main(["predict", "s3://bucket/in"]) == 2
    assert "s3://bucket/in is not on this machine: add --engine ray" in capsys.readouterr().err
    monkeypatch.setattr("joem.extras._installed", lambda module: module != "ray")
    assert cli.main(["predict", str(pictures), "--engine", "ray", "--format", "parquet"]) == 1
    told = capsys.readouterr().err
    assert told == 'joem: --engine ray needs ray, which is not installed: run pip install "joem[ray]".\n'


KILLED = """
import os, signal, sys, time
from pathlib import Path
from joem import Segmenter, cluster, prediction
from joem.saving import Saving

source, model, out, notes = map(Path, sys.argv[1:])

class Mortal(prediction.Request):
    def run(self, segmenter, picture, content):
        with (notes / str(os.getpid())).open("a") as file:
            file.write(f"{picture}\\n")
        for _ in range(600):  # until both workers have begun
            if len(list(notes.iterdir())) > 1:
                break
            time.sleep(0.1)
        if picture.name == "07.png" and not (notes / "killed").exists():
            (notes / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(segmenter, picture, content)

import ray
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
         object_store_memory=10**8, logging_level="ERROR")
request, found = Mortal("red circle, green dog"), cluster.find_pictures([str(source)])
saving = Saving("parquet", rows=2)
parts = list(cluster.predict(lambda: Segmenter.load(model), found, request, str(out), saving, workers=2))
assert not [error for part in parts for error in part.errors]
(notes / "count").write_text(str(sum(part.pictures for part in parts)))
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif("JOEM_CLUSTER" not in os.environ, reason="a Ray cluster takes a minute to start: make cluster")
def test_with_one_of_two_workers_killed_every_picture_is_there_exactly_once(trained, pictures, tmp_path):
    model, out, notes = trained.save(tmp_path / "model"), tmp_path / "out", tmp_path / "notes"
    notes.mkdir()
    command = [sys.executable, "-c", KILLED, *map(str, (pictures, model, out, notes))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    files = sorted(out.glob("*.parquet"))
    rows = [row for file in files for row in parquet_files.read(file)]
    assert sorted(row["picture"] for row in rows) == sorted(map(str, pictures.iterdir()))
    assert len(files) == 6
    begun = {file.name: file.read_text().splitlines() for file in notes.iterdir()}
    assert (begun.pop("count"), begun.pop("killed")) == (["12"], [])
    assert len(begun) >= 2
    assert sum(listed.count(str(pictures / "07.png")) for listed in begun.values()) == 2  # done again
    for row in rows:
        assert np.array_equal(parquet_files.labels(row), trained(row["picture"], NAMES).labels.numpy())
