"""Models on disk: saved whole, loaded strictly, and what is wrong with a folder is named."""

import json
from pathlib import Path

import pytest
import torch

from conftest import fresh_model
from joem import data
from joem.engine import Model
from joem.errors import BadUsage, JoemError
from joem.io import read_tensors, write_tensors
from joem.model_description import check_description
from joem.semantics import Semantics


def test_methods_never_hold_vectors_of_unseen_classes(tiny):
    model = fresh_model(tiny)
    unseen = list(model.vocabulary.unseen_indices)
    assert not model.method.vectors[unseen].any()
    assert model.vectors[unseen].any()


def test_a_download_that_fails_does_so_before_words_are_encoded(tiny, monkeypatch):
    def refuse(settings):
        raise JoemError("no network")

    monkeypatch.setattr("joem.model.build_trunk", refuse)
    monkeypatch.setattr(Semantics, "fit", lambda *_: pytest.fail("words were encoded"))
    with pytest.raises(JoemError, match="no network"):
        fresh_model(tiny.changed(model={"weights": "imagenet"}))


def test_save_and_load_give_the_same_prototypes_for_old_and_new_names(tiny, tmp_path):
    model = fresh_model(tiny)
    loaded = Model.load(model.save(tmp_path / "model"))
    names = (*model.vocabulary.names[:3], "brown dog")
    assert torch.equal(model.prototypes(names), loaded.prototypes(names))
    assert loaded.recipe == model.recipe


def test_a_model_whose_vector_file_is_gone_still_knows_its_vocabulary(tiny, tmp_path):
    words = sorted({word for name in data.scenes.vocabulary().names for word in name.split()})
    vectors = tmp_path / "words.vec"
    lines = [f"{word} " + " ".join(str(hash((i, j)) % 97 / 97) for j in range(4)) for i, word in enumerate(words)]
    vectors.write_text("\n".join(lines))
    tiny = tiny.changed(semantics={"vectors": f"word2vec:{vectors}"})
    model = fresh_model(tiny)
    model.save(tmp_path / "model")
    new = ("background", "striped red ring")
    expected = model.prototypes(new)
    moved = tmp_path / "elsewhere" / "words.vec"
    moved.parent.mkdir()
    vectors.rename(moved)
    loaded = Model.load(tmp_path / "model")
    assert torch.equal(loaded.prototypes(), model.prototypes())
    with pytest.raises(JoemError, match=r"striped red ring: no vectors for new names.*words.vec"):
        loaded.prototypes(new)
    found = Model.load(tmp_path / "model", search=[moved.parent])
    assert torch.equal(found.prototypes(new), expected)


def test_a_checkpoint_of_another_architecture_lists_what_is_missing(tiny, tmp_path):
    model = fresh_model(tiny)
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    described["recipe"]["model"]["head"]["channels"] = 16
    (tmp_path / "model" / "model.json").write_text(json.dumps(described))
    with pytest.raises(JoemError, match=r"(?s)another architecture.*semantic.weight"):
        Model.load(tmp_path / "model")


def test_missing_and_damaged_models_are_named(tiny, tmp_path):
    with pytest.raises(JoemError, match="no model in"):
        Model.load(tmp_path)
    fresh_model(tiny).save(tmp_path / "m")
    (tmp_path / "m" / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(JoemError, match=r"weights\.safetensors is damaged: "):
        Model.load(tmp_path / "m")
    (tmp_path / "m" / "model.json").write_text('{"format": 99, "joem": "9.9"}')
    with pytest.raises(JoemError, match=r"format 99.*joem '9.9'"):
        Model.load(tmp_path / "m")


def test_a_model_that_lacks_something_is_named_with_what_it_lacks(tiny, tmp_path):
    folder = fresh_model(tiny).save(tmp_path / "m")
    described, tensors = (
        json.loads((folder / "model.json").read_text()),
        read_tensors(folder / "weights.safetensors"),
    )
    del tensors["vocabulary_vectors"]
    write_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(JoemError, match=r"weights\.safetensors does not hold vocabulary_vectors"):
        Model.load(folder)
    del described["normalisation"]
    (folder / "model.json").write_text(json.dumps(described))
    with pytest.raises(JoemError, match=r"model\.json is damaged: normalisation: Field required"):
        Model.load(folder)
    (folder / "model.json").write_text("[1, 2]")
    with pytest.raises(JoemError, match=r"model\.json is damaged: it holds \[1, 2\] instead"):
        Model.load(folder)


def test_a_model_is_never_saved_over_other_files(tiny, tmp_path):
    model = fresh_model(tiny)
    folder = tmp_path / "precious"
    folder.mkdir()
    model.save(folder)  # an empty folder is as good as none
    model.save(folder)  # and so is another model
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}
    (folder / "thesis.txt").write_text("important")
    with pytest.raises(BadUsage, match=r"holds thesis\.txt, which is no part of a model"):
        model.save(folder)
    assert (folder / "thesis.txt").read_text() == "important"
    with pytest.raises(BadUsage, match="is a file, and a model is a folder"):
        model.save(folder / "thesis.txt")
    assert (folder / "thesis.txt").read_text() == "important"


