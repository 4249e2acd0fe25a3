"""The kinds of input that joem reads: what is damaged, and how it is read.

A kind is made once for a folder, which takes seconds, and then tries one damaged input after another: to try is to read
it and to use what was read. Trying ends quietly, with a `JoemError`, or with any other error, which is a fault.
"""

import base64
import gzip
import io
import json
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from fuzz_seeds import exported, fasttext, small_encoder, small_network
from mutation import damaged_bytes, damaged_text, damaged_tree
from PIL import Image

from conftest import fresh_model, make_small, make_tiny
from joem import Segmenter, data, engine, recipe, semantics
from joem.data.files import read_labels
from joem.engine.checkpoint import Checkpoints
from joem.engine.training import Run
from joem.errors import JoemError
from joem.model import Model
from joem.onnx import OnnxModel
from joem.picture_files import FORMATS
from joem.web.decoding import read_picture
from joem.web.failures import Refusal

NAMES = ["red circle", "cow"]


class Kind:
    """One kind of input; a subclass makes its seeds in `folder` and says how one is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def attempt(self, random: Random) -> None:
        """Damage an input and read it."""
        raise NotImplementedError


class Pictures(Kind):
    """Files of every format, in the modes it has, with and without EXIF blocks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        exif = Image.Exif()
        exif[0x0112], exif[0x010F] = 6, "maker"
        self.seeds = [
            as_file(mode, kind, **options)
            for kind in FORMATS
            for mode in ("RGB", "L", "P", "RGBA", "I;16", "1", "CMYK", "F", "LA")
            for options in ({}, {"exif": exif})
            if can_save(mode, kind, **options)
        ]

    def attempt(self, random: Random) -> None:
        content = damaged_bytes(random.choice(self.seeds), random)
        file = self.folder / "a.png"
        file.write_bytes(content)
        refused = None
        try:
            assert data.read_image(file).dtype == torch.uint8
        except JoemError as error:
            refused = error
        try:
            read_picture(content, 1_000_000)
        except Refusal as error:
            refused = refused or JoemError(error.detail)
        if refused is not None:
            raise refused


class Masks(Kind):
    """Masks of a folder: palette, grey, 16-bit and RGB."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        labels = np.random.default_rng(0).integers(0, 3, (12, 16)).astype(np.uint8)
        palette, colours = Image.fromarray(labels), Image.fromarray(np.stack([labels * 60] * 3, 2))
        palette.putpalette(bytes(range(256)) * 3)
        self.seeds = []
        for mask in (palette, Image.fromarray(labels), Image.fromarray(labels.astype(np.uint16)), colours):
            for kind in ("PNG", "TIFF", "BMP"):
                file = io.BytesIO()
                if can_save(mask.mode, kind):
                    mask.save(file, kind)
                    self.seeds.append(file.getvalue())
        self.colours = {(60 * label,) * 3: label for label in range(3)}

    def attempt(self, random: Random) -> None:
        file = self.folder / "a.png"
        file.write_bytes(damaged_bytes(random.choice(self.seeds), random))
        found = read_labels(file, 3, self.colours)
        assert found.ndim == 2
        assert ((found < 3) | (found == 255)).all()


class Recipes(Kind):
    """Recipe files, damaged as text and as the values that they hold."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.texts = [recipe.find(name).read_text() for name in recipe.names()]
        self.trees = [recipe.load(name).to_dict() for name in recipe.names()]

    def attempt(self, random: Random) -> None:
        file = self.folder / "mine.yaml"
        if random.random() < 0.5:
            text = damaged_text(random.choice(self.texts), random)
        else:
            text = yaml.safe_dump(damaged_tree(random.choice(self.trees), random))
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        loaded = recipe.load(str(file))
        assert recipe.Recipe.from_dict(loaded.to_dict()) == loaded


