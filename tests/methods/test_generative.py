"""Systems that make features up: their options, the graph of touching classes, pseudo-labels, and two players."""

import math

import pytest
import torch

from conftest import fresh_model, make_run, make_small
from joem import engine, losses
from joem.errors import BadUsage
from joem.losses import compared
from joem.methods.cagnet import ContextualModule
from joem.methods.csrl import relations
from joem.methods.generative import by_class
from joem.methods.zs3net import touching
from joem.models import Hypercolumns


@pytest.mark.parametrize("options", [{"graph_context": True}, {"self_training": 0.5}])
def test_options_train_and_take_a_new_class(options):
    recipe = make_small("zs3net", **options)
    problem = engine.open_problem(recipe.data)
    model = engine.train(recipe, problem=problem)
    assert model.method.needs_maps
    assert ("self_train" in model.method.stages) == ("self_training" in options)
    larger = engine.add_class(model, "orange dog", problem)
    assert torch.isfinite(larger.prototypes()).all()


def test_a_graph_of_nothing_has_a_gradient_of_zeros():
    """As other processes wait for one."""
    run = make_run(make_small("zs3net", graph_context=True))
    images, labels = next(run.batches())
    run.begin(1)
    run.step = run.ends[0]
    terms, weight = run.module(images, torch.full_like(labels, 255))
    (terms["mmd"] * weight).backward()
    assert all(not each.grad.any() for each in run.model.method.generator.parameters())


def test_without_them_loose_pixels_will_do():
    assert not fresh_model(make_small("zs3net")).method.needs_maps
    assert fresh_model(make_small("zs3net_joem")).method.needs_maps


