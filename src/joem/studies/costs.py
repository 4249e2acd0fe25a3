"""What a job would cost: every training with its steps, and hours from a step that was measured here."""

import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from joem import data, engine, parallel, protocols
from joem.engine import Problem
from joem.engine.loading import stage_steps
from joem.engine.training import Run
from joem.errors import BadUsage
from joem.methods import get
from joem.models import HEADS
from joem.recipe import Recipe
from joem.settings import DataSettings
from joem.studies.request import Training
from joem.vocabulary import Vocabulary

_PATIENCE = 5.0  # seconds: a quicker step is taken twice, as the first one also fetches memory
_STEPS = 100  # of the training that a step is taken from: no stage of it is empty
_LISTED = {("voc", "train_aug"): 10582, ("voc", "train"): 1464, ("context", "train"): 4998}


@dataclass(frozen=True)
class Measured:
    """One real step of every stage of a recipe's method.

    Attributes:
        method: its name.
        seconds: stage -> seconds of a step on `batch` pictures.
        batch: how many pictures.
        device: where it was measured.
    """

    method: str
    seconds: dict[str, float]
    batch: int
    device: str

    def scaled(self, recipe: Recipe) -> dict[str, float]:
        """Stage -> seconds of a step of a recipe, whose devices share its batch."""
        share = recipe.train.batch_size / (recipe.train.devices * recipe.train.nodes)
        return {stage: seconds * share / self.batch for stage, seconds in self.seconds.items()}


@dataclass(frozen=True)
class Cost:
    """A training of a plan.

    Attributes:
        what: the protocol, the row, and the seed or the fold.
        steps: of all stages together.
        hours: how long these take; what is done takes none.
        done: whether it is there already.
    """

    what: str
    steps: int
    hours: float
    done: bool


@dataclass(frozen=True)
class Plan:
    """All trainings of a job, and what their hours come from."""

    costs: list[Cost]
    measured: list[Measured]
    notes: list[str]

    @property
    def hours(self) -> float:
        """How long what is not done takes, one training after the other."""
        return sum(cost.hours for cost in self.costs)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        costs, measured = ([vars(each) for each in part] for part in (self.costs, self.measured))
        return {"hours": self.hours, "trainings": costs, "measured": measured, "notes": self.notes}


def plan(trainings: Sequence[Training], step_seconds: float | None = None) -> Plan:
    """The steps and hours of trainings; nothing is trained or written.

    A fold is taken to have as many steps as the whole training, which it has but for rounding to epochs.

    Args:
        trainings: what to train.
        step_seconds: how long one step takes, wherever the trainings will run; if None, a step of every method is
            measured here, and scaled linearly to the batch of one device.
    """
    if step_seconds is not None and not step_seconds > 0:
        raise BadUsage(f"A step takes more than no time, got --step-seconds {step_seconds}.")
    measured: list[Measured] = []
    of_a_step: dict[str, dict[str, float]] = {}  # a network with its method -> stage -> seconds
    pictures: dict[str, int] = {}
    notes: dict[str, None] = {}
    costs = []
    for what, recipe, file in ((each.what, each.recipe, each.file) for each in trainings):
        source = repr(recipe.data)
        if source not in pictures:
            pictures[source], note = _training_pictures(recipe)
            notes |= dict.fromkeys([note] if note else [])
        network = repr((recipe.model, recipe.method.name, recipe.data.crop, recipe.train.batch_size))
        if network not in of_a_step and step_seconds is not None:
            of_a_step[network] = dict.fromkeys(_stages(recipe), step_seconds)
        elif network not in of_a_step:
            measured.append(measure(recipe))
            of_a_step[network] = measured[-1].scaled(recipe)
        steps = stage_steps(recipe, list(of_a_step[network]), pictures[source])
        seconds = sum(count * each for count, each in zip(steps, of_a_step[network].values(), strict=True))
        done = file.is_file()
        costs.append(Cost(what, sum(steps), 0.0 if done else seconds / 3600, done))
    return Plan(costs, measured, list(notes))


