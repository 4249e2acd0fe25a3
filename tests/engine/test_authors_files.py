"""Checkpoints in the layout of the authors' code, made of their network with random weights, become models of joem."""

import json
import pickle

import pytest
import torch
import torch.nn.functional as F
from authors_network import AuthorsNetwork, AuthorsSemantic
from small_voc import write_voc
from torch import nn

from joem import cli, engine, protocols, scores
from joem.engine.authors_files import import_checkpoint
from joem.errors import BadUsage, JoemError

VOC, CHANNELS, DIMENSION = protocols.get("voc-zs3-4").vocabulary, 12, 7
SMALL = {"backbone": "resnet50", "head": {"channels": CHANNELS}}


def config(loader="VOCDataLoader", unseen=4, sigma=0.5, network="DeepLabV3Plus"):
    return {
        "arch": {"type": network, "args": {"num_classes": 21}},
        "data_loader": {"type": loader, "args": {"n_unseen_classes": unseen}},
        "hyperparameter": {"ratio": 0.25, "temperature": 5, "alpha": 0.1, "sigma": sigma},
    }


def word_file(path, names):
    rows = [f"{name} " + " ".join(f"{x:.5f}" for x in torch.randn(DIMENSION).tolist()) for name in names]
    path.write_text("\n".join([f"{len(names)} {DIMENSION}", *rows]) + "\n")
    return f"word2vec:{path}"


def write(folder, visual, semantic, prefix="module.", **settings):
    """Their two files and the configuration beside them."""
    folder.mkdir(exist_ok=True)
    for name, weights in (("fe_checkpoint-epoch50", visual), ("gen_checkpoint-epoch50", semantic)):
        held = {
            "arch": "DataParallel",
            "epoch": 50,
            "state_dict": {prefix + key: each for key, each in weights.items()},
        }
        torch.save({**held, "optimizer": {"param_groups": [{"lr": 2.5e-4}]}, "monitor_best": 0}, folder / f"{name}.pth")
    (folder / "config.json").write_text(json.dumps(config(**settings)))
    return folder


@pytest.fixture(scope="module")
def networks():
    """Both networks, with the statistics of random pictures."""
    torch.manual_seed(0)
    net, semantic = AuthorsNetwork(21, CHANNELS, "resnet50"), AuthorsSemantic(DIMENSION, CHANNELS)
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = None
    with torch.no_grad():
        features = net.train().features(torch.randn(4, 3, 64, 64))
        semantic.model.weight.mul_(4 * features.std())
        semantic.model.bias.copy_(features.mean(dim=(0, 2, 3)))
    return net.eval(), semantic.eval()


def decided(cost, unseen, sigma):
    """The authors' decision: of the two nearest, by squared distances, those of unseen classes times sigma."""
    order = cost.argsort(dim=1)
    weighted = cost * torch.tensor([sigma if index in unseen else 1.0 for index in range(cost.shape[1])])[:, None, None]
    first, second = order[:, :1], order[:, 1:2]
    return torch.where(weighted.gather(1, second) < weighted.gather(1, first), second, first)[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["module.", ""])
