"""The `official` recipes against what the authors' code does, computed by code of the test alone."""

import math

import numpy as np
import pytest
import torch
from authors_network import AuthorsNetwork, AuthorsSemantic
from torch import nn

from conftest import make_run
from joem import methods, protocols, recipe
from joem.engine.optimisers import set_rates
from joem.errors import BadUsage
from joem.models import build_encoder, build_trunk
from joem.recipe import Recipe
from joem.settings import ModelSettings, TrainSettings
from joem.vocabulary import VOID

HEIGHT, WIDTH = 45, 51  # 12 x 13 features, 3 x 3 labels of L_bar


def millions(*modules):
    return round(sum(weight.numel() for module in modules for weight in module.parameters()) / 1e6, 2)


def test_the_network_has_as_many_weights_as_the_authors():
    settings = recipe.load("official-joem", {"model": {"weights": "none"}})
    vocabulary = protocols.get("voc-zs3-4").vocabulary
    method = methods.get("joem")(settings.model, settings.method, vocabulary, torch.zeros(21, 300))
    head, network = method.visual.head, method.trunk.backbone.network
    assert millions(network) == 42.50
    assert millions(head.aspp) == 15.54
    assert millions(head.block1, head.block2, method.classifier) == 1.31
    assert millions(method.visual, method.classifier) == millions(AuthorsNetwork(21)) == 59.34
    assert [unit.conv2.dilation for unit in network.layer4] == [(2, 2), (4, 4), (8, 8)]
    assert [unit.conv2.padding for unit in network.layer4] == [(2, 2), (4, 4), (8, 8)]
    dropouts = [each.p for each in method.visual.modules() if isinstance(each, nn.Dropout)]
    assert dropouts == [0.5, 0.5, 0.1]
    bound = math.sqrt(6 / (300 + 256))
    assert (method.semantic.bias == 0.01).all()
    assert 0.9 * bound < method.semantic.weight.abs().max() <= bound
    assert method.classifier.weight.detach().std() == pytest.approx(math.sqrt(2 / 21), rel=0.05)
    for weight in (head.block2[0].weight, head.block2[4].weight):
        assert weight.detach().std() == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.05)
    method.train()
    assert not any(each.training for each in network.modules() if isinstance(each, nn.BatchNorm2d))
    assert all(each.weight.requires_grad for each in network.modules() if isinstance(each, nn.BatchNorm2d))
    assert head.block2[1].training


def test_multi_grid_is_for_the_blocks_of_a_resnet():
    head = recipe.default_model().head
    with pytest.raises(BadUsage, match=r"multi_grid has 3 numbers.* that has 2 blocks"):
        build_encoder(ModelSettings(backbone="resnet18", head=head, multi_grid=(1, 2, 4)))
    with pytest.raises(BadUsage, match="is no ResNet: leave it out"):
        build_trunk(ModelSettings(backbone="tu-test_efficientnet", multi_grid=(1,)))


def test_rates_fall_with_every_epoch_or_stay():
    settings = TrainSettings(visual={"lr": 0.1, "every": "epoch"}, semantic={"name": "adam", "lr": 0.2, "power": 0})
    weight = nn.Parameter(torch.zeros(1))
    optimisers = {
        name: torch.optim.SGD([{"params": [weight], "scale": scale}], lr=1.0)
        for name, scale in (("visual", 10.0), ("semantic", 1.0))
    }
    for step in range(15):
        set_rates(optimisers, settings, step, 15, steps_per_epoch=3)
        epoch = step // 3 + 1
        assert optimisers["visual"].param_groups[0]["lr"] == pytest.approx(0.1 * 10 * (1 - (epoch - 1) / 5) ** 0.9)
        assert optimisers["semantic"].param_groups[0]["lr"] == 0.2


def interpolation(inputs, outputs, corners):
    """The bilinear weights (outputs, inputs) along one axis."""
    matrix = torch.zeros(outputs, inputs, dtype=torch.float64)
    for i in range(outputs):
        x = i * (inputs - 1) / (outputs - 1) if corners else max(0.0, (i + 0.5) * inputs / outputs - 0.5)
        low = min(int(x), inputs - 1)
        matrix[i, low] += 1 - (x - low)
        matrix[i, min(low + 1, inputs - 1)] += x - low
    return matrix


def enlarged(maps, height, width, corners):
    rows, columns = interpolation(maps.shape[2], height, corners), interpolation(maps.shape[3], width, corners)
    return rows @ maps @ columns.T


def nearest(labels, height, width):
    def sources(size, wanted):
        return [int(np.float32(i) * np.float32(size / wanted)) for i in range(wanted)]

    return labels[:, sources(labels.shape[1], height)][:, :, sources(labels.shape[2], width)]


def distances(rows):
    one = torch.eye(len(rows), dtype=rows.dtype)  # keeps the root from having no gradient on the diagonal
    return ((rows[:, None] - rows[None]).square().sum(-1) + one).sqrt() - one


