"""Other networks that name pixels, and so teach words that no mask shows."""

from joem.engine.teachers.networks import Network, open_network
from joem.engine.teachers.record import teaching_of
from joem.engine.teachers.taught import Taught, check_zero_shot, taught

__all__ = ["Network", "Taught", "check_zero_shot", "open_network", "taught", "teaching_of"]
