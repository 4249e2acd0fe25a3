"""The web service: a REST API and one page on a `Segmenter`. Needs `pip install "joem[serve]"`."""

from typing import TYPE_CHECKING, Any

from joem.web.limits import Limits
from joem.web.scale import Scale

if TYPE_CHECKING:
    from joem.web.app import create_app
    from joem.web.server import serve

__all__ = ["Limits", "Scale", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    """FastAPI and torch load when used, so that `joem serve --help` is quick."""
    if name not in __all__:
        raise AttributeError(f"module 'joem.web' has no attribute {name!r}")
    from joem import extras

    extras.require("serve", "The service")
    from joem.web.app import create_app
    from joem.web.server import serve

    return {"create_app": create_app, "serve": serve}[name]
