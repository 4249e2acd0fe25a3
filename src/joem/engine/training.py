"""One training loop that a person reads top to bottom; a method of several stages runs through it stage by stage."""

import csv
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from joem import data, methods
from joem.engine.checkpoint import Checkpoints
from joem.engine.files import write_text
from joem.engine.hypercolumns import HypercolumnSet, MapStore
from joem.engine.memory import reuse_freed_memory
from joem.engine.model import Model
from joem.engine.problem import Problem, open_problem
from joem.engine.processes import together, who
from joem.errors import BadUsage, JoemError, choose
from joem.recipe import OptimiserSettings, Recipe, TrainSettings
from joem.vocabulary import Vocabulary

Batch = tuple[Tensor, Tensor]


class Interrupted(JoemError):
    """The run was stopped by the user after writing a checkpoint."""


def train(
    recipe: Recipe,
    out: str | Path | None = None,
    *,
    problem: Problem | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Model:
    """Train a recipe on the seen classes, through all stages of its method.

    Args:
        recipe: what to train.
        out: folder for checkpoints, metrics.csv, recipe.yaml and the final model/, with no other run in it; None
            writes nothing.
        problem: the data, if they are not what the recipe says (a fold of a cross-validation).
        resume: go on from the newest checkpoint in `out`; the result is the same as without the stop.
        progress: show a progress bar.

    Returns:
        The trained model, in evaluation mode.
    """
    fabric = launched(recipe.train)
    if fabric.device.type == "cpu":
        reuse_freed_memory()
    with together(fabric):
        every_mask = methods.get(recipe.method.name).sees_every_mask
        problem = problem or open_problem(recipe.data, every_mask, needed=("train",))
        run = _Run(recipe, problem, fabric, Path(out) if out is not None else None)
        if resume:
            run.resume()
        else:
            run.check_folder()
    run.fit(progress and fabric.is_global_zero)
    return run.finish()


def add_class(model: Model, name: str, problem: Problem, vector: Tensor | None = None, progress: bool = True) -> Model:
    """A model that also knows a new name, from its word alone.

    Methods that take words at once are only told the name. The others run those stages again that need all names
    (`Method.new_class_stages`), on the training pictures of the problem the model was trained on. `vector` (D) is the
    word vector, where it does not come from the model's own source.
    """
    old = model.vocabulary
    if type(model.method).sees_every_mask:
        raise BadUsage(
            f"{model.recipe.method.name} learns from masks: a new class needs masks and a whole new training."
        )
    vocabulary = Vocabulary((*old.names, name), (*old.unseen, name), old.background)
    vectors = torch.cat([model.vectors, model.semantics.vectors((name,)) if vector is None else vector[None]])
    if not model.method.new_class_stages:
        return replace(model, vocabulary=vocabulary, vectors=vectors)
    bare = replace(model.recipe.model, weights="none")
    method = methods.get(model.recipe.method.name)(bare, model.recipe.method, vocabulary, vectors)
    methods.copy_leading_rows(model.method, method)
    method.visual.mean, method.visual.std = model.method.visual.mean, model.method.visual.std
    larger = replace(model, vocabulary=vocabulary, vectors=vectors, method=method.eval())
    same = {label: label for label in range(len(old))}
    train_set = data.View(problem.train, range(len(problem.train)), vocabulary.names, same)
    larger_problem = replace(problem, vocabulary=vocabulary, train=train_set)
    fabric = launched(model.recipe.train)
    run = _Run(model.recipe, larger_problem, fabric, None, larger, method.new_class_stages)
    run.fit(progress and fabric.is_global_zero)
    return run.finish()


@dataclass
class _Run:
    """The state of one training run.

    `given` and `stages` are set where a trained model goes through some of its stages again.
    """

    recipe: Recipe
    problem: Problem
    fabric: Any
    out: Path | None
    given: Model | None = None
    stages: tuple[str, ...] = ()
    step: int = 0
    stop: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        settings = self.recipe.train
        self.fabric.seed_everything(settings.seed, verbose=False)
        self.model = self.given or Model.create(self.recipe, self.problem.vocabulary)
        self.stages = self.stages or self.model.method.stages
        # The one door through which unseen masks may come: a method that says it sees every mask.
        every_mask = self.model.method.sees_every_mask
        self.masks = self.problem.vocabulary.with_unseen(()) if every_mask else self.problem.vocabulary
        self.pictures = self._pictures()
        self.checkpoints = Checkpoints(self.out / "checkpoints") if self.out else None
        self.steps_per_epoch = len(self._sampler(0, 0))
        self.ends = self._stage_ends()
        self._check_batch()
        if settings.channels_last:
            self.model.method.to(memory_format=torch.channels_last)
        if self.fabric.world_size > 1 and self.fabric.device.type == "cuda":
            torch.nn.SyncBatchNorm.convert_sync_batchnorm(self.model.method)  # type: ignore[no-untyped-call]
        # Of 16-mixed. Fabric would update it after each optimiser, so that the second one divides by another scale.
        self.scaler = getattr(self.fabric.strategy.precision, "scaler", None)
        self.begin(0)
        # Processes share the weights but must not share the random numbers of dropout.
        torch.manual_seed(settings.seed + self.fabric.global_rank)

    def _pictures(self) -> data.TrainingSet | HypercolumnSet:
        recipe, problem = self.recipe, self.problem
        method = self.model.method
        visual = method.visual
        if recipe.train.cache is not None:
            store = MapStore.open(recipe, visual.to(self.fabric.device))
            pixels = HypercolumnSet(
                problem.train,
                self.masks,
                problem.rule,
                store,
                pixels=0 if method.needs_maps else recipe.train.pixels,
                places=max(1, recipe.data.crop // recipe.model.stride),
                seed=recipe.train.seed,
            )
            with together(self.fabric):
                store.fill(pixels.samples, self.fabric.global_rank, self.fabric.world_size, self.fabric.is_global_zero)
            return pixels
        transform = data.training(
            recipe.data.crop,
            scale=recipe.data.scale,
            flip=recipe.data.flip,
            mean=visual.mean,
            std=visual.std,
        )
        return data.TrainingSet(problem.train, self.masks, problem.rule, transform, seed=recipe.train.seed)

    @property
    def steps(self) -> int:
        """The steps of all stages together."""
        return self.ends[-1]

    def _stage_ends(self) -> list[int]:
        """The step at which every stage ends."""
        lengths = self.recipe.method.stage_lengths
        for name in lengths:
            choose(f"stage of {self.recipe.method.name}", name, self.model.method.stages)
        epochs = [self.recipe.train.epochs * lengths.get(stage, 1.0) for stage in self.stages]
        return list(accumulate(round(count * self.steps_per_epoch) for count in epochs))

    @property
    def metrics(self) -> list[Path]:
        """The files of the logged steps, one per stage: stages have other terms."""
        if self.out is None:
            return []
        suffixes = [f"-{stage}" for stage in self.stages] if len(self.stages) > 1 else [""]
        return [self.out / f"metrics{suffix}.csv" for suffix in suffixes]

    @property
    def recipe_text(self) -> str:
        """What recipe.yaml holds."""
        return yaml.safe_dump(self.recipe.to_dict(), sort_keys=False)

    def begin(self, stage: int) -> None:
        """Enter a stage: new optimisers on the parameters that learn in it, everything else frozen."""
        self.stage = stage
        method = self.model.method
        method.begin(self.stages[stage])
        self.optimisers = _optimisers(self.model, self.recipe.train)
        learning = {id(p) for each in self.optimisers.values() for group in each.param_groups for p in group["params"]}
        for parameter in method.parameters():
            parameter.requires_grad_(id(parameter) in learning)
        self.module, *self.wrapped = self.fabric.setup(method.train(), *self.optimisers.values())

    def _check_batch(self) -> None:
        settings = self.recipe.train
        parts = self.fabric.world_size * settings.accumulate
        smallest = min(settings.batch_size, len(self.pictures)) // parts
        if smallest < 1:
            raise BadUsage(f"A batch of {settings.batch_size} cannot be cut into {parts} parts: make it larger.")
        if smallest < 2 and self.recipe.model.architecture == "deeplabv3plus":
            raise BadUsage(
                "DeepLabV3+ normalises its pooled branch over the batch and needs at least two pictures per part, got "
                f"a batch of {settings.batch_size} in {parts} parts from {len(self.pictures)} pictures."
            )

    def _sampler(self, epoch: int, start: int) -> data.EpochSampler:
        settings = self.recipe.train
        return data.EpochSampler(
            len(self.pictures),
            settings.batch_size,
            settings.seed,
            epoch,
            start_batch=start,
            rank=self.fabric.global_rank,
            world=self.fabric.world_size,
        )

    def batches(self) -> Iterator[Batch]:
        """The batches of the whole run from the current step on, the same whatever happened before."""
        while True:
            epoch, start = divmod(self.step, self.steps_per_epoch)
            loader: DataLoader[Any] = DataLoader(
                _ErrorsAsSamples(self.pictures),  # type: ignore[arg-type]
                batch_sampler=self._sampler(epoch, start),
                collate_fn=_collate,
                num_workers=self.recipe.data.workers,
                generator=torch.Generator(),  # or every loader would draw from dropout's random numbers
                pin_memory=self.fabric.device.type == "cuda",
            )
            for batch in loader:
                if isinstance(batch, JoemError):
                    raise batch
                yield batch

    def fit(self, progress: bool) -> None:
        """Train until the last step, an interruption or an error, each of which stops all processes."""
        settings = self.recipe.train
        batches = self.batches()
        with together(self.fabric), _writing(self.out):
            log = _MetricsLog(self)
        with closing(log), _interruptible(self), _progress(self, progress) as show:
            while self.step < self.steps:
                while self.step == self.ends[self.stage]:
                    self.begin(self.stage + 1)
                if who(self.fabric, self.stop):
                    raise Interrupted(self._interruption())
                try:
                    with together(self.fabric):
                        images, labels = next(batches)
                        data.guard(labels, self.masks)
                except JoemError:
                    if self.step:  # before the first one there is nothing to keep, and the run may simply begin again
                        self.save()
                    raise
                terms = self.train_step(images, labels)
                self.step += 1
                if self.step % settings.log_every == 0 or self.step == self.steps:
                    values = {name: float(value) for name, value in terms.items()}
                    with together(self.fabric), _writing(self.out):
                        log.write(values)
                    show(values)
                if settings.save_every and self.step % settings.save_every == 0:
                    self.save()

    def train_step(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """One optimiser step on this process's share of a batch.

        Parts and processes are weighted by their labelled pixels at feature size, so the gradient, and the terms that
        are returned, are those of the whole batch however it is divided, but for batch statistics and, in `official`,
        the rounding of that count.
        """
        settings = self.recipe.train
        start = self.ends[self.stage - 1] if self.stage else 0
        rates(self.optimisers, settings, self.step - start, self.ends[self.stage] - start)
        weight_sum = torch.zeros((), device=self.fabric.device)
        sums: dict[str, Tensor] = {}
        parts = list(
            zip(images.tensor_split(settings.accumulate), labels.tensor_split(settings.accumulate), strict=True)
        )
        for number, (part, truth) in enumerate(parts):
            part, truth = self._to_device(part), self.fabric.to_device(truth)  # noqa: PLW2901
            with self.fabric.no_backward_sync(self.module, enabled=number < len(parts) - 1):
                terms, weight = self.module(part, truth)
                self.fabric.backward(torch.stack(list(terms.values())).sum() * weight)
            weight_sum = weight_sum + weight
            for name, value in terms.items():
                sums[name] = sums.get(name, torch.zeros_like(weight)) + value.detach() * weight
        weight_sum, *values = self.fabric.all_reduce(torch.stack([weight_sum, *sums.values()]), reduce_op="mean")
        scale = 1.0 / weight_sum.clamp(min=1e-12)
        means = {name: value * scale for name, value in zip(sums, values, strict=True)}
        self._check_finite(means)
        self._apply(scale)
        return means

    def _apply(self, scale: Tensor) -> None:
        """Multiply the summed gradients by one over the summed weights and let all optimisers step."""
        for parameter in self.model.method.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
        for plain, wrapped in zip(self.optimisers.values(), self.wrapped, strict=True):
            if self.recipe.train.clip > 0:
                # Infinite gradients are the scaler's business, or make weights that `_check_finite` and `save` refuse.
                self.fabric.clip_gradients(
                    self.module, wrapped, max_norm=self.recipe.train.clip, error_if_nonfinite=False
                )
            if self.scaler is None:
                wrapped.step()
            else:
                self.scaler.step(plain)
            wrapped.zero_grad(set_to_none=True)
        if self.scaler is not None:
            self.scaler.update()

    def _to_device(self, images: Tensor) -> Tensor:
        images = self.fabric.to_device(images)
        return images.to(memory_format=torch.channels_last) if self.recipe.train.channels_last else images

    def _check_finite(self, terms: dict[str, Tensor]) -> None:
        if torch.isfinite(torch.stack(list(terms.values()))).all():
            return
        newest = self.checkpoints.newest() if self.checkpoints else None
        kept = f"the last good checkpoint is {newest}" if newest else "there is no checkpoint yet"
        values = ", ".join(f"{name} {value.item():g}" for name, value in terms.items())
        raise JoemError(
            f"The loss is not a number at step {self.step} ({values}). Training stopped before it could spoil the "
            f"weights; {kept}. Lower --train.visual.lr or --train.semantic.lr, or set --train.clip 1."
        )

    def save(self) -> None:
        """Write a checkpoint, on the first process."""
        if self.checkpoints is None:
            return
        states = {
            name: self.fabric.all_gather(state).reshape(self.fabric.world_size, -1)
            for name, state in random_states(self.fabric.device).items()
        }
        with together(self.fabric), _writing(self.out):
            if self.fabric.is_global_zero:
                for name, value in self.model.method.state_dict().items():
                    if value.is_floating_point() and not torch.isfinite(value).all():
                        raise JoemError(f"The weights {name} are not numbers at step {self.step}: nothing was saved.")
                self.checkpoints.save(self.step, self.model, self.optimisers, states, self.scaler)

    def check_folder(self) -> None:
        """Refuse to write over another run; this one may begin again where it came to no checkpoint."""
        if self.out is None or self.checkpoints is None:
            return
        if self.checkpoints.newest():
            raise BadUsage(f"{self.out} already holds a run: add --resume to go on with it, or choose another --out.")
        recipe = self.out / "recipe.yaml"
        same = recipe.is_file() and recipe.read_bytes() == self.recipe_text.encode()
        kept = [path for path in self.metrics if _has_rows(path) and not same]
        kept += [path for path in [self.out / "model"] if path.exists()]
        if kept:
            raise BadUsage(
                f"{self.out} already holds {' and '.join(path.name for path in kept)}, but no checkpoint to go on "
                "from: choose another --out, or move what is there."
            )

    def resume(self) -> None:
        """Go on from the newest checkpoint."""
        newest = self.checkpoints.newest() if self.checkpoints else None
        if self.checkpoints is None or newest is None:
            raise BadUsage(f"There is no checkpoint to resume in {self.out}: start without --resume.")
        self.begin(self.stages.index(self.checkpoints.stage(newest)))
        self.step, states = self.checkpoints.restore(newest, self.model, self.optimisers, self.scaler)
        if self.out is not None and self.fabric.is_global_zero:
            shutil.rmtree(self.out / "model", ignore_errors=True)  # it would be older than the checkpoints to come
        rank = self.fabric.global_rank
        own = {name: rows[rank] for name, rows in states.items() if len(rows) == self.fabric.world_size}
        set_random_states(own, self.fabric.device)

    def _interruption(self) -> str:
        self.save()
        if self.checkpoints is None:
            return f"Interrupted at step {self.step} of {self.steps}."
        return (
            f"Interrupted at step {self.step} of {self.steps}. The checkpoint {self.checkpoints.newest()} can be used "
            "as it is; the same command with --resume goes on from it."
        )

    def finish(self) -> Model:
        """Write the final model and give it back ready for use."""
        self.model.method.eval()
        if self.out is not None:
            self.save()
            with together(self.fabric), _writing(self.out):
                if self.fabric.is_global_zero:
                    self.model.save(self.out / "model")
        return self.model


@dataclass(frozen=True)
class _ErrorsAsSamples:
    """Pictures whose errors are handed over like samples: torch would put a traceback around those of its workers."""

    pictures: data.TrainingSet | HypercolumnSet

    def __getitem__(self, key: tuple[int, int]) -> Batch | JoemError:
        try:
            return self.pictures[key]
        except JoemError as error:
            return error


def _collate(samples: list[Batch | JoemError]) -> Batch | JoemError:
    errors = [sample for sample in samples if isinstance(sample, JoemError)]
    return errors[0] if errors else data.collate([sample for sample in samples if not isinstance(sample, JoemError)])


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random numbers that a process draws from, by the name that checkpoints give them."""
    states = {"random_state": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda_random_state"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Go on with the random numbers that `random_states` was asked about; those of absent devices do not matter."""
    if "random_state" in states:
        torch.set_rng_state(states["random_state"].cpu())
    if "cuda_random_state" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda_random_state"].cpu(), device)


def layout(settings: TrainSettings) -> tuple[int, int]:
    """Devices per node and nodes: those of the settings or, where these name one, those that torchrun started."""
    found = settings.devices, settings.nodes
    if found != (1, 1) or "LOCAL_WORLD_SIZE" not in os.environ:
        return found
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    return local, int(os.environ["WORLD_SIZE"]) // local


def launched(settings: TrainSettings) -> Any:
    """A Fabric whose processes have found each other."""
    fabric = _fabric(settings)
    fabric.launch()
    return fabric


def _fabric(settings: TrainSettings) -> Any:
    from lightning_fabric import Fabric

    devices, nodes = layout(settings)
    try:
        fabric = Fabric(
            accelerator=settings.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=settings.strategy,
            precision=settings.precision,
        )
    except (ValueError, RuntimeError) as error:
        raise BadUsage(
            f"This machine cannot train as --train.accelerator, strategy and precision say: {error}"
        ) from None
    if settings.precision == "16-mixed" and fabric.device.type == "cpu":
        raise BadUsage("--train.precision 16-mixed needs a GPU: on a CPU use 32-true or bf16-mixed.")
    return fabric


def _optimisers(model: Model, settings: TrainSettings) -> dict[str, Optimizer]:
    groups = model.method.parameter_groups(settings.visual.head_multiplier)
    try:
        return {name: _optimiser(getattr(settings, name), members) for name, members in groups.items()}
    except ValueError as error:  # a negative rate, for instance
        raise BadUsage(f"The optimisers --train.{', --train.'.join(groups)} cannot be made: {error}.") from None


def _optimiser(settings: OptimiserSettings, groups: list[dict[str, Any]]) -> Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.lr, weight_decay=settings.weight_decay)


def rates(optimisers: dict[str, Optimizer], settings: TrainSettings, step: int, steps: int) -> None:
    """Set every learning rate for a step: linear warm-up, then poly, lr * (1 - step / steps) ** power."""
    for name, optimiser in optimisers.items():
        wish: OptimiserSettings = getattr(settings, name)
        factor = (1.0 - step / steps) ** wish.power
        if step < wish.warmup:
            factor *= (step + 1) / wish.warmup
        for group in optimiser.param_groups:
            group["lr"] = wish.lr * group["scale"] * factor


class _MetricsLog:
    """metrics.csv, or metrics-STAGE.csv for each of several stages, one line per logged step; TensorBoard if asked."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.started = time.monotonic()
        self.folder = run.out if run.fabric.is_global_zero else None
        self.board = _tensorboard(run) if self.folder and run.recipe.train.tensorboard else None
        if self.folder:
            write_text(self.folder / "recipe.yaml", run.recipe_text)
            for path in run.metrics:
                if path.exists():
                    _keep_lines_until(path, run.step)

    def close(self) -> None:
        if self.board:
            self.board.close()

    def write(self, terms: dict[str, float]) -> None:
        run = self.run
        if self.board:
            for name, value in terms.items():
                self.board.add_scalar(f"loss/{name}", value, run.step)
        if self.folder is None:
            return
        path = run.metrics[run.stage]
        row: dict[str, Any] = {"step": run.step, "epoch": round(run.step / run.steps_per_epoch, 4)}
        row |= {f"lr_{name}": optimiser.param_groups[0]["lr"] for name, optimiser in run.optimisers.items()}
        row |= {**terms, "total": math.fsum(terms.values())}
        row["seconds"] = round(time.monotonic() - self.started, 3)
        new = not path.exists()
        with path.open("a", newline="") as handle:
            writer = csv.DictWriter(handle, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


def _keep_lines_until(path: Path, step: int) -> None:
    """A run repeats the steps after its checkpoint, or all: drop their lines, and a file that has no other."""
    header, *lines = path.read_text().splitlines(keepends=True) or [""]
    steps = [line.split(",")[0] for line in lines]
    kept = [line for line, number in zip(lines, steps, strict=True) if number.isdigit() and int(number) <= step]
    if kept:
        write_text(path, header + "".join(kept))
    else:
        path.unlink()


def _has_rows(path: Path) -> bool:
    return path.exists() and len(path.read_bytes().splitlines()) > 1


def _tensorboard(run: _Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise JoemError('TensorBoard is not installed: run pip install "joem[tensorboard]".') from None
    return SummaryWriter(str(run.out), purge_step=run.step + 1)  # steps that come again replace those of before


@contextmanager
def _writing(out: Path | None) -> Iterator[None]:
    """What the disk refuses, as an error that processes can tell each other."""
    try:
        yield
    except OSError as error:
        raise JoemError(
            f"{out} cannot be written to ({error}): make room there, or choose another --out. A run that has a "
            "checkpoint goes on from it with --resume."
        ) from error


@contextmanager
def _interruptible(run: _Run) -> Iterator[None]:
    """The first Ctrl-C ends the run after the current step, with a checkpoint; the second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        run.stop = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(run: _Run, active: bool) -> Iterator[Any]:
    """A bar with the losses and the time left; plain lines where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not active:
        yield lambda values: None
        return
    console = Console(stderr=True)
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[losses]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=run.steps, completed=run.step, losses="")
        shown = run.step

        def show(values: dict[str, float]) -> None:
            nonlocal shown
            text = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            bar.update(task, completed=run.step, losses=text)
            if not console.is_terminal and (run.step - shown >= run.steps / 10 or run.step == run.steps):
                shown = run.step
                console.print(f"step {run.step}/{run.steps}  {text}", highlight=False)

        yield show