class Models(Kind):
    """Model folders: model.json and the tensors, loaded and used on a small picture."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        recipes = [
            make_tiny(),
            make_tiny(semantics={"control": "random"}),
            *map(make_small, ("blend", "spnet", "zs3net")),
        ]
        self.whole = [fresh_model(each).save(folder / f"whole-{index}") for index, each in enumerate(recipes)]
        for each in self.whole:
            use(Segmenter(Model.load(each)))

    def attempt(self, random: Random) -> None:
        whole, broken = random.choice(self.whole), self.folder / "broken"
        shutil.copytree(whole, broken, dirs_exist_ok=True)
        if random.random() < 0.75:
            write_damaged_json(broken / "model.json", json.loads((whole / "model.json").read_text()), random)
        else:
            content = (whole / "weights.safetensors").read_bytes()
            (broken / "weights.safetensors").write_bytes(damaged_tensors(content, random))
        use(Segmenter(Model.load(broken)))


class Checkpointed(Kind):
    """Checkpoints that a run is resumed from."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tiny = make_tiny()
        engine.train(tiny, folder / "run")
        self.whole = Checkpoints(folder / "run" / "checkpoints").newest()
        self.texts = {name: json.loads((self.whole / name).read_text()) for name in ("state.json", "model.json")}
        names = ("optimisers.safetensors", "weights.safetensors")
        self.tensors = {name: (self.whole / name).read_bytes() for name in names}
        self.run = Run(tiny, engine.open_problem(tiny.data), engine.launched(tiny.train), None)

    def attempt(self, random: Random) -> None:
        broken = self.folder / "broken" / self.whole.name
        shutil.copytree(self.whole, broken, dirs_exist_ok=True)
        name = random.choice([*self.texts, *self.tensors])
        if name in self.texts:
            write_damaged_json(broken / name, self.texts[name], random)
        else:
            (broken / name).write_bytes(damaged_tensors(self.tensors[name], random))
        self.run.checkpoints = Checkpoints(broken.parent)
        self.run.resume()
        if 0 <= self.run.step < self.run.steps:
            self.run.train_step(*next(self.run.batches()))


class Exported(Kind):
    """ONNX files: the graph, and the metadata beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        model = fresh_model(make_tiny())
        self.description = {
            **model.description(),
            "vectors": model.vectors.tolist(),
            "stride": 1,
            "rules": [{"name": "nn", "parameter": None, "neutral": 0.0}],
        }
        self.graphs = (small_network(), small_encoder(model.vectors.shape[1]))
        self.whole = exported(self.graphs, json.dumps(self.description))
        self.load(self.whole)  # or nothing would be tried

    def load(self, content: bytes) -> None:
        file = self.folder / "a.onnx"
        file.write_bytes(content)
        use(Segmenter(OnnxModel.load(file)))

    def attempt(self, random: Random) -> None:
        kind = random.randrange(3)
        if kind == 0:
            self.load(damaged_bytes(self.whole, random))
        elif kind == 1:
            encoder = damaged_bytes(self.graphs[1].SerializeToString(), random)
            self.load(exported(self.graphs, json.dumps(self.description), encoder))
        else:
            text = json.dumps(damaged_tree(self.description, random))
            self.load(exported(self.graphs, damaged_text(text, random) if random.random() < 0.2 else text))


class Vectors(Kind):
    """Files of word vectors: text, gzipped, word2vec's binary format and fastText's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        words = ["cow", "horse", "red", "circle", "résumé", "dining_table"]
        rows = np.random.default_rng(0).normal(size=(len(words), 5)).astype("<f4")
        lines = [" ".join([word, *(f"{x:.4f}" for x in row)]) for word, row in zip(words, rows, strict=True)]
        text = "\n".join([f"{len(words)} 5", *lines]).encode()
        binary = f"{len(words)} 5\n".encode() + b"".join(
            word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows, strict=True)
        )
        bare = "\n".join(lines).encode()
        self.seeds = {"a.vec": text, "b.txt": bare, "c.vec.gz": gzip.compress(text), "d.bin": binary}
        self.seeds["e.bin"] = fasttext(words, np.concatenate([rows, rows]), buckets=len(words))

    def attempt(self, random: Random) -> None:
        name = random.choice(list(self.seeds))
        file = self.folder / name
        file.write_bytes(damaged_bytes(self.seeds[name], random))
        space = semantics.load(f"word2vec:{file}", oov=random.choice(("error", "zero", "skip")))
        assert space.fit(["cow", "horse"]).vectors(["red circle", "horse", "cowhorse"]).isfinite().all()