def test_self_training_labels_the_most_confident_void_pixels_only():
    model = fresh_model(make_small("zs3net", self_training=0.25))
    unseen = list(model.vocabulary.unseen_indices)
    features = torch.randn(1, 8, 6, 6)
    with torch.no_grad():
        model.method.classifier.bias[unseen] += 2.0
    labels = torch.full((1, 6, 6), 255)
    labels[0, :2] = 0
    found = model.method._pseudo_labels(features, labels)  # no loss shows which pixels were taken
    assert torch.equal(found[0, :2], labels[0, :2])
    probabilities = model.method.classifier(features).softmax(dim=1)[0].detach()
    void = []
    for row in range(2, 6):
        for column in range(6):
            confidence, best = probabilities[:, row, column].max(dim=0)
            if int(best) in unseen:
                void.append((confidence.item(), row, column, int(best)))
    void.sort(reverse=True)
    expected = {(row, column): best for _, row, column, best in void[: -(-len(void) // 4)]}
    assert expected
    named = {(r, c): int(found[0, r, c]) for r in range(2, 6) for c in range(6) if found[0, r, c] != 255}
    assert named == expected


def test_a_share_of_pixels_is_at_most_all():
    with pytest.raises(BadUsage, match=r"method\.self_training: Input should be less than or equal to 1, got 1\.5"):
        make_small("zs3net", self_training=1.5)


def test_classes_touch_where_their_pixels_are_neighbours():
    picture = torch.tensor([[3, 3, 255, 7], [3, 9, 9, 255], [255, 255, 9, 7]])
    nodes, adjacency = touching(picture)
    assert nodes.tolist() == [3, 7, 9]
    expected = [[1 / 2, 0, 1 / 2], [0, 1 / 2, 1 / 2], [1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(adjacency, torch.tensor(expected))


def test_the_graph_of_classes_has_no_edge_to_itself():
    vectors = torch.randn(5, 3)
    edges = relations(vectors, 2.0)
    for i in range(5):
        near = [0.0 if i == j else float((-2.0 * (vectors[i] - vectors[j]).norm()).exp()) for j in range(5)]
        torch.testing.assert_close(edges[i], torch.tensor(near) / sum(near))
    assert relations(vectors[:1], 2.0).tolist() == [[0.0]]


def test_by_class_draws_only_pixels_of_the_class():
    labels = torch.randint(0, 4, (2, 5, 6))
    labels[0, 0] = 255
    features = torch.stack([labels.float(), torch.arange(60.0).reshape(2, 5, 6)], dim=1)
    found = by_class(features, labels, most=4)
    assert sorted(found) == sorted(set(labels.flatten().tolist()) - {255})
    for label, rows in found.items():
        assert (rows[:, 0] == label).all()
        assert len(rows) == len(set(rows[:, 1].tolist())) == min(4, int((labels == label).sum()))


def test_made_up_unseen_features_count_by_their_weight():
    """The classifier's last stage against a loop over real and made-up samples."""
    method = fresh_model(make_small("zs3net", unseen_weight=3.0)).method.eval()
    method.begin("transfer")
    unseen, (a, b, c, *_) = method.vocabulary.unseen_indices, method.vocabulary.seen_indices
    features, labels = torch.randn(1, 8, 2, 3), torch.tensor([[[a, 255, b], [c, b, 255]]])
    made = torch.randn(method.settings.samples, len(unseen), 8)
    method.make = lambda classes, count, labels: made
    with torch.no_grad():
        terms, weight = method.classify(features, labels)
        rows = [(features[0, :, y, x], int(labels[0, y, x]), 1.0) for y, x in (labels[0] != 255).nonzero().tolist()]
        rows += [(sample[k], label, 3.0) for sample in made for k, label in enumerate(unseen)]
        total = 0.0
        for row, label, share in rows:
            logits = method.classifier.weight[:, :, 0, 0] @ row + method.classifier.bias
            total -= share * float(logits.log_softmax(0)[label])
    assert float(weight) == pytest.approx(sum(share for *_, share in rows))
    assert float(terms["ce"]) == pytest.approx(total / sum(share for *_, share in rows), rel=1e-4)


def test_generator_and_discriminator_of_cagnet_learn_apart_from_each_other_and_from_the_rest():
    """Their gradients, computed in one pass with all others, equal those of one pass for each of them."""
    recipe = make_small("cagnet", samples=1000).changed(model={"dropout": 0.0, "head": {"aspp_dropout": 0.0}})
    method = fresh_model(recipe).method.eval()
    images, labels = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))
    torch.manual_seed(1)
    terms, _ = method(images, labels)
    (terms["adversarial"] + terms["content"]).backward()
    players = ("generator", "discriminator")
    assert all(each.grad is None for key, each in method.named_parameters() if not key.startswith(players))
    found = {name: [each.grad.clone() for each in getattr(method, name).parameters()] for name in players}
    torch.manual_seed(1)
    with torch.no_grad():
        encoded = method.visual(images)
        small = losses.resized(labels, encoded.shape[2:]).flatten()
        mean, log_variance = method.context(encoded, step=4)  # features of stride 4, a last map of stride 16
        code = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        real = compared.modulated(encoded, method.modulation(code)).movedim(1, -1).flatten(0, 2)
        code = code.movedim(1, -1).flatten(0, 2)
    made = method.generator(torch.cat([method.words(small), code], dim=1))
    pairs = [(real[small == label], made[small == label]) for label in small.unique()]
    content = sum(compared.moment_matching(*pair, compared.CAGNET_KERNELS) for pair in pairs) / len(pairs)
    generator = 50 * content + (1 - method.discriminator(made)).square().mean()
    judged, judged_made = method.discriminator(real), method.discriminator(made.detach())
    discriminator = (1 - judged).square().mean() + judged_made.square().mean()
    for name, objective in (("generator", generator), ("discriminator", discriminator)):
        expected = torch.autograd.grad(objective, list(getattr(method, name).parameters()))
        torch.testing.assert_close(found[name], list(expected), atol=1e-5, rtol=1e-3)


def test_codes_of_cagnet_learn_by_cross_entropy_and_kl_alone():
    method = fresh_model(make_small("cagnet")).method
    images, labels = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))
    for learns, term in ((True, "ce"), (True, "kl"), (False, "content"), (False, "adversarial")):
        method.zero_grad()
        method(images, labels).terms[term].backward()
        assert (method.context.scales[0].weight.grad is not None) == learns
        assert any(each.grad is not None for each in method.visual.parameters()) == learns


def test_surroundings_of_cagnet_are_as_wide_where_features_are_finer():
    """Every other position of features twice as fine has the code that it has among those positions alone."""
    context = ContextualModule(channels=3, hidden=4, size=2)
    fine = torch.randn(1, 3, 14, 12)
    with torch.no_grad():
        for found, expected in zip(context(fine, step=2), context(fine[:, :, ::2, ::2]), strict=True):
            torch.testing.assert_close(found[:, :, ::2, ::2], expected)


def test_surroundings_of_cagnet_are_counted_in_positions_of_the_last_map():
    """At which squares of stored maps are taken; the features of a picture are finer."""
    method, steps = fresh_model(make_small("cagnet")).method.eval(), []
    method.visual.forward = lambda inputs: torch.randn(1, 8, 8, 8)
    method.context.forward = lambda features, step: steps.append(step) or (torch.zeros(1, 6, 8, 8),) * 2
    for inputs in (Hypercolumns(torch.randn(1, 8, 8, 8)), torch.zeros(1, 3, 32, 32)):
        method.encoded(inputs)
    assert steps == [1, method.trunk.strides[-1] // method.stride] != [1, 1]


@pytest.mark.parametrize("name", ["zs3net", "csrl", "cagnet"])
def test_a_generator_uses_its_noise_at_test_time_as_in_training(name):
    """Dropout is part of the noise: made-up features keep their spread when the method is in evaluation mode."""
    method = fresh_model(make_small(name, noise=16, hidden=32)).method
    labels = torch.zeros(1, 4, 4, dtype=torch.long)
    spreads = []
    for mode in (True, False):
        torch.manual_seed(0)
        method.train(mode)
        spreads.append(method.make([0, 1], 64, labels).var(dim=0).sum())
    torch.testing.assert_close(*spreads)
    assert spreads[0] > 0


def test_generator_and_a_fresh_classifier_learn_from_the_same_batches():
    run = make_run(make_small("zs3net"))
    method = run.model.method
    images, labels = next(run.batches())
    first = method.classifier.weight.clone()
    run.train_step(images, labels)
    assert not torch.equal(method.classifier.weight, first)
    run.begin(1)
    assert torch.equal(method.classifier.weight, first)  # as it was before anything was learned
    run.step = run.ends[0]
    terms, _ = run.module(images, labels)
    assert set(terms) == {"mmd", "ce"}
    terms["ce"].backward(retain_graph=True)
    assert all(each.grad is None or not each.grad.any() for each in method.generator.parameters())
    classifier = method.classifier.weight.grad.clone()
    terms["mmd"].backward()
    torch.testing.assert_close(method.classifier.weight.grad, classifier)
    assert any(each.grad.any() for each in method.generator.parameters())


def test_words_of_cagnet_are_as_long_as_its_code():
    method = fresh_model(make_small("cagnet", noise=25)).method
    lengths = method.words(torch.arange(len(method.vocabulary))).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 5.0))


