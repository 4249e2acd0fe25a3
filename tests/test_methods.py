"""One contract that every method keeps, and every loss of the compared systems against a slow loop."""

import math
import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import data, engine, losses, methods
from joem.losses import compared
from joem.engine import training
from joem.engine.model import Model
from joem.engine.training import Interrupted
from joem.errors import BadUsage, LeakageError
from joem.methods.classifier import as_prototypes
from joem.methods.generative import by_class
from joem.methods.zs3net import touching
from joem.segmenter import Segmenter

NAMES = sorted(methods.METHODS)
AT_ONCE = [name for name in NAMES if not methods.get(name).new_class_stages and not methods.get(name).sees_every_mask]
RETRAINED = [name for name in NAMES if methods.get(name).new_class_stages]


@pytest.fixture
def recipe(tiny):
    """Two steps per stage, with dropout, so that the random numbers matter."""
    tiny.data = replace(tiny.data, train_count=8, val_count=2, crop=32, size=32)
    tiny.model.dropout = 0.2
    tiny.train = replace(tiny.train, batch_size=4, epochs=1, save_every=0)
    tiny.method.generator.samples = 16
    tiny.method.generator.noise = 6
    tiny.method.generator.hidden = 12
    tiny.method.generator.alternate = 1
    return tiny


def trained(recipe, name, out=None, **options):
    recipe = deepcopy(recipe)
    recipe.method.name = name
    return engine.train(recipe, out, progress=False, **options)


def assert_same_weights(a, b):
    a, b = a.method.state_dict(), b.method.state_dict()
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_trains_repeatably_resumes_exactly_saves_and_segments(recipe, name, tmp_path, monkeypatch):
    whole = trained(recipe, name, tmp_path / "whole")
    stages = whole.method.stages
    steps = 2 * len(stages)
    assert_same_weights(trained(recipe, name), whole)
    # Interrupted in the middle of the last stage, and exactly where two stages meet.
    for stop in {steps - 1, steps - 2} - {0}:
        original = training._Run.train_step

        def train_step(run, *batch, stop=stop, original=original):
            run.stop = run.step + 1 == stop
            return original(run, *batch)

        with monkeypatch.context() as patch:
            patch.setattr(training._Run, "train_step", train_step)
            with pytest.raises(Interrupted, match=f"step {stop} of {steps}"):
                trained(recipe, name, tmp_path / str(stop))
        torch.rand(7)
        assert_same_weights(trained(recipe, name, tmp_path / str(stop), resume=True), whole)
    loaded = Model.load(tmp_path / "whole")
    assert_same_weights(loaded, whole)
    picture = engine.open_problem(recipe.data).val[0].image
    some = (whole.vocabulary.unseen[0], whole.vocabulary.names[0], whole.vocabulary.seen[-1])
    for names in (None, some):
        results = [Segmenter(model).encode(picture).segment(names, "nn").labels for model in (whole, loaded)]
        assert results[0].shape == picture.shape[1:]
        assert torch.equal(*results)


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_trains_what_it_says_and_nothing_else(recipe, name):
    recipe.method.name = name
    run = training._Run(recipe, engine.open_problem(recipe.data), training._fabric(recipe.train), None)
    method = run.model.method
    batches = run.batches()
    for number, stage in enumerate(method.stages):
        run.begin(number)
        run.step = run.ends[number] - 2
        before = {key: value.clone() for key, value in method.named_parameters()}
        batch_statistics = {key: value.clone() for key, value in method.visual.named_buffers()}
        run.train_step(*next(batches))
        changed = {key for key, value in method.named_parameters() if not torch.equal(value, before[key])}
        learning = {key for key, value in method.named_parameters() if value.requires_grad}
        assert changed, stage
        assert changed <= learning
        if not any(key.startswith("visual.") for key in learning):
            assert all(torch.equal(value, batch_statistics[key]) for key, value in method.visual.named_buffers())


