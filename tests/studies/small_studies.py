"""A comparison so small that every run of it takes a second."""

from conftest import GENERATED, make_tiny
from joem import studies


def small_recipe(**changes):
    recipe = make_tiny(
        data={"train_count": 24, "val_count": 2, "crop": 32, "size": 32},
        train={"batch_size": 8, "epochs": 1, "save_every": 1},
    )
    return recipe.changed(**changes)


def own_generators(recipe):
    """Recipes of the methods with a generator, a small one."""
    names = ("zs3net", "zs3net_joem", "csrl", "cagnet")
    return {name: recipe.changed(method={"name": name, **GENERATED}) for name in names}


def compared(recipe, out, *names, **options):
    return studies.compare(recipe, out, names=names or None, **{"seeds": 1, "folds": 0, **options})
