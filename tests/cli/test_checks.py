"""What is wrong with the words is said before anything heavy is imported: in a fresh process, torch is not there."""

import json
import subprocess
import sys

import pytest

from joem import cli

HEAVY = ("torch", "timm", "pyarrow", "transformers", "matplotlib", "segmentation_models_pytorch", "lightning_fabric")

ANSWER = f"""
import contextlib, io, json, sys
from joem import cli

for line in sys.stdin:
    printed, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        code = cli.main(json.loads(line))
    heavy = sorted(set({HEAVY}) & set(sys.modules))
    print(json.dumps([code, told.getvalue(), printed.getvalue(), heavy]), flush=True)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What a command returns, tells and prints: one process answers all, as a start takes longer than an answer."""
    folder = tmp_path_factory.mktemp("empty")
    command = [sys.executable, "-c", ANSWER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, bufsize=1
    ) as process:

        def answer(words):
            process.stdin.write(json.dumps(words) + "\n")
            code, told, printed, heavy = json.loads(process.stdout.readline())
            assert heavy == []
            return code, told, printed

        yield answer
        process.stdin.close()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["trian"], 2, "Did you mean 'train'?"),
        (["train"], 2, "required: RECIPE.\nExample: joem train scenes"),
        (["train", "nothing"], 2, "Unknown recipe 'nothing'"),
        (["train", "gone.yaml"], 2, "There is no recipe file 'gone.yaml'"),
        (["train", "scenes", "--train.epochs"], 2, "--train.epochs needs a value"),
        (
            ["train", "scenes", "--semantics.vectors", "glove+word2vec:gone.vec"],
            2,
            "no file of word vectors at gone.vec",
        ),
        (
            ["train", "scenes", "--semantics.vectors", "sentence:gone"],
            2,
            "no folder of a text tower at 'gone': give sen",
        ),
        (["train", "scenes", "--semantics.vectors", "glove+clip:gone"], 2, "or NAME@PRETRAINED, as in clip:ViT-B-16@"),
        (["train", "scenes", "--semantics.vectors", "clip"], 2, "give clip:FOLDER, or NAME@PRETRAINED"),
        (["train", "scenes", "--model.weights", "gone.pth"], 2, "There is no weights file 'gone.pth'"),
        (["train", "lite"], 2, "--data.root DIR"),
        (["train", "lite", "--data.root", "nowhere"], 2, "There is no folder nowhere"),
        (["train", "scenes", "--from", "nowhere"], 1, "There is no model in nowhere"),
        (["train", "scenes", "--from", "voc-names", "--method.name", "spnet"], 2, "leave out --method.*"),
        (["train", "scenes", "--from-data", "old"], 2, "add --from MODEL"),
        (["tune", "nothing"], 2, "Unknown recipe 'nothing'"),
        (["tune", "scenes", "--lambdas", "a"], 2, "--lambdas takes numbers separated by commas, got 'a'"),
        (["compare", "--recipe", "nothing"], 2, "Unknown recipe 'nothing'"),
        (["quickstart", "--recipe", "nothing"], 2, "Unknown recipe 'nothing'"),
        (["train", "nothing", "--help"], 2, "Unknown recipe 'nothing'"),
        (["compare", "--table", "generator"], 2, "Did you mean 'generators'?"),
        (["reproduce", "fig9"], 2, "Unknown choice 'fig9'. Did you mean 'fig5'?"),
        (["reproduce", "fig5", "--scale", "tiny"], 2, "Unknown choice 'tiny'"),
        (["reproduce", "fig5", "--root", "nowhere"], 2, "There is no folder nowhere"),
        (["reproduce", "fig5", "--vectors", "word2vec:gone.vec"], 2, "no file of word vectors at gone.vec"),
        (["reproduce", "fig5", "--vectors", "context=word2vec:gone=1.vec"], 2, "no file of word vectors at gone=1.vec"),
        (["reproduce", "fig5", "--vectors", "vco=glove"], 2, "Unknown dataset or protocol 'vco'. Did you mean 'voc'"),
        (["reproduce", "fig5", "--vectors", "use", "--vectors", "glove"], 2, "given twice for all data: use and glove"),
        (["reproduce", "fig5", "--model.weights", "gone.pth"], 2, "There is no weights file 'gone.pth'"),
        (["evaluate", "nowhere"], 1, "There is no model in nowhere"),
        (["evaluate", "voc-names", "--rule", "magic"], 2, "Unknown rule 'magic'"),
        (["evaluate", "voc-names", "--rule", "ac", "--sigma", "1.5"], 2, "sigma must be in (0,1]"),
        (
            ["evaluate", "voc-names", "--rule", "nn", "--gamma", "0.3"],
            2,
            "--gamma is for the rule cs, but the rule is nn",
        ),
        (["evaluate", "voc-names", "--root", "nowhere"], 2, "There is no folder nowhere"),
        (["sweep", "nowhere"], 1, "There is no model in nowhere"),
        (["sweep", "voc-names", "--rules", "ac,nn"], 2, "Unknown rule to sweep 'nn'"),
        (["sweep", "voc-names", "--sigmas", "1.5"], 2, "sigma must be in (0,1]"),
        (["report", "nowhere"], 1, "There is no model in nowhere"),
        (["report", "voc-names", "--pair", "cow"], 2, "--pair takes a seen and an unseen class"),
        (["predict", "a.png"], 1, "There is no picture 'a.png'."),
        (["predict", "a.png", "--model", "nowhere"], 1, "There is no model in nowhere"),
        (["predict", "a.png", "--model", "gone.onnx"], 1, "There is no model gone.onnx"),
        (["predict", "a.png", "--rule", "magic"], 2, "Unknown rule 'magic'"),
        (["predict", "a.png", "--vectors", "gone.vec"], 2, "There is no word-vector file gone.vec"),
        (["export", "nowhere"], 2, "required: --out"),
        (["export", "nowhere", "--out", "x.onnx"], 1, "There is no model in nowhere"),
        (["serve", "--model", "nowhere"], 1, "There is no model in nowhere"),
        (["data"], 2, "Say which dataset"),
        (
            ["data", "--backbones"],
            2,
            "--backbones needs a value: list the backbones of timm whose names hold this word",
        ),
        (["data", "voc", "--root", "nowhere"], 2, "There is no folder nowhere"),
        (["data", "scenes", "--protocol", "nothing"], 2, "Unknown protocol 'nothing'"),
        (["data", "prepare", "voc"], 2, "required: --root"),
        (["data", "prepare", "voc", "--root", "nowhere"], 2, "There is no folder nowhere"),
    ],
)
def test_bad_usage_is_answered_without_torch(words, code, message, run):
    found, told, printed = run(words)
    assert found == code
    assert message in told
    assert told.startswith("joem: ")
    assert printed == ""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["data", "--recipes"], ["data", "--protocols"]])
