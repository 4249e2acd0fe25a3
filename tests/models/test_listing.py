from itertools import islice

from joem import cli
from joem.models.backbones.listing import known_backbones


def test_networks_are_listed_with_licence_and_size(capsys):
    found = {each.name: each for each in known_backbones("vit_small_patch14_dinov2")}
    tower = found["tu-vit_small_patch14_dinov2.lvd142m"]
    assert (tower.licence, tower.side) == ("apache-2.0", 518)
    assert 21e6 < tower.parameters < 23e6
    assert cli.main(["data", "--backbones", "vit_small_patch14_dinov2"]) == 0
    assert "22.1 M    518 px   apache-2.0" in capsys.readouterr().out


def test_words_that_no_network_has_are_told(capsys):
    assert cli.main(["data", "--backbones", "nonsense"]) == 2
    assert "timm has no network with 'nonsense'" in capsys.readouterr().err


def test_a_word_at_the_start_of_a_part_comes_first():
    assert [each.name for each in islice(known_backbones("pe_core_tiny"), 1)] == ["tu-vit_pe_core_tiny_patch16_384"]
    assert "_pe_" in next(known_backbones("pe_")).name
    assert next(known_backbones("eva")).name.startswith("tu-eva")


def test_a_family_is_found_by_the_name_that_people_use():
    assert next(known_backbones("mobileclip")).name.startswith("tu-fastvit_mci0")
