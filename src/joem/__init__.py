"""Segment pictures into classes named by words, including classes nobody ever labelled."""

__version__ = "0.1.0"
