"""What a person types, and what is understood."""

from importlib.resources import files

import pytest

from joem import Segmenter, Vocabulary, cli, protocols
from joem.asking import understand
from joem.errors import BadUsage, UnknownWord

VOC = protocols.get("voc-zs3-4").vocabulary


def test_a_text_is_a_comma_list_and_the_background_comes_by_itself():
    assert understand("cow, grass", VOC).names == ("cow", "grass", "background")
    assert understand("cow", VOC, background=False).names == ("cow",)
    assert understand("background, cow", VOC).names == ("background", "cow")
    assert understand(["cow"], Vocabulary(("cow", "dog"))).names == ("cow",)  # this model has no background
    assert understand(None, VOC).names == VOC.names


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Person", "person"),
        ("dining table", "diningtable"),
        ("tv", "tvmonitor"),
        ("people", "person"),
        ("buses", "bus"),
    ],
)
def test_other_spellings_lead_to_the_trained_class_and_the_notes_say_so(typed, name):
    question = understand([typed], VOC)
    assert question.words[0] == (name,)
    assert question.names[0] == typed
    assert question.notes == (f'"{typed}" is the trained class "{name}".',)


def test_an_alias_of_an_unseen_class_is_not_called_trained():
    assert understand("airplane", VOC).notes == ('"airplane" is the class "aeroplane".',)


def test_two_names_of_one_class_become_one():
    question = understand("tv, television, cow", VOC)
    assert question.names == ("tv", "cow", "background")
    assert question.words[0] == ("tvmonitor",)
    assert question.asked == ("tv|television", "cow", "background")
    assert question.notes[-1] == '"television" and "tv" are one class, "tvmonitor".'


def test_a_name_that_joins_two_classes_makes_one_of_three():
    question = understand("sofa, car, sofa|car", VOC, background=False)
    assert question.words == (("car", "sofa"),) or question.words == (("sofa", "car"),)
    assert len(question.names) == len(question.asked) == 1
    assert set(question.asked[0].split("|")) == {"sofa", "car"}


def test_words_in_no_dictionary_are_noted_or_refused():
    (note,) = understand("cupp", VOC).notes
    assert note.startswith('"cupp" is in no dictionary at hand')
    assert "cup" in note
    with pytest.raises(UnknownWord, match=r"Near matches: .*cup"):
        understand("cupp", VOC, strict_words=True)
    assert understand("zebra crossing, okapi", VOC, strict_words=True).notes == ()


@pytest.mark.parametrize("nothing", ["", " , ", []])
def test_nothing_asked_is_an_error(nothing):
    with pytest.raises(BadUsage, match="class name"):
        understand(nothing, VOC)


@pytest.fixture(scope="module")
def cat():
    model = Segmenter.load()
    return model.encode(str(files("joem") / "web" / "photos" / "cat.jpg"))


def test_one_word_gives_a_mask_and_the_rest_of_the_picture(cat):
    result = cat.segment("cats")
    assert result.names == ("cats", "background")
    assert 0.5 < result.areas()["cats"] < 0.95
    assert result.unseen == ()
    assert result.to_dict()["notes"] == ['"cats" is the trained class "cat".']
    assert (result.labels == cat.segment(["cat"]).labels).all()


def test_the_command_line_says_what_it_understood(tmp_path, capsys):
    photo = str(files("joem") / "web" / "photos" / "cat.jpg")
    assert cli.main(["predict", photo, "--classes", "Cats, cupp", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert '"Cats" is the trained class "cat"' in told.err
    assert '"cupp" is in no dictionary' in told.err
    assert "background" in told.out
    assert cli.main(["predict", photo, "--classes", "cat, cupp", "--strict-words", "--out", str(tmp_path)]) == 2
    assert cli.main(["predict", photo, "--classes", "cat", "--no-background", "--out", str(tmp_path)]) == 0
    assert "cat 100%" in capsys.readouterr().out


def test_what_is_excluded_goes_to_the_background_or_to_other():
    question = understand("cow, not: reflection, not: Shadow|shade", VOC)
    assert question.names == ("cow", "background")
    assert question.words[1] == ("background", "reflection", "Shadow", "shade")
    assert question.rest == "background"
    question = understand("cow, not: reflection", VOC, background=False)
    assert (question.names, question.words[1], question.rest) == (("cow", "other"), ("reflection",), "other")


@pytest.mark.parametrize(
    ("typed", "message"),
    [("cow, not:", "followed by what"), ("not: sky", "Only exclusions"), ("cow, not: cows", "both asked for and")],
)
def test_exclusions_that_make_no_sense_are_told(typed, message):
    with pytest.raises(BadUsage, match=message):
        understand(typed, VOC)


def test_a_description_belongs_to_its_name():
    question = understand("okapi: a striped brown animal, Person: somebody", VOC)
    assert question.names == ("okapi", "Person", "background")
    assert question.words[:2] == (("okapi: a striped brown animal",), ("person",))
    assert question.notes == ('"Person" is the trained class "person"; its description is not needed.',)


def test_a_made_up_name_with_a_description_is_no_slip():
    assert understand("zzqxw: a striped brown animal", VOC, strict_words=True).notes == ()


def test_a_name_asked_for_bare_and_described_is_one_class():
    question = understand("okapi, okapi: a striped animal", VOC)
    assert question.names == ("okapi", "background")
    assert question.words[0] == ("okapi", "okapi: a striped animal")


def test_surroundings_that_nobody_asked_for_belong_to_the_rest():
    taught = VOC.with_taught(["grass", "sky"])
    assert understand("cow, lawn", taught).around == ("grass", "sky")
    assert understand("cow, Skies", taught).around == ("grass",)
    assert understand("cow", taught, background=False).around == ()  # nothing to belong to
    assert understand(None, taught).around == ()  # all are asked for
    assert understand("cow", VOC).around == ()
