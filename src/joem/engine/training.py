"""One training loop that a person reads top to bottom; a method of several stages runs through it stage by stage."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from joem import data, methods, progress
from joem.engine.checkpoint import Checkpoints
from joem.engine.fabric import launched, random_states, set_random_states, share_batch_statistics
from joem.engine.loading import Batch, check_batch, check_labelling, epoch_batches, stage_steps
from joem.engine.looks import learn_looks, trained_features
from joem.engine.memory import reuse_freed_memory
from joem.engine.metrics_log import MetricsLog, has_rows
from joem.engine.optimisers import make_optimisers, set_rates
from joem.engine.problem import Problem, open_problem
from joem.engine.run_folder import alone_in
from joem.engine.starting import first_model, keep_statistics, kept_weights, start_of, with_old_classes
from joem.engine.stopping import interruptible, lost_processes_told
from joem.engine.stored_maps import CaptionSet, MapStore, PixelSet
from joem.engine.teachers import Taught, teaching_of
from joem.errors import BadUsage, Interrupted, JoemError, choose
from joem.io import damage_told, writing
from joem.model import Model
from joem.models import Hypercolumns, Inputs
from joem.parallel import ranks_that_say_yes, together
from joem.recipe import Recipe

_CAPTION_PIXELS = 64  # of every captioned photo, at every step


def train(
    recipe: Recipe,
    out: str | Path | None = None,
    *,
    problem: Problem | None = None,
    resume: bool = False,
) -> Model:
    """Train a recipe on the seen classes, through all stages of its method.

    Args:
        recipe: what to train.
        out: folder for checkpoints, metrics.csv, recipe.yaml and the final model/, with no other run in it; None
            writes nothing.
        problem: the data, if they are not what the recipe says (a fold of a cross-validation).
        resume: go on from the newest checkpoint in `out`; the result is the same as without the stop.

    Returns:
        The trained model, in evaluation mode.
    """
    fabric = launched(recipe.train, methods.get(recipe.method.name).rests)
    if fabric.device.type == "cpu":
        reuse_freed_memory()
    folder = Path(out) if out is not None else None
    recipe, start = start_of(recipe)
    with lost_processes_told(fabric, folder), alone_in(folder, fabric):
        with together(fabric):
            if folder is not None and not resume and Checkpoints(folder / "checkpoints").newest():
                raise BadUsage(f"{out} already holds a run: add --resume to go on with it, or choose another --out.")
            every_mask = methods.get(recipe.method.name).sees_every_mask
            problem = problem or open_problem(recipe.data, every_mask, needed=("train",), cache=recipe.train.cache)
            run = Run(recipe, problem, fabric, folder, start=start)
            if resume:
                run.resume()
            else:
                run.check_folder()
        run.fit()
        return run.finish()


@dataclass
class Run:
    """The state of one training run.

    `given` and `stages` are set where a trained model goes through some of its stages again, `start` where a new one
    starts with the weights of another.
    """

    recipe: Recipe
    problem: Problem
    fabric: Any
    out: Path | None
    given: Model | None = None
    stages: tuple[str, ...] = ()
    start: Model | None = None
    step: int = 0
    stop: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        settings = self.recipe.train
        self.fabric.seed_everything(settings.seed, verbose=False)
        # The one door through which unseen masks may come: a method that says it sees every mask.
        every_mask = methods.get(self.recipe.method.name).sees_every_mask
        self.masks = self.problem.vocabulary.with_unseen(()) if every_mask else self.problem.vocabulary
        data.seen_only(self.problem.train, self.masks, self.problem.rule)  # before words are encoded: it may refuse
        self.model = self.given or first_model(self.recipe, self.problem.vocabulary, self.start)
        self.stages = self.stages or self.model.method.stages
        check_labelling(self.recipe, self.model.method.stages)
        self.pictures, self.captions = self._pictures(), self._captions()
        self.checkpoints = Checkpoints(self.out / "checkpoints") if self.out else None
        self.steps_per_epoch = len(self._sampler(0, 0))
        self.ends = self._stage_ends()
        check_batch(self.recipe, len(self.pictures), self.fabric.world_size)
        if settings.channels_last:
            self.model.method.to(memory_format=torch.channels_last)
        if self.fabric.world_size > 1 and self.fabric.device.type == "cuda":
            share_batch_statistics(self.model.method)
        # Of 16-mixed. Fabric would update it after each optimiser, so that the second one divides by another scale.
        self.scaler = getattr(self.fabric.strategy.precision, "scaler", None)
        self.begin(0)
        # Processes share the weights but must not share the random numbers of dropout.
        torch.manual_seed(settings.seed + self.fabric.global_rank)

    def _pictures(self) -> data.TrainingSet | PixelSet:
        recipe, problem = self.recipe, self.problem
        method = self.model.method
        trunk = method.trunk
        if recipe.train.cache is not None:
            store = MapStore.open(recipe, trunk.to(self.fabric.device))
            pixels = PixelSet(
                problem.train,
                self.masks,
                problem.rule,
                store,
                pixels=0 if method.needs_maps else recipe.train.pixels,
                side=max(1, recipe.data.crop // trunk.strides[-1]),
                seed=recipe.train.seed,
            )
            with together(self.fabric):
                if isinstance(problem.train, Taught):
                    problem.train.fill(self.fabric.global_rank, self.fabric.world_size)
                store.fill(pixels.samples, self.fabric.global_rank, self.fabric.world_size)
            return pixels
        transform = data.training(
            recipe.data.crop,
            scale=recipe.data.scale,
            base=recipe.data.base,
            pad=recipe.data.pad,
            flip=recipe.data.flip,
            mean=trunk.mean,
            std=trunk.std,
        )
        return data.TrainingSet(problem.train, self.masks, problem.rule, transform, seed=recipe.train.seed)

    def _captions(self) -> CaptionSet | None:
        """The captioned photos that teach too, if the recipe has some."""
        recipe, folder = self.recipe, self.recipe.data.captions
        if folder is None:
            return None
        if recipe.train.cache is None:
            raise BadUsage("Captions teach on stored maps only: add --train.cache DIR.")
        store = MapStore.open(recipe, self.model.method.trunk.to(self.fabric.device), folder)
        with together(self.fabric):
            photos = data.Captioned(folder)
            store.fill(photos, self.fabric.global_rank, self.fabric.world_size)
        self.model.method.learn_nouns(self.model.semantics.vectors(photos.names))
        rank, world = self.fabric.global_rank, self.fabric.world_size
        batch = max(1, recipe.train.batch_size // world)
        return CaptionSet(photos, store, batch=batch, pixels=_CAPTION_PIXELS, seed=recipe.train.seed * world + rank)

    @property
    def steps(self) -> int:
        """The steps of all stages together."""
        return self.ends[-1]

    def _stage_ends(self) -> list[int]:
        """The step at which every stage ends."""
        for name in (*self.recipe.method.stage_lengths, *self.recipe.method.stage_rates):
            choose(f"stage of {self.recipe.method.name}", name, self.model.method.stages)
        return list(accumulate(stage_steps(self.recipe, self.stages, len(self.pictures))))

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
        self.optimisers = make_optimisers(method, self.recipe.train, kept_weights(method, self.start))
        learning = {id(p) for each in self.optimisers.values() for group in each.param_groups for p in group["params"]}
        for parameter in method.parameters():
            parameter.requires_grad_(id(parameter) in learning)
        self.module, *self.wrapped = self.fabric.setup(method.train(), *self.optimisers.values())
        if self.start is not None:
            keep_statistics(method)

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
            pin_memory = self.fabric.device.type == "cuda"
            yield from epoch_batches(self.pictures, self._sampler(epoch, start), self.recipe.data.workers, pin_memory)

    def fit(self) -> None:
        """Train until the last step, an interruption or an error, each of which stops all processes."""
        settings = self.recipe.train
        batches = self.batches()
        with together(self.fabric), writing(self.out):
            log = MetricsLog(self)
        with closing(log), interruptible(self), progress.show("training", self.steps, self.step) as advance:
            while self.step < self.steps:
                while self.step == self.ends[self.stage]:
                    self.begin(self.stage + 1)
                if ranks_that_say_yes(self.fabric, self.stop):
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
                note = ""
                if self.step % settings.log_every == 0 or self.step == self.steps:
                    values = {name: float(value) for name, value in terms.items()}
                    with together(self.fabric), writing(self.out):
                        log.write(values)
                    note = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
                advance(note=note)
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
        length = self.ends[self.stage] - start
        rate = self.recipe.method.stage_rates.get(self.stages[self.stage], 1.0)
        set_rates(self.optimisers, settings, self.step - start, length, self.steps_per_epoch, rate)
        weight_sum = torch.zeros((), device=self.fabric.device)
        sums: dict[str, Tensor] = {}
        parts = list(
            zip(images.tensor_split(settings.accumulate), labels.tensor_split(settings.accumulate), strict=True)
        )
        captioned = self._captioned_parts(len(parts))
        for number, (part, truth) in enumerate(parts):
            inputs, truth = self._to_device(part), self.fabric.to_device(truth)  # noqa: PLW2901
            with self.fabric.no_backward_sync(self.module, enabled=number < len(parts) - 1):
                terms, weight = self.module(inputs, truth, *captioned[number])
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

    def _captioned_parts(self, count: int) -> list[tuple[tuple[Tensor, Tensor], ...]]:
        """What goes to the method beside every part of a batch: captioned photos, or nothing."""
        if self.captions is None:
            return [()] * count
        columns, nouns = (each.tensor_split(count) for each in self.captions[self.step])
        return [(self.fabric.to_device(pair),) for pair in zip(columns, nouns, strict=True)]

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

    def _to_device(self, images: Tensor) -> Inputs:
        images = self.fabric.to_device(images)
        if self.recipe.train.channels_last:
            images = images.to(memory_format=torch.channels_last)
        return Hypercolumns(images) if isinstance(self.pictures, PixelSet) else images

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
        with together(self.fabric), writing(self.out):
            if self.fabric.is_global_zero:
                for name, value in self.model.method.state_dict().items():
                    if value.is_floating_point() and not torch.isfinite(value).all():
                        raise JoemError(f"The weights {name} are not numbers at step {self.step}: nothing was saved.")
                self.checkpoints.save(self.step, self.model, self.optimisers, states, self.scaler)

    def check_folder(self) -> None:
        """Refuse to write over another run without a checkpoint; this one may begin again where it came to none."""
        if self.out is None:
            return
        recipe = self.out / "recipe.yaml"
        same = recipe.is_file() and recipe.read_bytes() == self.recipe_text.encode()
        kept = [path for path in self.metrics if has_rows(path) and not same]
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
        self.begin(self.stages.index(choose("stage", self.checkpoints.stage(newest), self.stages)))
        self.step, states = self.checkpoints.restore(newest, self.model, self.optimisers, self.scaler)
        if self.out is not None and self.fabric.is_global_zero:
            shutil.rmtree(self.out / "model", ignore_errors=True)  # it would be older than the checkpoints to come
        rank = self.fabric.global_rank
        own = {name: rows[rank] for name, rows in states.items() if len(rows) == self.fabric.world_size}
        with damage_told(newest):
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
        seen = replace(self.problem, vocabulary=self.masks)
        learn_looks(self.model, seen)
        for buffer in self.model.method.buffers():  # where statistics are those of a process, the first one's count
            buffer.copy_(self.fabric.broadcast(buffer))
        if self.out is not None:
            self.save()
        self.model = with_old_classes(self.model, self.start)
        if self.out is not None:
            self.model.teaching = teaching_of(self.problem, self.recipe, self.model.method, self.captions)
            self.model.trained = trained_features(self.model, seen)
            with together(self.fabric), writing(self.out):
                if self.fabric.is_global_zero:
                    self.model.save(self.out / "model")
        return self.model
