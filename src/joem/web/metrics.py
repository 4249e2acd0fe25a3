"""Figures for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest


class Metrics:
    """The figures of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.seconds = Histogram(
            "joem_request_seconds", "Time to answer", ["route", "method", "status"], registry=self.registry
        )
        self.scenes = Counter(
            "joem_scenes", "Pictures asked for: encoded, or kept from before", ["how"], registry=self.registry
        )

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Show a value as it is when the figures are read."""
        Gauge(name, meaning, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)
