"""Kits of the readers of layer, collective and step-time profiles."""

from kit import Kit

KITS: tuple[Kit, ...] = ()
