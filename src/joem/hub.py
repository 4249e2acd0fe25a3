"""Models on the Hugging Face Hub. Needs `pip install "joem[hub]"`."""

from pathlib import Path
from typing import Any

from joem import extras
from joem.model import Model
from joem.model_folder import DESCRIPTION, EXAMPLES, WEIGHTS


def download(name: str, **options: Any) -> Path:
    """The folder of a model on the Hub; `options` are those of `huggingface_hub.snapshot_download`."""
    extras.require("hub", "A model from the Hugging Face Hub")
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=[DESCRIPTION, WEIGHTS, EXAMPLES], **options))


def shared(model: Model) -> Any:
    """What can be given to the Hub: `save_pretrained` and `push_to_hub` write the model's files and a model card."""
    extras.require("hub", "A model for the Hugging Face Hub")
    from huggingface_hub import ModelHubMixin

    class Shared(ModelHubMixin, library_name="joem", pipeline_tag="image-segmentation", tags=["zero-shot"]):
        # Given, or the mixin would write a copy of the whole model into config.json; model.json says everything.
        _hub_mixin_config = {"library_name": "joem"}  # noqa: RUF012

        def _save_pretrained(self, save_directory: Path) -> None:
            model.write(save_directory)

    return Shared()
