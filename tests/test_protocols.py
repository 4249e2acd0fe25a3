import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from joem import protocols
from joem.errors import BadUsage

SHARED = Path(__file__).parents[2] / "shared"
ZS3 = [f"{dataset}-zs3-{count}" for dataset in ("voc", "context") for count in (2, 4, 6, 8, 10)]


def needs(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path


def harmonic(seen: float, unseen: float) -> float:
    return 2 * seen * unseen / (seen + unseen)


def test_names_are_the_published_settings():
    assert protocols.names() == (*ZS3, "voc-spnet", "cocostuff-spnet")


def test_an_unknown_name_answers_with_the_list():
    with pytest.raises(BadUsage, match=r"Unknown protocol 'voc-zs3-5'.*Did you mean 'voc-zs3.*cocostuff-spnet"):
        protocols.get("voc-zs3-5")


def test_importing_protocols_does_not_import_torch():
    code = "import sys, joem.protocols as p; p.get('voc-spnet'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ZS3)
def test_zs3_splits_follow_one_rule(name):
    protocol = protocols.get(name)
    dataset, _, count = name.split("-")
    assert protocol.name == name
    assert protocol.dataset == dataset
    assert protocol.rule == "exclude"
    assert len(protocol.vocabulary.unseen) == int(count)
    assert len(protocol.vocabulary) == {"voc": 21, "context": 60}[dataset]
    assert (protocol.train_split, protocol.val_split) == (
        {"voc": "train_aug", "context": "train"}[dataset],
        "val",
    )
    assert protocol.vocabulary.background == protocol.vocabulary.names[0] == "background"


@pytest.mark.parametrize("dataset", ["voc", "context"])
def test_zs3_splits_are_cumulative(dataset):
    splits = [protocols.get(f"{dataset}-zs3-{count}").vocabulary.unseen for count in (2, 4, 6, 8, 10)]
    for smaller, larger in pairwise(splits):
        assert larger[: len(smaller)] == smaller


def test_the_classes_held_out_are_those_of_the_paper():
    voc, context = (protocols.get(f"{dataset}-zs3-10").vocabulary for dataset in ("voc", "context"))
    assert " ".join(voc.unseen) == "cow motorbike aeroplane sofa cat tvmonitor train bottle chair pottedplant"
    assert " ".join(context.unseen) == "cow motorbike sofa cat boat fence bird tvmonitor keyboard aeroplane"
    assert protocols.get("voc-zs3-2").vocabulary.unseen_indices == (10, 14)


def test_voc_spnet():
    protocol = protocols.get("voc-spnet")
    assert protocol.rule == "ignore"
    assert protocol.vocabulary.names == protocols.get("voc-zs3-2").vocabulary.names[1:]
    assert protocol.vocabulary.unseen_indices == (15, 16, 17, 18, 19)
    assert protocol.vocabulary.background is None
    assert protocol.training_images == 10582
    assert list(protocol.published) == ["spnet", "zs3net", "cagnet", "joem-nn", "joem"]


def test_cocostuff_spnet():
    protocol = protocols.get("cocostuff-spnet")
    assert protocol.rule == "ignore"
    assert len(protocol.vocabulary) == 182
    assert protocol.vocabulary.background is None
    expected = (20, 24, 32, 33, 40, 56, 86, 99, 105, 123, 144, 147, 148, 168, 171)
    assert protocol.vocabulary.unseen_indices == expected
    assert protocol.training_images is None
    assert protocol.published == {}


def test_spot_scores():
    assert protocols.get("voc-zs3-2").published["csrl"] == protocols.PublishedScores(73.4, 45.7, 56.3)
    assert protocols.get("context-zs3-8").published["zs3net"] == protocols.PublishedScores(20.9, 16.0, 18.1)
    assert protocols.get("context-zs3-4").published["joem"] == protocols.PublishedScores(
        36.9, 30.7, 33.5, (0.8, 1.5, 0.7)
    )
    assert protocols.get("voc-spnet").published["joem-nn"] == protocols.PublishedScores(78.9, 30.6, 44.1)


@pytest.mark.parametrize("name", [*ZS3, "voc-spnet"])
def test_hiou_is_the_harmonic_mean(name):
    for method, scores in protocols.get(name).published.items():
        # JoEm's are means over five runs of each score, so their harmonic mean need not be the mean hIoU.
        tolerance = 0.3 if method.startswith("joem") else 0.15
        assert scores.hiou == pytest.approx(harmonic(scores.seen, scores.unseen), abs=tolerance), method


def test_other_tables():
    tables = protocols.published_tables()
    settings = tables.pop("settings")["rows"]
    assert [(row["protocol"], row["semantic features"]) for row in settings] == [
        ("voc-zs3-4", "word2vec"),
        ("voc-spnet", "word2vec & fastText"),
    ]
    assert {name: table["protocol"] for name, table in tables.items()} == {
        "ablation": "context-zs3-4",
        "embedding_space": "voc-zs3-4",
        "per_class": "voc-zs3-4",
    }
    assert [row["hiou"] for row in tables["ablation"]["rows"]] == [15.8, 16.7, 17.8, 19.0, 32.3, 33.7]
    assert [row["hiou"] for row in tables["embedding_space"]["rows"]] == [31.2, 41.5, 34.4, 40.6, 43.4]
    unseen = protocols.get("voc-zs3-4").vocabulary.unseen_indices
    for row in tables["per_class"]["rows"]:
        assert len(row["per_class"]) == 21
        of_unseen = sum(row["per_class"][label] for label in unseen) / len(unseen)
        assert of_unseen == pytest.approx(row["unseen"], abs=0.3)  # of one run; the scores may be the mean of five
        assert (sum(row["per_class"]) - 4 * of_unseen) / 17 == pytest.approx(row["seen"], abs=0.8)
    for table in tables.values():
        for row in table["rows"]:
            assert row["hiou"] == pytest.approx(harmonic(row["seen"], row["unseen"]), abs=0.15)


def test_what_is_handed_out_cannot_change_the_data():
    protocols.published_tables()["ablation"]["rows"].clear()
    assert len(protocols.published_tables()["ablation"]["rows"]) == 6
    with pytest.raises(TypeError):
        protocols.get("voc-zs3-2").published["joem"] = None


@pytest.mark.real
def test_every_number_of_the_main_table_is_the_papers():
    text = needs(SHARED / "paper.tex").read_text(encoding="utf-8")
    table = text[text.index(r"\label{table:sota}") :].split(r"\end{table*}")[0]
    halves = dict(zip(("voc", "context"), table.split(r"\hline\hline"), strict=True))
    labels = {"devise": "DeViSE", "spnet": "SPNet", "zs3net": "ZS3Net", "csrl": "CSRL", "joem": "Ours"}
    for dataset, half in halves.items():
        for method, label in labels.items():
            row = re.search(rf"& {label}[~ &].*", half)[0]
            row = re.sub(r"\\cite\{[^}]*\}", "", row)
            deviations = [float(number) for number in re.findall(r"\((\d+\.\d)\)", row)]
            scores = [float(number) for number in re.findall(r"(?<!\()\b\d+\.\d\b", row)]
            ours = [protocols.get(f"{dataset}-zs3-{count}").published[method] for count in (2, 4, 6, 8, 10)]
            assert [value for s in ours for value in (s.seen, s.unseen, s.hiou)] == scores
            assert [value for s in ours for value in s.deviation or ()] == deviations


@pytest.mark.real
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("voc-word2vec-zs3", "voc-zs3-2"),
        ("context-word2vec-zs3", "context-zs3-2"),
        ("cocostuff-word2vec-spnet", "cocostuff-spnet"),
        ("cocostuff-fasttext-spnet", "cocostuff-spnet"),
    ],
)
def test_names_are_those_of_the_vector_files(file, name):
    lines = needs(SHARED / "data/vectors" / f"{file}.vec").read_text(encoding="utf-8").splitlines()[1:]
    stored = tuple(line.split(" ")[0].replace("_", " ") for line in lines)
    assert protocols.get(name).vocabulary.names == stored


@pytest.mark.real
def test_the_rule_leaves_as_many_training_images_as_reported():
    voc = needs(SHARED / "data/VOCdevkit/VOC2012")
    images = (voc / "ImageSets/Segmentation/train_aug.txt").read_text(encoding="utf-8").split()
    masks = [voc / "SegmentationClassAug" / f"{image}.png" for image in images]
    masks = [m if m.exists() else voc / "SegmentationClass" / m.name for m in masks]
    classes = [set(np.unique(np.asarray(Image.open(mask)))) for mask in masks]
    for count in (2, 4, 6, 8, 10):
        protocol = protocols.get(f"voc-zs3-{count}")
        left = sum(present.isdisjoint(protocol.vocabulary.unseen_indices) for present in classes)
        assert left == protocol.training_images