@pytest.mark.parametrize("name", NAMES)
def test_unseen_masks_are_stopped_but_for_the_upper_bound(recipe, name, monkeypatch):
    problem = engine.open_problem(recipe.data)
    unseen = problem.vocabulary.unseen_indices[0]

    class Liar(data.Remembered):
        """Says in the scan that there is no unseen pixel, then brings one."""

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            sample.labels[:4] = unseen
            return sample

    lying = replace(problem, train=Liar(problem.train))
    if methods.get(name).sees_every_mask:
        assert name == "supervised"
        trained(recipe, name, problem=lying)
        return
    for _ in range(2):
        with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
            trained(recipe, name, problem=lying)
        # the second time, the dataset's own guard is gone and the loop's must do
        monkeypatch.setattr(sys.modules["joem.data.guard"], "guard", lambda labels, vocabulary: None)


@pytest.mark.parametrize("name", NAMES)
def test_unseen_words_come_in_through_their_door_only(recipe, name):
    recipe.method.name = name
    model = Model.create(recipe, engine.open_problem(recipe.data).vocabulary)
    unseen = list(model.vocabulary.unseen_indices)
    assert model.vectors[unseen].any()
    assert bool(model.method.vectors[unseen].any()) == model.method.uses_unseen_words
    assert model.method.uses_unseen_words == (name in RETRAINED)


@pytest.mark.parametrize("name", AT_ONCE)
def test_words_are_enough_for_a_new_class(recipe, name):
    model = trained(recipe, name)
    picture = torch.randint(0, 256, (3, 32, 40), dtype=torch.uint8)
    result = Segmenter(model).encode(picture).segment(["background", "orange dog"], "nn")
    assert result.unseen == ("orange dog",)
    larger = engine.add_class(model, "orange dog", engine.open_problem(recipe.data), progress=False)
    names = (*model.vocabulary.names, "orange dog")
    assert larger.vocabulary.names == names
    assert torch.equal(larger.prototypes(), model.prototypes(names))


@pytest.mark.parametrize("name", RETRAINED)
def test_methods_that_must_train_again_for_a_new_class_say_so_and_do(recipe, name):
    problem = engine.open_problem(recipe.data)
    model = trained(recipe, name, problem=problem)
    with pytest.raises(BadUsage, match=f"orange dog: no such class.*{name} has to train its stage.*add_class"):
        model.prototypes(("background", "orange dog"))
    larger = engine.add_class(model, "orange dog", problem, progress=False)
    assert larger.vocabulary.unseen[-1] == "orange dog"
    assert len(larger.prototypes()) == len(model.vocabulary) + 1
    encoder = model.method.visual.state_dict()
    assert all(torch.equal(value, encoder[key]) for key, value in larger.method.visual.state_dict().items())


def test_the_upper_bound_sees_unseen_classes_and_cannot_take_a_word(recipe):
    problem = engine.open_problem(recipe.data, every_mask=True)
    shown = data.class_presence(problem.train)[:, list(problem.vocabulary.unseen_indices)]
    assert shown.any()
    model = trained(recipe, "supervised")
    with pytest.raises(BadUsage, match="needs masks of a class and a whole new training"):
        model.prototypes(("orange dog",))
    with pytest.raises(BadUsage, match="a new class needs masks"):
        engine.add_class(model, "orange dog", problem)


def test_stage_lengths_are_shares_of_the_epochs(recipe, tmp_path):
    recipe.train.epochs, recipe.method.stage_lengths = 2, {"semantic": 0.5}
    recipe.train.log_every = 1
    trained(recipe, "two_stage", tmp_path)
    lines = {path.name: len(path.read_text().splitlines()) - 1 for path in tmp_path.glob("metrics*.csv")}
    assert lines == {"metrics-visual.csv": 4, "metrics-semantic.csv": 2}
    recipe.method.stage_lengths = {"sematic": 1.0}
    with pytest.raises(BadUsage, match=r"Unknown stage of two_stage 'sematic'.*Did you mean 'semantic'"):
        trained(recipe, "two_stage")