def changed(description, place, value):
    """A description with the value at a place, such as "vocabulary.names", replaced."""
    *path, last = place.split(".")
    holder = description
    for key in path:
        holder = holder[int(key) if key.isdigit() else key]
    holder[int(last) if last.isdigit() else last] = value


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("vocabulary.names", 3, r"vocabulary.names: Input should be a valid list, got 3"),
        ("vocabulary.names.1", "background", "Class names in names must differ"),
        ("vocabulary.background", "gone", "Unknown background class 'gone'"),
        ("vocabulary.unseen", ["gone"], "Unknown unseen class 'gone'"),
        ("added", 99, "99 classes were added, but there are"),
        ("semantics.parts.0.dimension", 49, r"the shape \(\d+, 50\), expected \(\d+, 49\) finite numbers"),
        ("semantics.parts.0.scale", float("nan"), "scale: Input should be"),
        ("semantics.parts.0.centre", [1.0], "expected vectors of 50 numbers"),
        ("semantics.parts.0.package", None, "it does not say where the vectors come from"),
        ("semantics.spec", "glove+glove", "argument 2 is shorter than argument 1"),
        ("normalisation.std", [0, 1, 1], "normalisation.std.0: Input should be greater than 0, got 0"),
        ("recipe.model.head.channels", 5_000_000, "networks that are far larger than the weights beside it"),
        ("recipe.model.backbone", "tu-hf-hub:some/where", "model.backbone: String should match pattern"),
        ("recipe.model.backbone", "no-such-network", "Unknown backbone"),
        ("recipe.method.name", "no-such-method", "Unknown method"),
        ("recipe.train.seed", 10**200, "train.seed: .*, got 10{119}[.] Take"),
    ],
)
def test_a_description_that_cannot_be_is_refused_with_the_file(tiny, tmp_path, place, value, told):
    folder = fresh_model(tiny).save(tmp_path / "m")
    described = json.loads((folder / "model.json").read_text())
    changed(described, place, value)
    (folder / "model.json").write_text(json.dumps(described))
    with pytest.raises(JoemError, match=rf"(?s)^{folder}/\S+ is damaged: .*{told}") as caught:
        Model.load(folder)
    assert not isinstance(caught.value, BadUsage)


@pytest.mark.parametrize("name", ["vocabulary_vectors", "semantic.weight"])
def test_tensors_that_are_not_numbers_are_refused_with_the_file(tiny, tmp_path, name):
    folder = fresh_model(tiny).save(tmp_path / "m")
    tensors = read_tensors(folder / "weights.safetensors")
    tensors[name][0, 0] = float("nan")
    write_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(JoemError, match=r"weights\.safetensors is damaged: .*numbers"):
        Model.load(folder)


def test_what_is_written_fits_the_schema(tiny):
    model = fresh_model(tiny)
    described = json.loads(json.dumps(model.description()))
    assert check_description(described, Path("m")) == described
    exported = {**described, "vectors": model.vectors.tolist(), "stride": 4, "rules": [{"name": "nn"}]}
    with pytest.raises(JoemError, match=r"m is damaged: rules\.0\.parameter: Field required"):
        check_description(exported, Path("m"), exported=True)
