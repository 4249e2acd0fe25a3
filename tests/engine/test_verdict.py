"""What a training came to, in words; the length of a training by steps."""

import torch

from conftest import make_run, make_tiny
from joem import cli, engine, recipe, scores
from joem.decision import Decision
from joem.engine import Evaluation
from joem.vocabulary import Vocabulary

NAMES = Vocabulary(("background", "cow", "bus"), unseen=("bus",), background="background")


def said(confusion, recipe=None) -> str:
    counts = torch.tensor(confusion)
    found = Evaluation(Decision(), scores.scores(counts, (2,)), counts, NAMES, 3, 1.0)
    return engine.verdict(found, recipe or make_tiny())


def test_one_label_for_all_pixels_is_called_so():
    assert said([[900, 0, 0], [60, 1, 0], [39, 0, 0]]).startswith(
        "All pixels are background: the model learned nothing"
    )


def test_advice_is_for_the_data_and_the_method_at_hand():
    nothing, folder = [[900, 0, 0], [60, 1, 0], [39, 0, 0]], {"kind": "folder", "root": "d"}
    assert said(nothing).endswith("Train longer (--train.steps).")
    told = said(nothing, make_tiny(data=folder))
    assert told.endswith("look at the masks (joem data folder --root DIR), add masks or take the recipe folder.")
    own = recipe.load("folder", {"data": {"root": "d"}})
    assert said(nothing, own).endswith("add masks or start from a model that knows more (--from voc-names).")
    assert said(nothing, own.changed(train={"start": "voc-names"})).endswith("--root DIR) or add masks.")


def test_worse_than_one_colour_is_called_so():
    told = said([[500, 200, 200], [50, 5, 5], [20, 10, 10]])
    assert told.startswith("Worse than one colour: the mean IoU is ")
    assert "30.0 if all pixels were background" in told  # 900 of 1000 pixels, a third of the classes


def test_hardly_better_than_one_colour_is_called_so():
    told = said([[860, 20, 20], [50, 8, 2], [38, 1, 1]])
    assert told.startswith("Hardly better than one colour: the mean IoU is 32.8, and 30.0 if all pixels were")


def test_what_was_learned_is_counted():
    told = said([[880, 10, 10], [10, 48, 2], [30, 5, 5]])
    assert told.startswith("2 of the 3 classes that are shown are found")


def test_nothing_labelled_is_told():
    assert "No pixel" in said([[0, 0, 0]] * 3)


def test_steps_make_a_training_as_long_but_not_shorter(tiny):
    assert make_run(tiny).steps == 4
    assert make_run(make_tiny(train={"steps": 3})).steps == 4
    assert make_run(make_tiny(train={"steps": 9})).steps == 9


def test_a_training_ends_with_a_verdict(tmp_path, capsys):
    words = [
        "train",
        "scenes",
        "--data.size",
        "64",
        "--data.train_count",
        "8",
        "--data.val_count",
        "3",
        "--data.crop",
        "64",
    ]
    words += ["--model.backbone", "tu-test_efficientnet", "--model.weights", "none", "--model.head.channels", "8"]
    words += ["--train.epochs", "1", "--train.batch_size", "8", "--out", str(tmp_path / "run")]
    assert cli.main(words) == 0
    told = capsys.readouterr().out
    assert "On 3 pictures kept back" in told
    assert any(words in told for words in ("All pixels are", "Worse than one", "Hardly better"))  # one step is nothing
