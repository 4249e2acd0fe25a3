"""What rows of tables had met before training, as the names of their weights, words and settings tell it."""

import pytest

from joem import recipe
from joem.seen_before import seen_before
from joem.settings import TeacherSettings


@pytest.mark.parametrize(
    ("backbone", "weights", "told"),
    [
        ("tu-vit_base_patch16_clip_224.openai", "imagenet", "captions"),
        ("tu-vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", "imagenet", "captions, names (ImageNet-22k)"),
        ("tu-vit_base_patch16_siglip_224.webli", "imagenet", "captions"),
        ("tu-eva02_base_patch16_clip_224.merged2b", "imagenet", "captions"),
        ("tu-vit_pe_core_tiny_patch16_384.fb", "imagenet", "captions"),
        ("tu-fastvit_mci0.apple_mclip", "imagenet", "captions"),
        ("tu-vit_small_patch14_reg4_dinov2.lvd142m", "imagenet", "pictures alone"),
        ("tu-vit_small_patch16_dinov3", "file.safetensors", "pictures alone"),
        ("tu-eva02_tiny_patch14_224.mim_in22k", "imagenet", "pictures alone"),
        ("tu-eva02_tiny_patch14_336.mim_in22k_ft_in1k", "imagenet", "names (ImageNet)"),
        ("tu-convnextv2_tiny.fcmae_ft_in22k_in1k", "imagenet", "names (ImageNet-22k)"),
        ("tu-swin_tiny_patch4_window7_224.ms_in22k", "imagenet", "names (ImageNet-22k)"),
        ("tu-vit_base_patch16_224", "imagenet", "names (ImageNet-22k)"),  # what timm takes where no tag is given
        ("tu-vit_base_patch16_224.sam_in1k", "imagenet", "names (ImageNet)"),  # an optimiser of that name
        ("tu-samvit_base_patch16.sa1b", "imagenet", "masks"),
        ("tu-caformer_s18.sail_in1k", "imagenet", "names (ImageNet)"),
        ("resnet101", "imagenet", "names (ImageNet)"),
        ("tu-tf_efficientnet_lite2", "wheel", "names (ImageNet)"),
        ("resnet101", "seg-resnet.pth", "not told"),
        ("resnet101", "none", "nothing"),
    ],
)
def test_weights_tell_it_by_their_names(backbone, weights, told):
    changes = {"model": {"backbone": backbone, "weights": weights}, "semantics": {"fit": "seen"}}
    assert seen_before(recipe.load("lite", changes)) == f"backbone: {told}; words: text"


def test_words_teachers_and_masks_are_told_too():
    base = recipe.load("lite", {"semantics": {"fit": "seen"}})
    start = "backbone: names (ImageNet); words: text"
    teacher = TeacherSettings(file="t.tflite")
    for changes, told in (
        ({"data": {"teachers": (teacher,)}}, "teachers: masks"),
        ({"data": {"captions": "photos"}}, "captions taught"),
        ({"data": {"transductive": True}}, "pictures of unseen classes"),
        ({"train": {"start": "runs/voc-names"}}, "what voc-names had learned"),
        ({"method": {"name": "supervised"}}, "masks of unseen classes"),
    ):
        assert seen_before(base.changed(**changes)) == f"{start}; {told}"
    both = base.changed(semantics={"vectors": "glove+clip:ViT-B-16@openai"})
    assert seen_before(both) == "backbone: names (ImageNet); words: text, captions"
    keras = recipe.load("lite-resnet50", {"model": {"weights": "resnet50.safetensors"}})
    assert seen_before(keras) == start