def test_features_of_cagnet_are_modulated_by_their_surroundings():
    method = fresh_model(make_small("cagnet")).method.eval()
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        h = method.visual(images)
        z = method.modulation(method.context(h, method.trunk.strides[-1] // method.stride)[0])
        found = method.encoded(images)
    for c, y, x in ((0, 0, 0), (3, 1, 2), (7, 3, 3)):
        value = float(h[0, c, y, x])
        value += value / (1 + math.exp(-float(z[0, c, y, x])))
        assert float(found[0, c, y, x]) == pytest.approx(1 / (1 + math.exp(-value)), abs=1e-5)


def test_made_up_features_of_cagnet_count_by_their_weight():
    method = fresh_model(make_small("cagnet", unseen_weight=7.0, samples=3)).method.eval()
    made = torch.rand(3, len(method.vocabulary), 8)
    method.make = lambda classes, count, labels=None: made
    method.begin("finetune")
    with torch.no_grad():
        found = float(method._made_up().terms["ce"])
        total = weights = 0.0
        for sample in made:
            for label, row in enumerate(sample):
                logits = method.classifier.weight[:, :, 0, 0] @ row + method.classifier.bias
                weight = 7.0 if label in method.vocabulary.unseen_indices else 1.0
                total -= weight * float(logits.log_softmax(0)[label])
                weights += weight
    assert found == pytest.approx(total / weights, rel=1e-4)


def test_the_content_term_of_cagnet_weighs_fifty():
    method = fresh_model(make_small("cagnet")).method
    other = fresh_model(make_small("cagnet", content_weight=1.0)).method
    other.load_state_dict(method.state_dict())
    images, labels = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))
    terms = []
    for each in (method, other):
        torch.manual_seed(0)
        terms.append(each.eval()(images, labels).terms)
    torch.testing.assert_close(terms[0]["content"], 50 * terms[1]["content"])


def test_a_deeper_generator_has_the_layers_that_it_is_given():
    deep = fresh_model(make_small("cagnet", deep=(9, 7, 5))).method.generator
    sizes = [each.out_features for each in deep if isinstance(each, torch.nn.Linear)]
    assert sizes == [9, 7, 5, 8]