def measure(recipe: Recipe) -> Measured:
    """Take a step of every stage of a recipe on this machine, with untrained networks and generated pictures.

    On a CPU the batch is as small as the network allows; a GPU takes the share of one device, as small batches would
    leave it idle. Words come from GloVe, whatever the recipe's source, and the backbone has random weights: neither
    changes the time of a step.
    """
    devices = recipe.train.devices * recipe.train.nodes
    on_cpu = torch.device(parallel.device("auto")).type == "cpu"
    head = recipe.model.head
    batch = max(2, HEADS[head.name].least_batch if head else 1) if on_cpu else recipe.train.batch_size // devices
    with tempfile.TemporaryDirectory() as folder:
        small = recipe.changed(
            model={"weights": "none"},
            semantics={"vectors": "glove", "oov": "zero", "fit": "seen", "prompt": "{}"},
            data={"workers": 0, "scale": [1.0, 1.0]},
            train={
                "accelerator": "auto",
                "devices": 1,
                "nodes": 1,
                "strategy": "auto",
                "batch_size": batch,
                "steps": _STEPS,
                **({"accumulate": 1} if on_cpu else {}),
                **({"precision": "32-true"} if on_cpu and recipe.train.precision == "16-mixed" else {}),
                **({"cache": folder} if recipe.train.cache is not None else {}),
            },
        )
        fabric = engine.launched(small.train, get(recipe.method.name).rests)
        if fabric.device.type == "cpu":
            engine.reuse_freed_memory()  # as `engine.train` does
        run = Run(small, _generated(small, batch), fabric, None)
        seconds = {stage: _seconds(run, number) for number, stage in enumerate(run.stages)}
    name = torch.cuda.get_device_name(fabric.device) if fabric.device.type == "cuda" else platform.machine()
    threads = f", {torch.get_num_threads()} threads" if fabric.device.type == "cpu" else ""
    return Measured(recipe.method.name, seconds, batch, f"{fabric.device.type} ({name}{threads})")


def _seconds(run: Run, stage: int) -> float:
    """How long a step of a stage takes."""
    run.begin(stage)
    run.step = run.ends[stage] - 1
    batch = next(run.batches())
    seconds = float("inf")
    for _ in range(2):
        started = time.monotonic()
        run.train_step(*batch)
        if run.fabric.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = min(seconds, time.monotonic() - started)
        if seconds > _PATIENCE:
            break
    return seconds


def _generated(recipe: Recipe, count: int) -> Problem:
    """As many pictures as a batch has, whose generated shapes are taken for the seen classes of a recipe."""
    vocabulary = _vocabulary(recipe)
    shapes = engine.open_problem(DataSettings(size=recipe.data.crop, train_count=count), needed=("train",)).train
    seen = vocabulary.seen_indices
    labels = {label: seen[label % len(seen)] for label in range(len(shapes.names))}
    pictures = data.View(shapes, range(count), vocabulary.names, labels)
    return Problem(vocabulary, "ignore", pictures, pictures)


def _stages(recipe: Recipe) -> tuple[str, ...]:
    """The stages of a recipe's method, which its settings may add to."""
    vocabulary, model = _vocabulary(recipe), replace(recipe.model, weights="none")
    return get(recipe.method.name)(model, recipe.method, vocabulary, torch.zeros(len(vocabulary), 2)).stages


def _vocabulary(recipe: Recipe) -> Vocabulary:
    protocol = recipe.data.protocol
    return protocols.get(protocol).vocabulary if protocol else engine.open_problem(recipe.data).vocabulary


def _training_pictures(recipe: Recipe) -> tuple[int, str | None]:
    """How many pictures a recipe trains on, and what to say of that number if it is none of the data themselves."""
    settings = recipe.data
    protocol = protocols.get(settings.protocol) if settings.protocol else None
    split = settings.splits()[0]
    if protocol and protocol.training_images and split == protocol.train_split:
        return protocol.training_images, None
    if settings.root is not None or settings.kind == "scenes":
        problem = engine.open_problem(settings, needed=("train",))
        return len(data.seen_only(problem.train, problem.vocabulary, problem.rule)), None
    listed = _LISTED.get((settings.kind, str(split)))
    if listed is None:
        raise BadUsage(f"How many pictures {settings.kind!r} trains on is not known without them: add --root DIR.")
    kept = protocol is not None and protocol.rule == "ignore"
    note = f"{settings.kind}: of its {listed:,} pictures splits leave fewer, so hours are too many: add --root DIR."
    return listed, None if kept else note