def test_every_stage_has_its_own_schedule(recipe):
    recipe.method.name = "two_stage"
    recipe.train.semantic.power = 1.0
    run = training._Run(recipe, engine.open_problem(recipe.data), training._fabric(recipe.train), None)
    run.begin(1)
    run.step = 2
    run.train_step(*next(run.batches()))
    assert run.optimisers["semantic"].param_groups[0]["lr"] == pytest.approx(recipe.train.semantic.lr)
    run.step = 3
    run.train_step(*next(run.batches()))
    assert run.optimisers["semantic"].param_groups[0]["lr"] == pytest.approx(recipe.train.semantic.lr / 2)


@given(st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=30)
def test_prototypes_of_a_classifier_decide_as_its_logits(seed):
    random = torch.Generator().manual_seed(seed)
    weights, biases = torch.randn(5, 3, generator=random).double(), torch.randn(5, generator=random).double()
    points = 3 * torch.randn(40, 3, generator=random).double()
    found = torch.cdist(torch.nn.functional.pad(points, (0, 1)), as_prototypes(weights, biases)).argmin(dim=1)
    assert torch.equal(found, (points @ weights.T + biases).argmax(dim=1))


@pytest.mark.parametrize(
    ("name", "option"), [("zs3net", "graph_context"), ("zs3net", "self_training"), ("spnet", "uncertainty")]
)
def test_options_train_and_decide(recipe, name, option):
    if option == "uncertainty":
        recipe.method.uncertainty = True
    elif option == "self_training":
        recipe.method.generator.self_training = 0.5
    else:
        recipe.method.generator.graph_context = True
    problem = engine.open_problem(recipe.data)
    model = trained(recipe, name, problem=problem)
    assert model.method.needs_maps == (name == "zs3net")
    assert ("self_train" in model.method.stages) == (option == "self_training")
    larger = engine.add_class(model, "orange dog", problem, progress=False)
    assert torch.isfinite(larger.prototypes()).all()


def test_a_picture_without_labels_is_no_trouble(recipe):
    """Every stage of every method gives finite gradients where nothing is labelled."""
    for name in NAMES:
        recipe.method.name = name
        model = Model.create(recipe, engine.open_problem(recipe.data).vocabulary)
        for stage in model.method.stages:
            model.method.begin(stage)
            terms, _ = model.method(torch.randn(2, 3, 32, 32), torch.full((2, 32, 32), 255))
            torch.stack(list(terms.values())).sum().backward()
            for key, value in model.method.named_parameters():
                assert value.grad is None or torch.isfinite(value.grad).all(), (name, stage, key)


def test_self_training_labels_the_most_confident_void_pixels_only(recipe):
    recipe.method.name = "zs3net"
    recipe.method.generator.self_training = 0.25
    model = Model.create(recipe, engine.open_problem(recipe.data).vocabulary)
    unseen = list(model.vocabulary.unseen_indices)
    features = torch.randn(1, 8, 6, 6)
    with torch.no_grad():
        model.method.classifier.bias[unseen] += 2.0
    labels = torch.full((1, 6, 6), 255)
    labels[0, :2] = 0
    found = model.method._pseudo_labels(features, labels)
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


