"""How many processes serve, where a Ray cluster runs them."""

from dataclasses import dataclass
from typing import Any

from joem.errors import BadUsage


@dataclass(frozen=True)
class Scale:
    """How many replicas there are.

    Args:
        replicas: how many at least.
        most: how many at the most, as requests come; as many as at least if None.
        requests: requests under way for which one replica is enough.
        gpus: of each replica, such as 0.5.
    """

    replicas: int = 1
    most: int | None = None
    requests: float = 2.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.replicas < 1 or (self.most is not None and self.most < self.replicas):
            raise BadUsage(f"There must be at least one replica and not fewer at the most, got {self}.")
        if not (self.requests > 0 and self.gpus >= 0):
            raise BadUsage(f"scale.requests must be more than 0 and scale.gpus not less, got {self}.")

    def options(self) -> dict[str, Any]:
        """As Ray Serve takes it."""
        actor = {"num_cpus": 1, "num_gpus": self.gpus}
        if self.most in (None, self.replicas):
            return {"num_replicas": self.replicas, "ray_actor_options": actor}
        between = {"min_replicas": self.replicas, "max_replicas": self.most, "target_ongoing_requests": self.requests}
        return {"autoscaling_config": between, "ray_actor_options": actor}