def objective(net, semantic, pictures, labels, vectors, seen_objects):
    """L_ce + L_bar + .1 L_sc by definition: r = 4, temperature 5, L_sc per seen class without background."""
    features = net.features(pictures)
    logits = enlarged(net.decoder.pred_conv(features), HEIGHT, WIDTH, corners=True)
    labelled = labels != VOID
    chosen = logits.log_softmax(1).gather(1, labels.masked_fill(~labelled, 0)[:, None])[:, 0]
    cross_entropy = -chosen[labelled].mean()

    height, width = features.shape[2:]
    small = nearest(labels, int(height * 0.25), int(width * 0.25))
    words = torch.cat([vectors, torch.zeros(1, vectors.shape[1], dtype=vectors.dtype)])
    stacked = words[small.masked_fill(small == VOID, len(vectors))].permute(0, 3, 1, 2)
    prototypes = semantic.model(enlarged(stacked, height, width, corners=False).permute(0, 2, 3, 1))
    counted = nearest(labels, height, width) != VOID
    boundary = (prototypes - features.permute(0, 2, 3, 1))[counted].square().mean()

    relations = (-5 * distances(vectors[seen_objects])).softmax(1)
    found = (-distances(semantic.model(vectors[seen_objects]))).log_softmax(1)
    consistency = (relations * (relations.log() - found)).sum() / len(seen_objects)
    return cross_entropy, boundary, 0.1 * consistency


def theirs(name):
    """The name in their checkpoints of a weight of ours."""
    for own, their in (
        ("visual.trunk.backbone.network.", "backbone."),
        ("visual.head.aspp.", "aspp."),
        ("visual.head.block1.", "decoder.project."),
        ("visual.head.block2.", "decoder.last_conv."),
        ("classifier.", "decoder.pred_conv."),
        ("semantic.", "model."),
    ):
        if name.startswith(own):
            return name.replace(own, their, 1)
    raise AssertionError(name)


def small_official() -> Recipe:
    """The recipe with ResNet-50, eight channels and generated pictures: two epochs of two steps."""
    changes = {
        "data": {"kind": "scenes", "protocol": None, "train_count": 4, "val_count": 1, "size": 64, "workers": 0},
        "semantics": {"vectors": "glove"},
        "model": {"backbone": "resnet50", "weights": "none", "head": {"channels": 8}},
        "train": {"epochs": 2, "batch_size": 2, "precision": "64-true", "accelerator": "cpu"},
    }
    return recipe.load("official-joem", changes)


class Momentum:
    """SGD with momentum .9 and weight decay 1e-4; ASPP, decoder and classifier ten times faster."""

    def __init__(self, net):
        self.net, self.velocity = net, {}

    def step(self, rate):
        for name, weight in self.net.named_parameters():
            gradient = weight.grad + 1e-4 * weight
            self.velocity[name] = 0.9 * self.velocity[name] + gradient if name in self.velocity else gradient
            weight.sub_(rate * (1 if name.startswith("backbone.") else 10) * self.velocity[name])


class Adam:
    def __init__(self, net):
        self.net, self.count = net, 0
        self.first, self.second = ({name: 0.0 for name, _ in net.named_parameters()} for _ in range(2))

    def step(self, rate):
        self.count += 1
        for name, weight in self.net.named_parameters():
            self.first[name] = 0.9 * self.first[name] + 0.1 * weight.grad
            self.second[name] = 0.999 * self.second[name] + 0.001 * weight.grad**2
            mean, square = self.first[name] / (1 - 0.9**self.count), self.second[name] / (1 - 0.999**self.count)
            weight.sub_(rate * mean / (square.sqrt() + 1e-8))


@pytest.mark.slow
def test_steps_of_official_are_those_of_the_authors_code():
    run = make_run(small_official())
    assert (run.steps_per_epoch, run.steps) == (2, 4)
    method, vocabulary = run.model.method, run.problem.vocabulary
    for each in method.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0
    net = AuthorsNetwork(len(vocabulary), 8, "resnet50").double().train()
    net.backbone.eval()
    semantic = AuthorsSemantic(50, 8).double()
    weights = {theirs(name): value.clone() for name, value in method.state_dict().items()}
    net.load_state_dict({name: value for name, value in weights.items() if not name.startswith("model.")})
    semantic.load_state_dict({name: value for name, value in weights.items() if name.startswith("model.")})
    vectors = run.model.vectors.double()
    assert vectors.norm(dim=1).max() == pytest.approx(1.0, abs=1e-6)  # over all classes, not the seen ones
    seen = [index for index in vocabulary.seen_indices if vocabulary.names[index] != "background"]
    visual, words = Momentum(net), Adam(semantic)
    for step in (0, 3):  # the last one is in the second epoch
        pictures = torch.randn(2, 3, HEIGHT, WIDTH, dtype=torch.float64)
        blocks = torch.tensor([*vocabulary.seen_indices, VOID])[torch.randint(len(vocabulary.seen) + 1, (2, 5, 6))]
        labels = nearest(blocks, HEIGHT, WIDTH)
        terms = objective(net, semantic, pictures, labels, vectors, seen)
        net.zero_grad()
        semantic.zero_grad()
        sum(terms).backward()
        with torch.no_grad():
            visual.step(2.5e-4 * (1 - (step // 2) / 2) ** 0.9)
            words.step(2e-4)
        before = {name: value.clone() for name, value in method.state_dict().items()}
        run.step = step
        found = run.train_step(pictures, labels)
        expected = dict(zip(("ce", "bar", "sc"), terms, strict=True))
        for name, value in expected.items():  # Fabric gives terms in single precision
            assert float(found[name]) == pytest.approx(value.item(), rel=1e-6), (step, name)
        after = {**net.state_dict(), **semantic.state_dict()}
        for name, value in method.state_dict().items():
            moved, expected_move = ((each - before[name]).double() for each in (value, after[theirs(name)]))
            assert (moved - expected_move).norm() <= 1e-5 * expected_move.norm(), (step, name)