def test_classes_touch_where_their_pixels_are_neighbours():
    picture = torch.tensor([[3, 3, 255, 7], [3, 9, 9, 255], [255, 255, 9, 7]])
    nodes, adjacency = touching(picture)
    assert nodes.tolist() == [3, 7, 9]
    expected = [[1 / 2, 0, 1 / 2], [0, 1 / 2, 1 / 2], [1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(adjacency, torch.tensor(expected))


def test_by_class_draws_only_pixels_of_the_class():
    labels = torch.randint(0, 4, (2, 5, 6))
    labels[0, 0] = 255
    features = torch.stack([labels.float(), torch.arange(60.0).reshape(2, 5, 6)], dim=1)
    found = by_class(features, labels, most=4)
    assert sorted(found) == sorted(set(labels.flatten().tolist()) - {255})
    for label, rows in found.items():
        assert (rows[:, 0] == label).all()
        assert len(rows) == len(set(rows[:, 1].tolist())) == min(4, int((labels == label).sum()))


# Losses against loops written from their equations.


def random_case(seed):
    torch.manual_seed(seed)
    labels = torch.randint(0, 4, (2, 3, 5))
    labels[torch.rand(2, 3, 5) < 0.2] = 255
    return labels


SEEDS = st.integers(0, 10_000)


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_cosine_regression_is_the_mean_over_labelled_pixels(seed):
    labels, features, vectors = random_case(seed), torch.randn(2, 6, 3, 5), torch.randn(4, 6)
    total, count = 0.0, 0
    for b in range(2):
        for y in range(3):
            for x in range(5):
                if labels[b, y, x] != 255:
                    v, s = features[b, :, y, x].tolist(), vectors[labels[b, y, x]].tolist()
                    dot = sum(p * q for p, q in zip(v, s, strict=True))
                    total += 1 - dot / math.sqrt(sum(p * p for p in v) * sum(q * q for q in s))
                    count += 1
    assert float(compared.cosine_regression(features, labels, vectors)) == pytest.approx(
        total / max(count, 1), abs=1e-5
    )
    large = labels.repeat_interleave(2, 1).repeat_interleave(2, 2)
    assert float(compared.cosine_regression(features, large, vectors)) == pytest.approx(total / max(count, 1), abs=1e-5)


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_attenuated_cross_entropy_follows_its_equation(seed):
    labels, logits, u = random_case(seed), torch.randn(2, 4, 3, 5), torch.randn(2, 3, 5)
    seen = [0, 2, 3]
    total, count = 0.0, 0
    for b in range(2):
        for y in range(3):
            for x in range(5):
                label = int(labels[b, y, x])
                if label in seen:
                    z = sum(math.exp(logits[b, j, y, x]) for j in seen)
                    entropy = -math.log(math.exp(logits[b, label, y, x]) / z)
                    total += math.exp(-u[b, y, x]) * entropy + float(u[b, y, x]) / 2
                    count += 1
    found = compared.attenuated_cross_entropy(logits, labels, seen, u)
    assert float(found) == pytest.approx(total / max(count, 1), abs=1e-4)


def test_attenuated_cross_entropy_has_finite_gradients_beside_unseen_classes():
    logits, u = torch.randn(1, 3, 2, 2, requires_grad=True), torch.zeros(1, 2, 2, requires_grad=True)
    labels = torch.tensor([[[0, 1], [255, 2]]])
    compared.attenuated_cross_entropy(logits, labels, [0, 1], u).backward()
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[:, 2].any()
    assert not u.grad[0, 1].any()


@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_mmd_is_the_double_sum_over_kernels(seed, n, m):
    torch.manual_seed(seed)
    x, y = torch.randn(n, 3).double(), 2 * torch.randn(m, 3).double() + 1

    def mean_kernel(a, b):
        values = [
            sum(math.exp(-float((p - q).square().sum()) / (2 * s)) for s in (2, 5, 10, 20, 40, 80))
            for p in a
            for q in b
        ]
        return sum(values) / len(values)

    expected = mean_kernel(x, x) - 2 * mean_kernel(x, y) + mean_kernel(y, y)
    assert float(compared.squared_mmd(x, y)) == pytest.approx(expected, abs=1e-9)
    assert float(compared.moment_matching(x, y)) == pytest.approx(math.sqrt(max(expected, 1e-8)), abs=1e-6)


@given(SEEDS, st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_fitted_kernels_follow_the_mean_squared_distance(seed, n):
    torch.manual_seed(seed)
    x = 7 * torch.randn(n, 3).double()
    mean = sum(float((a - b).square().sum()) for a in x for b in x) / n**2
    expected = [s * mean / 20 if mean else s for s in (2, 5, 10, 20, 40, 80)]
    assert list(compared.fitted_kernels(x)) == pytest.approx(expected, rel=1e-5)


def test_features_far_apart_teach_a_generator_only_by_kernels_that_fit():
    torch.manual_seed(0)
    target = 20 * torch.randn(60, 8) + 100
    gradients = {}
    for name, kernels in {"own": compared.KERNELS, "fitted": compared.fitted_kernels(target)}.items():
        made = torch.zeros(60, 8).requires_grad_()
        compared.moment_matching(target, made, kernels).backward()
        gradients[name] = float(made.grad.norm())
    assert gradients["own"] < 1e-6 < 1e-4 < gradients["fitted"]


def test_moment_matching_of_equal_samples_has_a_finite_gradient():
    x = torch.randn(5, 3, requires_grad=True)
    compared.moment_matching(x, x.detach().clone()).backward()
    assert torch.isfinite(x.grad).all()


def test_moment_matching_moves_samples_towards_the_target():
    target, made = torch.randn(60, 2) + 3, torch.randn(60, 2).requires_grad_()
    optimiser = torch.optim.Adam([made], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        compared.moment_matching(target, made).backward()
        optimiser.step()
    assert (made.mean(dim=0) - target.mean(dim=0)).abs().max() < 0.3


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_weighted_cross_entropy_divides_by_the_weights(seed):
    torch.manual_seed(seed)
    logits, labels, weights = torch.randn(7, 3), torch.randint(0, 3, (7,)), torch.rand(3) + 0.1
    total = norm = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total -= float(weights[label]) * math.log(math.exp(row[label]) / sum(map(math.exp, row)))
        norm += float(weights[label])
    assert float(compared.weighted_cross_entropy(logits, labels, weights)) == pytest.approx(total / norm, abs=1e-5)


@given(SEEDS, st.integers(1, 5))
@settings(deadline=None, max_examples=15)
def test_pairwise_relations_compares_every_pair_once(seed, count):
    torch.manual_seed(seed)
    words, means = torch.randn(count, 3).double(), torch.randn(count, 4).double()

    def cosine(rows, i, j):
        middle = rows.mean(dim=0)
        a, b = rows[i] - middle, rows[j] - middle
        return float(a @ b) / max(float(a.norm() * b.norm()), 1e-12)

    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    expected = sum((cosine(words, *pair) - cosine(means, *pair)) ** 2 for pair in pairs) / max(len(pairs), 1)
    assert float(compared.pairwise_relations(words, means)) == pytest.approx(expected, abs=1e-9)


def test_adversarial_and_kl_terms_follow_their_equations():
    real, made = torch.randn(5, 1), torch.randn(4, 1)
    expected = sum((1 - v) ** 2 for v in real.flatten().tolist()) / 5 + sum(v**2 for v in made.flatten().tolist()) / 4
    assert float(compared.discriminator_loss(real, made)) == pytest.approx(expected, rel=1e-5)
    expected = sum((1 - v) ** 2 for v in made.flatten().tolist()) / 4
    assert float(compared.fooling_loss(made)) == pytest.approx(expected, rel=1e-5)
    mean, log_variance = torch.randn(3, 2), torch.randn(3, 2)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).mean()
    torch.testing.assert_close(compared.divergence_from_normal(mean, log_variance), divergence)


def test_the_generator_of_cagnet_does_not_move_its_discriminator_by_fooling_it(recipe):
    """The two players' gradients, computed in one pass, equal those of two separate passes."""
    recipe.method.name = "cagnet"
    recipe.model.dropout = recipe.model.aspp_dropout = 0.0
    model = Model.create(recipe, engine.open_problem(recipe.data).vocabulary)
    method = model.method.eval()
    images, labels = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))
    torch.manual_seed(1)
    terms, _ = method(images, labels)
    terms["adversarial"].backward()
    found = {key: value.grad.clone() for key, value in method.discriminator.named_parameters()}
    assert all(value.grad is None for value in method.visual.parameters())
    method.zero_grad()
    torch.manual_seed(1)
    with torch.no_grad():
        real = method.encoded(images)
        small = losses.resized(labels, real.shape[2:])
        mean, log_variance = (code.movedim(1, -1).flatten(0, 2) for code in method.context(real))
        code = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        made = method.generator(torch.cat([method.vectors[small.flatten()], code], dim=1))
    real = real.movedim(1, -1).flatten(0, 2)
    compared.discriminator_loss(method.discriminator(real), method.discriminator(made)).backward()
    for key, value in method.discriminator.named_parameters():
        torch.testing.assert_close(found[key], value.grad)