class ClassLists(Kind):
    """classes.txt and the lists of splits of a folder of pictures."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for part in ("images", "masks", "splits"):
            (folder / part).mkdir()
        for name in "abc":
            Image.new("RGB", (5, 4)).save(folder / "images" / f"{name}.png")
            Image.new("L", (5, 4), 1).save(folder / "masks" / f"{name}.png")
        self.classes = "background #000000\ndog 255 128 0\nred fox #408000\nvoid #E0E0C0\n"

    def attempt(self, random: Random) -> None:
        (self.folder / "classes.txt").write_bytes(damaged_bytes_or_text(self.classes, random))
        (self.folder / "splits" / "train.txt").write_bytes(damaged_bytes_or_text("a\nb.png\nc\n", random))
        dataset = data.Folder(self.folder, random.choice((None, "train")))
        assert dataset[0].labels.shape == (4, 5)


class Requests(Kind):
    """HTTP requests to the service; an answer of 500 is a fault."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fastapi.testclient import TestClient

        from joem.web import Limits, create_app

        segmenter = Segmenter(fresh_model(make_tiny()))
        app = create_app(segmenter, Limits(), None, [])
        self.client = TestClient(app, "http://localhost", raise_server_exceptions=False)
        self.picture = as_file("RGB", "PNG", size=(32, 24))
        self.key = self.client.post("/api/scenes", content=self.picture, headers=PNG).json()["scene"]
        self.paths = [path for path in app.openapi()["paths"] if "{key}" in path]

    def body(self, path: str, random: Random) -> dict[str, Any]:
        """What a path takes."""
        points = {"flag": [[3, 4], [5, 6, False]]}
        examples = {"flag": [{"scene": self.key, "points": [[1, 2]]}, {"scene": self.key, "mask": MASK}]}
        asked: dict[str, Any] = {"names": NAMES, "background": True, "points": points, "examples": examples}
        if path.endswith("explain"):
            return {**asked, "x": 3, "y": 4}
        if path.endswith("ranking"):
            return {**asked, "rule": "ac"}
        return {**asked, "rule": random.choice(("cs", "nn")), "gamma": 0.1, "strict_words": False}

    def attempt(self, random: Random) -> None:
        path, method, headers = random.choice(self.paths), "POST", {"Content-Type": "application/json"}
        sent = json.dumps(damaged_tree(self.body(path, random), random)).encode()
        body = damaged_bytes(sent, random) if random.random() < 0.2 else sent
        if random.random() < 0.2:
            path, headers, body = "/api/scenes", PNG, damaged_bytes(self.picture, random)
        elif random.random() < 0.05:
            path = "/" + "".join(random.choice("abc/.%?&=") for _ in range(random.randrange(30)))
        elif random.random() < 0.05:
            method = random.choice(("GET", "PUT", "DELETE", "HEAD", "OPTIONS"))
        path = path.replace("{key}", self.key if random.random() < 0.95 else "nothing")
        answer = self.client.request(method, path, content=body, headers=headers)
        assert answer.status_code != 500, f"{method} {path} {body[:200]!r}: {answer.text[:200]}"
        if answer.status_code >= 400:
            raise JoemError(answer.text if method != "HEAD" else answer.reason_phrase)  # that has no body


KINDS: dict[str, Callable[[Path], Kind]] = {
    "pictures": Pictures,
    "masks": Masks,
    "recipes": Recipes,
    "models": Models,
    "checkpoints": Checkpointed,
    "onnx": Exported,
    "vectors": Vectors,
    "classes": ClassLists,
    "requests": Requests,
}
"""Every kind by name."""

PNG = {"Content-Type": "image/png"}


def outcome(kind: Kind, name: str, index: int) -> str:
    """Try one input, the same for the same name and index: accepted, or refused, or the error that is a fault."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.attempt(Random(f"{name}-{index}"))
    except JoemError as error:
        if not str(error).strip():
            raise AssertionError("an error without a message") from error
        return "refused"
    return "accepted"


def use(segmenter: Segmenter) -> None:
    """Segment a picture, as somebody who loaded a model would."""
    picture = torch.arange(3 * 40 * 33, dtype=torch.int64).remainder(256).to(torch.uint8).view(3, 40, 33)
    method = getattr(segmenter.model, "method", None)
    names = None if method and method.new_class_stages else NAMES  # some have to train again for a new name
    assert segmenter(picture, names).labels.shape == (40, 33)


def as_file(mode: str, kind: str, size: tuple[int, int] = (16, 12), **options: Any) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0]), np.uint8)
    picture = Image.fromarray(noise.astype(np.uint16) * 200) if mode == "I;16" else Image.fromarray(noise).convert(mode)
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


MASK = base64.b64encode(as_file("1", "PNG", size=(32, 24))).decode()


def can_save(mode: str, kind: str, **options: Any) -> bool:
    try:
        as_file(mode, kind, **options)
    except (OSError, ValueError, KeyError):
        return False
    return True


def write_damaged_json(path: Path, value: Any, random: Random) -> None:
    text = json.dumps(damaged_tree(value, random))
    path.write_bytes(damaged_bytes(text.encode(), random) if random.random() < 0.2 else text.encode())


def damaged_tensors(content: bytes, random: Random) -> bytes:
    """A safetensors file with its bytes, or what its header says, changed."""
    (length,) = struct.unpack_from("<Q", content)
    if random.random() < 0.5:
        return damaged_bytes(content, random)
    header = json.dumps(damaged_tree(json.loads(content[8 : 8 + length]), random)).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def damaged_bytes_or_text(text: str, random: Random) -> bytes:
    if random.random() < 0.3:
        return damaged_bytes(text.encode(), random)
    return damaged_text(text, random).encode("utf-8", "surrogatepass")