def test_what_needs_no_network_is_quick(words, run):
    assert run(words)[0] == 0


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_help_is_quick(command, run):
    code, _, printed = run([*command.split(), "--help"])
    assert code == 0
    assert f"Example: joem {command}" in printed


def test_a_plus_in_the_name_of_a_vector_file_is_no_second_source(tmp_path):
    from joem.cli.checks import vector_files

    (tmp_path / "a+b").write_text("")
    vector_files(f"word2vec:{tmp_path}/a+b")
    vector_files(f"glove+word2vec:{tmp_path}/a+b+use")


def test_every_recipe_in_the_box_passes_where_its_files_are(tmp_path, monkeypatch):
    from joem import recipe
    from joem.cli.checks import recipe_files

    monkeypatch.chdir(tmp_path)
    for name in ("GoogleNews-vectors-negative300.bin", "crawl-300d-2M.vec"):
        (tmp_path / name).write_text("")
    for name in recipe.names():
        recipe_files(name, {"data": {} if name == "scenes" else {"root": str(tmp_path)}})


def test_a_folder_of_a_text_tower_may_hold_a_plus(tmp_path):
    from joem.cli.checks import vector_files

    (tmp_path / "a+b").mkdir()
    vector_files(f"glove+clip:{tmp_path}/a+b")
    vector_files(f"sentence:{tmp_path}/a+b")