def test_an_imported_checkpoint_is_scored_as_plain_torch_does(networks, tmp_path, capsys, prefix):
    net, semantic = networks
    root, words = write_voc(tmp_path), word_file(tmp_path / "voc.vec", VOC.names)
    folder = write(tmp_path / "theirs", net.state_dict(), semantic.state_dict(), prefix)
    options = ["--model.backbone", "resnet50", "--model.head.channels", str(CHANNELS), "--semantics.vectors", words]
    out = tmp_path / "model"
    assert cli.main(["import-checkpoint", str(folder), *options, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unseen"] == list(VOC.unseen)

    model = engine.Model.load(out)
    vectors = model.vectors
    assert vectors.norm(dim=1).max() == pytest.approx(1.0, abs=1e-6)
    prototypes = semantic.model(vectors).detach()
    torch.testing.assert_close(model.prototypes(), prototypes, rtol=0, atol=1e-5)
    imagenet = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    mean, std = (torch.tensor([[[255 * x]] for x in each]) for each in imagenet)
    problem = engine.open_problem(model.recipe.changed(data={"root": str(root)}).data, needed=("val",))
    confusion = torch.zeros(21, 21, dtype=torch.int64)
    for index in range(len(problem.val)):
        sample = problem.val[index]
        features = net.features(((sample.image - mean) / std)[None]).detach()
        torch.testing.assert_close(model.features(sample.image), features, rtol=1e-5, atol=1e-5)
        large = F.interpolate(features, sample.labels.shape, mode="bilinear", align_corners=False)
        cost = (large[:, None] - prototypes[None, :, :, None, None]).square().sum(2)
        labels = decided(cost, VOC.unseen_indices, sigma=0.5)[0]
        confusion += scores.confusion(sample.labels, labels, 21)
        assert len(labels.unique()) > 2
    expected = scores.scores(confusion, VOC.unseen_indices)

    assert cli.main(["evaluate", str(out), "--root", str(root), "--rule", "ac", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["images"] == 2
    assert [found["miou_seen"], found["miou_unseen"]] == pytest.approx([expected.miou_seen, expected.miou_unseen])


def test_everything_that_does_not_fit_is_told_at_once(networks, tmp_path):
    net, semantic = networks
    weights = dict(net.state_dict())
    missing = [key for key in weights if key.startswith("backbone.layer3.") and key.endswith("conv2.weight")]
    for key in missing:
        del weights[key]
    weights |= {"decoder.extra.weight": torch.zeros(2), "aspp.project.0.weight": torch.zeros(3, 3)}
    folder = write(tmp_path / "theirs", weights, semantic.state_dict())
    with pytest.raises(JoemError) as caught:
        import_checkpoint([folder], None, small(tmp_path))
    told = str(caught.value)
    assert len(missing) == 6
    assert all(key in told for key in missing)
    assert "1 tensors not expected: decoder.extra.weight" in told
    assert "aspp.project.0.weight (got (3, 3), expected (12, 60, 1, 1))" in told


def small(tmp_path, names=VOC.names):
    return {"model": SMALL, "semantics": {"vectors": word_file(tmp_path / "words.vec", names)}}


def test_the_last_split_of_context_is_theirs(networks, tmp_path):
    context = protocols.get("context-zs3-10").vocabulary
    net = AuthorsNetwork(60, CHANNELS, "resnet50")
    folder = write(
        tmp_path / "theirs", net.state_dict(), networks[1].state_dict(), loader="ContextDataLoader", unseen=10
    )
    model = import_checkpoint([folder], None, small(tmp_path, context.names))
    assert set(model.vocabulary.unseen) == {*context.unseen} - {"aeroplane"} | {"bicycle"}
    assert model.recipe.data.unseen == model.vocabulary.unseen
    assert (model.recipe.data.kind, model.recipe.method.tau_s) == ("context", 7.0)
    assert model.recipe.decision.value == pytest.approx(0.5**0.5)


class Command:
    """What a stranger's file may hold: something that runs when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_in_a_strangers_file_is_run(tmp_path):
    folder = write(tmp_path / "theirs", {}, {})
    (folder / "fe_checkpoint-epoch50.pth").write_bytes(pickle.dumps({"state_dict": Command(tmp_path / "ran")}, 2))
    with pytest.raises(JoemError, match=r"fe_checkpoint-epoch50.pth' is not a file of tensors"):
        import_checkpoint([folder], None, small(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "DeepLabV2_classifier_600"}, "the network is 'DeepLabV2_classifier_600', not DeepLabV3Plus"),
        ({"loader": "CocoLoader"}, "expected arch.type DeepLabV3Plus, data_loader.type VOCDataLoader or"),
        ({"sigma": "half"}, "hyperparameter.sigma"),
        ({"unseen": 5}, "Unknown protocol 'voc-zs3-5'"),
    ],
)
def test_a_configuration_that_cannot_be_imported_says_why(tmp_path, settings, message):
    folder = write(tmp_path / "theirs", {}, {}, **settings)
    with pytest.raises(JoemError, match=message):
        import_checkpoint([folder], None, small(tmp_path))


def test_two_files_and_their_configuration_are_wanted(tmp_path):
    folder = write(tmp_path / "theirs", {}, {})
    (folder / "fe_checkpoint-epoch49.pth").write_bytes(b"")
    with pytest.raises(BadUsage, match=r"is two .pth files.*epoch49.*give the two files"):
        import_checkpoint([folder])
    (folder / "config.json").unlink()
    pair = [folder / "fe_checkpoint-epoch50.pth", folder / "gen_checkpoint-epoch50.pth"]
    with pytest.raises(BadUsage, match=r"There is no .*config.json"):
        import_checkpoint(pair)
    with pytest.raises(BadUsage, match="got none"):
        import_checkpoint([tmp_path])
