import pytest
from small_studies import compared, small_recipe

from joem import methods, studies
from joem import recipe as recipes
from joem.errors import BadUsage
from joem.studies.rows import differences


@pytest.fixture
def recipe():
    return small_recipe()


def test_the_embedding_space_table_has_the_papers_rows(recipe):
    found = studies.rows("embedding-space", recipe)
    numbers = {row.title: row.published and row.published.hiou for row in found}
    assert numbers == {
        "V->S": None,
        "S->V: L_center": 31.2,
        "S->V: L_bar + L_sc": 41.5,
        "ZS3Net": 40.6,
        "ZS3Net on JoEm's encoder": 43.4,
        "JoEm": 44.6,
    }
    assert found[1].variant.recipe(recipe, {}, 0).method.r == 1


def test_published_numbers_stand_beside_ours():
    found = {row.variant.name: row.published for row in studies.rows("methods", recipes.load("lite"))}
    assert found["spnet"].hiou == 32.9
    assert found["supervised"] is None


def test_rows_of_every_table_can_be_chosen(recipe):
    assert [row.title for row in studies.rows("methods", recipe, ["spnet", "joem"])] == ["SPNet", "JoEm"]
    assert [row.rule for row in studies.rows("ablation", recipe, ["joem"])] == ["nn", "cs", "ac"]


def test_wrong_wishes_are_named(recipe):
    with pytest.raises(BadUsage, match=r"Unknown table 'ablations'.*Did you mean 'ablation'"):
        studies.rows("ablations", recipe)
    with pytest.raises(BadUsage, match="Unknown row of methods 'spnt'"):
        studies.rows("methods", recipe, ["spnt"])
    with pytest.raises(BadUsage, match=r"Unknown row of ablation 'spnet'.*joem-center-sc"):
        studies.rows("ablation", recipe, ["spnet"])


def test_the_table_of_names_sets_blends_beside_the_papers_objective():
    own = studies.load_own("lite", {"data": {"protocol": "voc-zs3-8"}, "method": {"r": 1}})
    base = recipes.load("lite", {"data": {"protocol": "voc-zs3-8"}})
    found = {row.variant.name: row for row in studies.rows("names", base, own=own)}
    blends = [
        "blend-mixture",
        "blend-masks",
        "blend-strict",
        "blend-all",
        "blend-strict-shuffled",
        "blend-strict-random",
    ]
    assert list(found) == ["joem", *blends]
    assert [row.title for row in found.values()] == [
        "JoEm, the paper's objective",
        "JoEm with mixed prototypes",
        "JoEm on cosines, masks alone",
        "joem+names (strict)",
        "joem+names",
        "strict, shuffled words",
        "strict, random vectors",
    ]
    assert found["joem"].published.hiou == 38.8
    made = {name: row.variant.recipe(base, own, seed=3) for name, row in found.items()}
    assert {name: each.data.protocol for name, each in made.items()} == dict.fromkeys(made, "voc-zs3-8")
    assert {each.train.seed for each in made.values()} == {3}
    assert made["joem"].method.r == 1  # of the same method as the shared recipe
    assert made["blend-strict"].method.names == made["blend-strict-random"].method.names == "strict"
    assert [made[name].semantics.control for name in blends[-3:]] == ["none", "shuffled", "random"]


def test_recipes_of_rows_are_those_of_the_same_family(recipe, tmp_path):
    assert studies.own_recipes("lite-joem") == studies.own_recipes("lite")
    assert studies.own_recipes("lite")["blend-strict"] == "lite-blend-strict"
    assert studies.own_recipes("scenes") == studies.own_recipes(str(tmp_path / "lite-mine.yaml")) == {}
    systems = {"devise", "spnet", "pmosr", "zs3net", "csrl", "two_stage", "visual_to_semantic", "zs3net_joem"}
    assert set(studies.load_own("paper-context", {"data": {"protocol": "context-zs3-8"}})) == {"context", *systems}
    assert set(studies.load_own("paper-spnet-setting")) == {"spnet-setting", "cagnet", *systems}
    assert set(studies.load_own("paper-joem")) == {"joem", *systems}
    assert set(studies.load_own("official-joem")) == {"joem", *systems}
    small = studies.load_own("lite", {"model": {"head": {"hidden": 384}}})
    assert small["zs3net"].model.head.hidden == 384
    assert small["blend-masks"].model.head is None  # its experts have heads of their own
    assert studies.load_own("lite-joem", {"method": {"r": 7}})["joem"].method.r == 7


@pytest.mark.parametrize("name", ["paper-context", "official-context", "official-joem", "paper-spnet-setting"])
def test_a_system_has_its_own_rates_on_the_data_and_the_network_of_the_others(name):
    base, own = recipes.load(name), studies.load_own(name)
    for row in ("devise", "zs3net", "spnet"):
        assert (own[row].data, own[row].semantics, own[row].model) == (base.data, base.semantics, base.model)
        assert own[row].method.name == row
    assert own["devise"].train == base.train  # none are published
    assert own["zs3net"].train.visual.lr == 7e-3
    assert own["spnet"].train == recipes.load("paper-spnet").train


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_runs_on_the_lite_encoder(name):
    base, own = recipes.load("lite"), studies.load_own("lite")
    (row,) = studies.rows("methods", base, [name], own)
    made = row.variant.recipe(base, own, seed=0)
    assert (made.method.name, made.data, made.semantics) == (name, base.data, base.semantics)
    assert not differences(base, made)
    assert getattr(made.method, "names", "none") == "none"  # from masks alone
    assert set(made.method.stage_lengths) <= set(methods.get(name).stages)
    assert {own.get(each) is not None for each in ("zs3net", "csrl", "blend-masks")} == {True}


@pytest.mark.parametrize(
    ("section", "changed"),
    [("data", {"crop": 16}), ("semantics", {"centre": True}), ("model", {"head": {"channels": 4}})],
)
def test_recipes_of_rows_share_what_is_compared(recipe, tmp_path, section, changed):
    own = recipe.changed(method={"name": "spnet"}, **{section: changed})
    with pytest.raises(BadUsage, match=f"The recipe of spnet has other settings of '{section}'"):
        compared(recipe, tmp_path, "spnet", own={"spnet": own})
